//! Means of parts of pictures.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::description::Describe;
use crate::error::NativeError;
use crate::kernel::{Backward, Forward, Kernel};
use crate::layers::convolution::pair;
use crate::real::Real;
use crate::shape::Shape;

/// The mean of each window, in which padding counts as zeros.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AvgPool2d {
    /// Height and width of the window.
    pub kernel: [usize; 2],
    /// How far apart windows are.
    pub stride: [usize; 2],
    /// Zeros around the picture.
    pub padding: [usize; 2],
}

impl AvgPool2d {
    /// Square windows beside each other.
    pub fn new(kernel: usize) -> Self {
        Self {
            kernel: [kernel; 2],
            stride: [kernel; 2],
            padding: [0; 2],
        }
    }
}

/// Means of parts that are as equal as can be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdaptiveAvgPool2d {
    /// Height and width of what comes out.
    pub output: [usize; 2],
}

impl AdaptiveAvgPool2d {
    /// To a square of this side.
    pub fn new(side: usize) -> Self {
        Self { output: [side; 2] }
    }
}

/// The mean of each channel: no height and width are left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GlobalAvgPool;

/// Channels, height and width.
fn picture(shape: &Shape) -> Result<[usize; 3], String> {
    shape
        .axes()
        .try_into()
        .map_err(|_| format!("needs pictures of channels x height x width, and {shape} came in"))
}

impl Describe for AvgPool2d {
    fn check(&self) -> Result<(), String> {
        let paddings = self.padding.iter().zip(&self.kernel);
        match self.kernel.contains(&0)
            || self.stride.contains(&0)
            || paddings.clone().any(|(p, k)| 2 * p > *k)
        {
            true => Err("kernel and stride must be at least 1, padding at most half of the kernel".into()),
            false => Ok(()),
        }
    }

    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        let [channels, height, width] = picture(&inputs[0])?;
        let along = |axis: usize, length: usize| {
            let whole = (length + 2 * self.padding[axis]).checked_sub(self.kernel[axis])?;
            Some(whole / self.stride[axis] + 1)
        };
        match (along(0, height), along(1, width)) {
            (Some(height), Some(width)) => Ok(Shape::from([channels, height, width])),
            _ => Err(format!("its window is larger than what came in, {}", inputs[0])),
        }
    }

    fn kernel<T: Real>(&self, inputs: &[Shape], _rows: usize) -> Box<dyn Kernel<T>> {
        let (input, output) = (inputs[0].axes(), self.shape(inputs).unwrap_or_default());
        let windows = |axis: usize| {
            let place = move |at: usize| {
                let start = at * self.stride[axis];
                let end = (start + self.kernel[axis]).saturating_sub(self.padding[axis]);
                start.saturating_sub(self.padding[axis])..end.min(input[axis + 1])
            };
            (0..output.0[axis + 1]).map(place).collect()
        };
        let count = self.kernel.iter().product();
        Box::new(Means {
            input: [input[1], input[2]],
            ys: windows(0),
            xs: windows(1),
            count: Some(count),
        })
    }

    fn told(&self) -> String {
        format!("AvgPool2d({})", pair(self.kernel))
    }
}

impl Describe for AdaptiveAvgPool2d {
    fn check(&self) -> Result<(), String> {
        match self.output.contains(&0) {
            true => Err("needs at least one pixel".into()),
            false => Ok(()),
        }
    }

    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        let [channels, height, width] = picture(&inputs[0])?;
        match height * width {
            0 => Err(format!("needs pixels, and {} came in", inputs[0])),
            _ => Ok(Shape::from([channels, self.output[0], self.output[1]])),
        }
    }

    fn kernel<T: Real>(&self, inputs: &[Shape], _rows: usize) -> Box<dyn Kernel<T>> {
        parts(inputs[0].axes(), self.output)
    }

    fn told(&self) -> String {
        format!("AdaptiveAvgPool2d({})", pair(self.output))
    }
}

impl Describe for GlobalAvgPool {
    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        let [channels, height, width] = picture(&inputs[0])?;
        match height * width {
            0 => Err(format!("needs pixels, and {} came in", inputs[0])),
            _ => Ok(Shape::from([channels])),
        }
    }

    fn kernel<T: Real>(&self, inputs: &[Shape], _rows: usize) -> Box<dyn Kernel<T>> {
        parts(inputs[0].axes(), [1, 1])
    }

    fn told(&self) -> String {
        "GlobalAvgPool()".into()
    }
}

fn parts<T: Real>(input: &[usize], output: [usize; 2]) -> Box<dyn Kernel<T>> {
    let windows = |axis: usize| {
        let (from, to) = (input[axis + 1], output[axis]);
        (0..to)
            .map(|at| at * from / to..((at + 1) * from).div_ceil(to))
            .collect()
    };
    Box::new(Means {
        input: [input[1], input[2]],
        ys: windows(0),
        xs: windows(1),
        count: None,
    })
}

struct Means {
    input: [usize; 2],
    ys: Vec<Range<usize>>,
    xs: Vec<Range<usize>>,
    /// What sums are divided by; by how many pixels there are where it is not said.
    count: Option<usize>,
}

impl Means {
    fn divisor<T: Real>(&self, ys: &Range<usize>, xs: &Range<usize>) -> T {
        T::of(self.count.unwrap_or(ys.len() * xs.len()) as f64)
    }
}

impl<T: Real> Kernel<T> for Means {
    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError> {
        let [height, width] = self.input;
        let outputs = at.output.chunks_exact_mut(self.ys.len() * self.xs.len());
        for (picture, output) in at.inputs[0].chunks_exact(height * width).zip(outputs) {
            for (ys, line) in self.ys.iter().zip(output.chunks_exact_mut(self.xs.len())) {
                for (xs, mean) in self.xs.iter().zip(line) {
                    let rows = ys.clone().map(|y| &picture[y * width..][xs.clone()]);
                    let sum = rows.map(|row| row.iter().copied().sum::<T>()).sum::<T>();
                    *mean = sum / self.divisor(ys, xs);
                }
            }
        }
        Ok(())
    }

    fn backward(&mut self, at: Backward<'_, T>) {
        let [height, width] = self.input;
        let Some(d_input) = &mut at.d_inputs[0] else {
            return;
        };
        d_input.fill(T::zero());
        let errors = at.d_output.chunks_exact(self.ys.len() * self.xs.len());
        for (picture, errors) in d_input.chunks_exact_mut(height * width).zip(errors) {
            for (ys, line) in self.ys.iter().zip(errors.chunks_exact(self.xs.len())) {
                for (xs, error) in self.xs.iter().zip(line) {
                    let share = *error / self.divisor(ys, xs);
                    for y in ys.clone() {
                        picture[y * width..][xs.clone()]
                            .iter_mut()
                            .for_each(|pixel| *pixel += share);
                    }
                }
            }
        }
    }
}
