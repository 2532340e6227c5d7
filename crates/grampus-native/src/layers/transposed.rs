//! Convolutions the other way round.

use serde::{Deserialize, Serialize};

use crate::description::{Describe, Start, Tensor};
use crate::error::NativeError;
use crate::kernel::{Backward, Forward, Kernel};
use crate::kernels::convolution::{Convolution, Geometry};
use crate::layers::convolution::{add_bias, bias_gradient, pair};
use crate::real::Real;
use crate::shape::Shape;

/// Makes pictures larger: what a [`Conv2d`](super::Conv2d) of the same settings does on its way back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvTranspose2d {
    /// Channels that come in.
    pub in_channels: usize,
    /// Channels that come out.
    pub out_channels: usize,
    /// Height and width of what a pixel is spread over.
    pub kernel: [usize; 2],
    /// How far apart pixels are spread.
    pub stride: [usize; 2],
    /// Pixels that are cut off around what comes out.
    pub padding: [usize; 2],
    /// Rows and columns that are added below and to the right.
    pub output_padding: [usize; 2],
    /// Groups of channels that do not see each other.
    pub groups: usize,
    /// Whether something is added.
    pub bias: bool,
}

impl ConvTranspose2d {
    /// A square kernel, without padding.
    pub fn new(in_channels: usize, out_channels: usize, kernel: usize) -> Self {
        Self {
            in_channels,
            out_channels,
            kernel: [kernel; 2],
            stride: [1; 2],
            padding: [0; 2],
            output_padding: [0; 2],
            groups: 1,
            bias: true,
        }
    }

    /// How far apart pixels are spread.
    pub fn stride(self, stride: usize) -> Self {
        Self {
            stride: [stride; 2],
            ..self
        }
    }

    /// Pixels that are cut off on each side.
    pub fn padding(self, padding: usize) -> Self {
        Self {
            padding: [padding; 2],
            ..self
        }
    }

    fn output(&self, input: [usize; 2]) -> Option<[usize; 2]> {
        let along = |axis: usize| {
            let spread = input[axis].checked_sub(1)? * self.stride[axis] + self.kernel[axis];
            (spread + self.output_padding[axis])
                .checked_sub(2 * self.padding[axis])
                .filter(|length| *length > 0)
        };
        Some([along(0)?, along(1)?])
    }
}

impl Describe for ConvTranspose2d {
    fn check(&self) -> Result<(), String> {
        let sizes = [self.kernel, self.stride].concat();
        if self.in_channels * self.out_channels * self.groups == 0 || sizes.contains(&0) {
            return Err("channels, groups, kernel and stride must be at least 1".into());
        }
        if self.in_channels % self.groups + self.out_channels % self.groups != 0 {
            return Err(format!("its channels cannot be cut into {} groups", self.groups));
        }
        match self
            .output_padding
            .iter()
            .zip(&self.stride)
            .all(|(padding, stride)| padding < stride)
        {
            true => Ok(()),
            false => Err("output_padding must be below the stride".into()),
        }
    }

    fn parameters(&self) -> Vec<Tensor> {
        let shape = [
            self.in_channels,
            self.out_channels / self.groups,
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
            None => Err(format!("leaves nothing of what came in, {}", inputs[0])),
        }
    }

    fn kernel<T: Real>(&self, inputs: &[Shape], rows: usize) -> Box<dyn Kernel<T>> {
        let axes = inputs[0].axes();
        let input = [axes[1], axes[2]];
        let geometry = Geometry {
            in_channels: self.out_channels,
            out_channels: self.in_channels,
            groups: self.groups,
            input: self.output(input).unwrap_or_default(),
            output: input,
            kernel: self.kernel,
            stride: self.stride,
            padding: self.padding,
            dilation: [1; 2],
        };
        Box::new(Spread {
            convolution: Convolution::new(geometry, rows),
        })
    }

    fn told(&self) -> String {
        format!(
            "ConvTranspose2d({}, {}, {})",
            self.in_channels,
            self.out_channels,
            pair(self.kernel)
        )
    }
}

struct Spread<T> {
    convolution: Convolution<T>,
}

impl<T: Real> Kernel<T> for Spread<T> {
    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError> {
        self.convolution
            .input_gradient(at.rows, at.parameters[0], at.inputs[0], at.output);
        if let Some(bias) = at.parameters.get(1) {
            let pixels = at.output.len() / (at.rows * bias.len()).max(1);
            for (number, plane) in at.output.chunks_exact_mut(pixels.max(1)).enumerate() {
                add_bias(plane, bias[number % bias.len()]);
            }
        }
        Ok(())
    }

    fn backward(&mut self, at: Backward<'_, T>) {
        let Some((d_weight, d_bias)) = at.d_parameters.split_first_mut() else {
            return;
        };
        if let Some(d_bias) = d_bias.first_mut() {
            bias_gradient(at.rows, at.d_output, d_bias);
        }
        self.convolution
            .weight_gradient(at.rows, at.d_output, at.inputs[0], d_weight);
        if let Some(d_input) = &mut at.d_inputs[0] {
            self.convolution
                .forward(at.rows, at.d_output, at.parameters[0], d_input, |_, _| {});
        }
    }
}
