//! Convolutions.

use serde::{Deserialize, Serialize};

use crate::activation::Activation;
use crate::description::{Describe, Start, Tensor};
use crate::error::NativeError;
use crate::kernel::{Backward, Forward, Kernel};
use crate::kernels::convolution::{Convolution, Geometry};
use crate::real::{Real, wide_loop};
use crate::shape::Shape;

/// A convolution of pictures: `channels x height x width`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conv2d {
    /// Channels that come in.
    pub in_channels: usize,
    /// Channels that come out.
    pub out_channels: usize,
    /// Height and width of what is seen at once.
    pub kernel: [usize; 2],
    /// How far apart outputs are.
    pub stride: [usize; 2],
    /// Zeros around the picture.
    pub padding: [usize; 2],
    /// How far apart the pixels of the kernel are.
    pub dilation: [usize; 2],
    /// Groups of channels that do not see each other.
    pub groups: usize,
    /// Whether something is added.
    pub bias: bool,
}

impl Conv2d {
    /// A square kernel, without padding.
    pub fn new(in_channels: usize, out_channels: usize, kernel: usize) -> Self {
        Self {
            in_channels,
            out_channels,
            kernel: [kernel; 2],
            stride: [1; 2],
            padding: [0; 2],
            dilation: [1; 2],
            groups: 1,
            bias: true,
        }
    }

    /// How far apart outputs are.
    pub fn stride(self, stride: usize) -> Self {
        Self {
            stride: [stride; 2],
            ..self
        }
    }

    /// Zeros on each side.
    pub fn padding(self, padding: usize) -> Self {
        Self {
            padding: [padding; 2],
            ..self
        }
    }

    /// How far apart the pixels of the kernel are.
    pub fn dilation(self, dilation: usize) -> Self {
        Self {
            dilation: [dilation; 2],
            ..self
        }
    }

    /// Groups of channels that do not see each other; as many as channels for a depthwise one.
    pub fn groups(self, groups: usize) -> Self {
        Self { groups, ..self }
    }

    /// Without a bias.
    pub fn without_bias(self) -> Self {
        Self { bias: false, ..self }
    }

    fn output(&self, input: [usize; 2]) -> Option<[usize; 2]> {
        let along = |axis: usize| {
            let seen = self.dilation[axis] * (self.kernel[axis] - 1) + 1;
            let whole = (input[axis] + 2 * self.padding[axis]).checked_sub(seen)?;
            Some(whole / self.stride[axis] + 1)
        };
        Some([along(0)?, along(1)?])
    }
}

impl Describe for Conv2d {
    fn check(&self) -> Result<(), String> {
        let sizes = [self.kernel, self.stride, self.dilation].concat();
        if self.in_channels * self.out_channels * self.groups == 0 || sizes.contains(&0) {
            return Err("channels, groups, kernel, stride and dilation must be at least 1".into());
        }
        for (what, channels) in [
            ("in_channels", self.in_channels),
            ("out_channels", self.out_channels),
        ] {
            if channels % self.groups != 0 {
                return Err(format!(
                    "{what}={channels} cannot be cut into {} groups",
                    self.groups
                ));
            }
        }
        Ok(())
    }

    fn parameters(&self) -> Vec<Tensor> {
        let shape = [
            self.out_channels,
            self.in_channels / self.groups,
            self.kernel[0],
            self.kernel[1],
        ];
        let seen: usize = shape[1..].iter().product();
        let start = Start::Uniform(1.0 / (seen as f64).sqrt());
        let mut all = vec![Tensor::new("weight", shape, start)];
        if self.bias {
            all.push(Tensor::new("bias", [self.out_channels], start));
        }
        all
    }

    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        let [channels, height, width] = *inputs[0].axes() else {
            return Err(format!(
                "needs pictures of channels x height x width, and {} came in",
                inputs[0]
            ));
        };
        if channels != self.in_channels {
            return Err(format!(
                "needs {} channels, and {} came in",
                self.in_channels, inputs[0]
            ));
        }
        match self.output([height, width]) {
            Some([height, width]) => Ok(Shape::from([self.out_channels, height, width])),
            None => Err(format!("its kernel is larger than what came in, {}", inputs[0])),
        }
    }

    fn kernel<T: Real>(&self, inputs: &[Shape], rows: usize) -> Box<dyn Kernel<T>> {
        let axes = inputs[0].axes();
        let input = [axes[1], axes[2]];
        let geometry = Geometry {
            in_channels: self.in_channels,
            out_channels: self.out_channels,
            groups: self.groups,
            input,
            output: self.output(input).unwrap_or_default(),
            kernel: self.kernel,
            stride: self.stride,
            padding: self.padding,
            dilation: self.dilation,
        };
        Box::new(Convolved {
            convolution: Convolution::new(geometry, rows),
            activation: None,
        })
    }

    fn told(&self) -> String {
        let mut text = format!(
            "Conv2d({}, {}, {}",
            self.in_channels,
            self.out_channels,
            pair(self.kernel)
        );
        for (name, value, usual) in [
            ("stride", self.stride, 1),
            ("padding", self.padding, 0),
            ("dilation", self.dilation, 1),
        ] {
            if value != [usual; 2] {
                text += &format!(", {name}={}", pair(value));
            }
        }
        if self.groups != 1 {
            text += &format!(", groups={}", self.groups);
        }
        text + if self.bias { ")" } else { ", bias=False)" }
    }
}

/// As a person writes it.
pub(super) fn pair([one, other]: [usize; 2]) -> String {
    if one == other {
        one.to_string()
    } else {
        format!("({one}, {other})")
    }
}

/// A convolution of series: `channels x length`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conv1d {
    /// Channels that come in.
    pub in_channels: usize,
    /// Channels that come out.
    pub out_channels: usize,
    /// Length of what is seen at once.
    pub kernel: usize,
    /// How far apart outputs are.
    pub stride: usize,
    /// Zeros on each side.
    pub padding: usize,
    /// How far apart the places of the kernel are.
    pub dilation: usize,
    /// Groups of channels that do not see each other.
    pub groups: usize,
    /// Whether something is added.
    pub bias: bool,
}

impl Conv1d {
    /// Without padding.
    pub fn new(in_channels: usize, out_channels: usize, kernel: usize) -> Self {
        Self {
            in_channels,
            out_channels,
            kernel,
            stride: 1,
            padding: 0,
            dilation: 1,
            groups: 1,
            bias: true,
        }
    }

    /// The same on pictures that are one row high.
    fn flat(&self) -> Conv2d {
        Conv2d {
            in_channels: self.in_channels,
            out_channels: self.out_channels,
            kernel: [1, self.kernel],
            stride: [1, self.stride],
            padding: [0, self.padding],
            dilation: [1, self.dilation],
            groups: self.groups,
            bias: self.bias,
        }
    }
}

/// A series as a picture that is one row high.
fn raised(shape: &Shape) -> Result<Shape, String> {
    match *shape.axes() {
        [channels, length] => Ok(Shape::from([channels, 1, length])),
        _ => Err(format!("needs series of channels x length, and {shape} came in")),
    }
}

impl Describe for Conv1d {
    fn check(&self) -> Result<(), String> {
        self.flat().check()
    }

    fn parameters(&self) -> Vec<Tensor> {
        let mut all = self.flat().parameters();
        all[0].shape = vec![self.out_channels, self.in_channels / self.groups, self.kernel];
        all
    }

    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        let made = self.flat().shape(&[raised(&inputs[0])?])?;
        Ok(Shape::from([made.0[0], made.0[2]]))
    }

    fn kernel<T: Real>(&self, inputs: &[Shape], rows: usize) -> Box<dyn Kernel<T>> {
        self.flat()
            .kernel(&[raised(&inputs[0]).unwrap_or_default()], rows)
    }

    fn told(&self) -> String {
        format!(
            "Conv1d({}, {}, {})",
            self.in_channels, self.out_channels, self.kernel
        )
    }
}

struct Convolved<T> {
    convolution: Convolution<T>,
    activation: Option<Activation>,
}

impl<T: Real> Kernel<T> for Convolved<T> {
    fn fuse(&mut self, activation: Activation) -> bool {
        self.activation = Some(activation);
        true
    }

    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError> {
        let bias = at.parameters.get(1);
        let activation = self.activation;
        self.convolution.forward(
            at.rows,
            at.inputs[0],
            at.parameters[0],
            at.output,
            |channel, pixels| {
                if let Some(bias) = bias {
                    add_bias(pixels, bias[channel]);
                }
                if let Some(activation) = activation {
                    activation.apply(pixels);
                }
            },
        );
        Ok(())
    }

    fn backward(&mut self, at: Backward<'_, T>) {
        if let Some(activation) = self.activation {
            activation.back(at.output, at.d_output);
        }
        let Some((d_weight, d_bias)) = at.d_parameters.split_first_mut() else {
            return;
        };
        if let Some(d_bias) = d_bias.first_mut() {
            bias_gradient(at.rows, at.d_output, d_bias);
        }
        self.convolution
            .weight_gradient(at.rows, at.inputs[0], at.d_output, d_weight);
        if let Some(d_input) = &mut at.d_inputs[0] {
            self.convolution
                .input_gradient(at.rows, at.parameters[0], at.d_output, d_input);
        }
    }
}

/// To all pixels of a channel.
pub(super) fn add_bias<T: Real>(pixels: &mut [T], bias: T) {
    wide_loop(|| {
        for pixel in pixels {
            *pixel += bias;
        }
    });
}

/// Adds up the errors of each channel.
pub(super) fn bias_gradient<T: Real>(rows: usize, errors: &[T], d_bias: &mut [T]) {
    let pixels = errors.len() / (rows * d_bias.len()).max(1);
    if pixels == 0 {
        return;
    }
    wide_loop(|| {
        for picture in errors.chunks_exact(pixels * d_bias.len()) {
            for (sum, errors) in d_bias.iter_mut().zip(picture.chunks_exact(pixels)) {
                *sum += sum_of(errors);
            }
        }
    });
}

/// In sixteen sums beside each other, which a processor adds at once.
#[inline(always)]
pub(super) fn sum_of<T: Real>(values: &[T]) -> T {
    let mut sums = [T::zero(); 16];
    let chunks = values.chunks_exact(16);
    let rest: T = chunks.remainder().iter().copied().sum();
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += *value;
        }
    }
    sums.iter().copied().sum::<T>() + rest
}
