//! Numbers brought to mean zero and variance one.

use serde::{Deserialize, Serialize};

use crate::activation::Activation;
use crate::description::{Describe, Start, Tensor};
use crate::error::NativeError;
use crate::kernel::{Backward, Forward, Kernel};
use crate::layers::convolution::sum_of;
use crate::real::{Real, wide_loop};
use crate::shape::Shape;

/// Each channel over all rows of the batch, and over all pixels; when the model answers, with means of the past.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchNorm {
    /// Length of the first axis of a row.
    pub features: usize,
    /// Is added to the variance; 1e-5 by default.
    pub eps: f64,
    /// What the newest batch counts for in the means; 0.1 by default.
    pub momentum: f64,
}

impl BatchNorm {
    /// For so many channels.
    pub fn new(features: usize) -> Self {
        Self {
            features,
            eps: 1e-5,
            momentum: 0.1,
        }
    }
}

impl Describe for BatchNorm {
    fn check(&self) -> Result<(), String> {
        match (
            self.features,
            (0.0..=1.0).contains(&self.momentum),
            self.eps > 0.0,
        ) {
            (0, ..) => Err("needs at least one feature".into()),
            (_, false, _) => Err(format!(
                "momentum must be between 0 and 1, it is {}",
                self.momentum
            )),
            (.., false) => Err(format!("eps must be above 0, it is {}", self.eps)),
            _ => Ok(()),
        }
    }

    fn parameters(&self) -> Vec<Tensor> {
        vec![
            Tensor::new("weight", [self.features], Start::Constant(1.0)),
            Tensor::new("bias", [self.features], Start::Constant(0.0)),
        ]
    }

    fn buffers(&self) -> Vec<Tensor> {
        vec![
            Tensor::new("running_mean", [self.features], Start::Constant(0.0)),
            Tensor::new("running_var", [self.features], Start::Constant(1.0)),
        ]
    }

    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        match inputs[0].axes().first() {
            Some(first) if *first == self.features => Ok(inputs[0].clone()),
            _ => Err(format!(
                "needs {} channels along the first axis, and {} came in",
                self.features, inputs[0]
            )),
        }
    }

    fn kernel<T: Real>(&self, inputs: &[Shape], _rows: usize) -> Box<dyn Kernel<T>> {
        Box::new(OverRows::<T> {
            of: self.clone(),
            pixels: inputs[0].size() / self.features,
            means: Vec::new(),
            scales: Vec::new(),
            activation: None,
        })
    }

    fn told(&self) -> String {
        format!("BatchNorm({})", self.features)
    }
}

struct OverRows<T> {
    of: BatchNorm,
    pixels: usize,
    /// Of each channel in the last batch: mean, and one by deviation.
    means: Vec<T>,
    scales: Vec<T>,
    activation: Option<Activation>,
}

impl<T: Real> OverRows<T> {
    /// Mean and variance of one channel, in two passes: the difference of large sums would lose digits.
    fn moments(&self, input: &[T], channel: usize) -> (T, T) {
        let count = T::of((input.len() / self.of.features) as f64);
        let planes = || {
            input
                .chunks_exact(self.pixels)
                .skip(channel)
                .step_by(self.of.features)
        };
        wide_loop(|| {
            let mean = planes().map(sum_of).sum::<T>() / count;
            let spread = planes().map(|plane| squares(plane, mean)).sum::<T>();
            (mean, spread / count)
        })
    }
}

/// Sum of the squares of differences, as [`sum_of`] sums.
#[inline(always)]
fn squares<T: Real>(values: &[T], mean: T) -> T {
    let mut sums = [T::zero(); 16];
    let chunks = values.chunks_exact(16);
    let square = |value: &T| (*value - mean) * (*value - mean);
    let rest: T = chunks.remainder().iter().map(square).sum();
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += square(value);
        }
    }
    sums.iter().copied().sum::<T>() + rest
}

/// Sum of products, as [`sum_of`] sums.
#[inline(always)]
fn products<T: Real>(values: &[T], others: &[T], mean: T) -> T {
    let mut sums = [T::zero(); 16];
    let (chunks, more) = (values.chunks_exact(16), others.chunks_exact(16));
    let rest = chunks.remainder().iter().zip(more.remainder());
    let rest: T = rest.map(|(value, other)| (*value - mean) * *other).sum();
    for (chunk, other) in chunks.zip(more) {
        for (sum, (value, other)) in sums.iter_mut().zip(chunk.iter().zip(other)) {
            *sum += (*value - mean) * *other;
        }
    }
    sums.iter().copied().sum::<T>() + rest
}

impl<T: Real> Kernel<T> for OverRows<T> {
    fn fuse(&mut self, activation: Activation) -> bool {
        self.activation = Some(activation);
        true
    }

    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError> {
        let (features, pixels) = (self.of.features, self.pixels);
        let count = at.rows * pixels;
        if at.trains && count < 2 {
            let reason =
                "needs more than one value for each channel to train: use larger batches, or fewer lanes";
            return Err(NativeError::Input(format!("BatchNorm({features}) {reason}")));
        }
        self.means.resize(features, T::zero());
        self.scales.resize(features, T::zero());
        let [means, variances] = at.buffers else {
            return Ok(());
        };
        for channel in 0..features {
            let (mean, variance) = match at.trains {
                true => self.moments(at.inputs[0], channel),
                false => (means[channel], variances[channel]),
            };
            if at.trains {
                let new = T::of(self.of.momentum);
                // Kept without bias, as PyTorch does.
                let unbiased = variance * T::of(count as f64 / (count - 1) as f64);
                means[channel] = (T::one() - new) * means[channel] + new * mean;
                variances[channel] = (T::one() - new) * variances[channel] + new * unbiased;
            }
            self.means[channel] = mean;
            self.scales[channel] = T::one() / (variance + T::of(self.of.eps)).sqrt();
        }
        let planes = at
            .output
            .chunks_exact_mut(pixels)
            .zip(at.inputs[0].chunks_exact(pixels));
        for (number, (output, input)) in planes.enumerate() {
            let channel = number % features;
            let scale = self.scales[channel] * at.parameters[0][channel];
            let (mean, bias) = (self.means[channel], at.parameters[1][channel]);
            wide_loop(|| {
                for (output, input) in output.iter_mut().zip(input) {
                    *output = (*input - mean) * scale + bias;
                }
            });
        }
        if let Some(activation) = self.activation {
            activation.apply(at.output);
        }
        Ok(())
    }

    fn backward(&mut self, at: Backward<'_, T>) {
        let (features, pixels) = (self.of.features, self.pixels);
        if let Some(activation) = self.activation {
            activation.back(at.output, at.d_output);
        }
        let count = T::of((at.rows * pixels) as f64);
        let [d_weight, d_bias] = at.d_parameters else {
            return;
        };
        for channel in 0..features {
            let (mean, scale) = (self.means[channel], self.scales[channel]);
            let planes = at.inputs[0]
                .chunks_exact(pixels)
                .zip(at.d_output.chunks_exact(pixels));
            let planes = || planes.clone().skip(channel).step_by(features);
            let (sum, along) = wide_loop(|| {
                let sum = planes().map(|(_, errors)| sum_of(errors)).sum::<T>();
                (
                    sum,
                    planes()
                        .map(|(input, errors)| products(input, errors, mean))
                        .sum::<T>()
                        * scale,
                )
            });
            d_weight[channel] += along;
            d_bias[channel] += sum;
            let Some(d_input) = &mut at.d_inputs[0] else {
                continue;
            };
            let factor = at.parameters[0][channel] * scale;
            let (even, tilt) = (sum / count, along * scale / count);
            let targets = d_input.chunks_exact_mut(pixels).skip(channel).step_by(features);
            for (target, (input, errors)) in targets.zip(planes()) {
                wide_loop(|| {
                    for ((target, input), error) in target.iter_mut().zip(input).zip(errors) {
                        *target = factor * (*error - even - (*input - mean) * tilt);
                    }
                });
            }
        }
    }
}

/// Each row by itself, over its last axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerNorm {
    /// Lengths of the axes that are taken together: the last ones of a row.
    pub shape: Vec<usize>,
    /// Is added to the variance; 1e-5 by default.
    pub eps: f64,
}

impl LayerNorm {
    /// Over the last axis, of this length.
    pub fn new(features: usize) -> Self {
        Self {
            shape: vec![features],
            eps: 1e-5,
        }
    }
}

impl Describe for LayerNorm {
    fn check(&self) -> Result<(), String> {
        match self.shape.iter().product::<usize>() {
            0 => Err("needs at least one number to take together".into()),
            _ => Ok(()),
        }
    }

    fn parameters(&self) -> Vec<Tensor> {
        vec![
            Tensor::new("weight", self.shape.clone(), Start::Constant(1.0)),
            Tensor::new("bias", self.shape.clone(), Start::Constant(0.0)),
        ]
    }

    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        match inputs[0].axes().ends_with(&self.shape) {
            true => Ok(inputs[0].clone()),
            false => Err(format!(
                "needs rows that end in {}, and {} came in",
                Shape(self.shape.clone()),
                inputs[0]
            )),
        }
    }

    fn kernel<T: Real>(&self, _inputs: &[Shape], _rows: usize) -> Box<dyn Kernel<T>> {
        let width = self.shape.iter().product();
        Box::new(OverAxes::<T> {
            width,
            eps: self.eps,
            moments: Vec::new(),
        })
    }

    fn told(&self) -> String {
        format!("LayerNorm({})", Shape(self.shape.clone()))
    }
}

struct OverAxes<T> {
    width: usize,
    eps: f64,
    /// Mean, and one by deviation.
    moments: Vec<(T, T)>,
}

impl<T: Real> Kernel<T> for OverAxes<T> {
    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError> {
        let count = T::of(self.width as f64);
        self.moments.clear();
        let lines = at.inputs[0]
            .chunks_exact(self.width)
            .zip(at.output.chunks_exact_mut(self.width));
        wide_loop(|| {
            for (input, output) in lines {
                let mean = sum_of(input) / count;
                let scale = T::one() / (squares(input, mean) / count + T::of(self.eps)).sqrt();
                self.moments.push((mean, scale));
                let settings = at.parameters[0].iter().zip(at.parameters[1]);
                for ((output, input), (weight, bias)) in output.iter_mut().zip(input).zip(settings) {
                    *output = (*input - mean) * scale * *weight + *bias;
                }
            }
        });
        Ok(())
    }

    fn backward(&mut self, at: Backward<'_, T>) {
        let count = T::of(self.width as f64);
        let [d_weight, d_bias] = at.d_parameters else {
            return;
        };
        let weight = at.parameters[0];
        let lines = at.inputs[0]
            .chunks_exact(self.width)
            .zip(at.d_output.chunks_exact_mut(self.width));
        wide_loop(|| {
            for (number, (input, errors)) in lines.enumerate() {
                let (mean, scale) = self.moments[number];
                let gradients = d_weight.iter_mut().zip(d_bias.iter_mut());
                for ((input, error), (d_weight, d_bias)) in input.iter().zip(errors.iter()).zip(gradients) {
                    *d_weight += *error * (*input - mean) * scale;
                    *d_bias += *error;
                }
                let Some(d_input) = &mut at.d_inputs[0] else {
                    continue;
                };
                for (error, weight) in errors.iter_mut().zip(weight) {
                    *error *= *weight;
                }
                let (even, tilt) = (
                    sum_of(errors) / count,
                    products(input, errors, mean) * scale * scale / count,
                );
                let line = &mut d_input[number * self.width..][..self.width];
                for ((target, input), error) in line.iter_mut().zip(input).zip(errors.iter()) {
                    *target = scale * (*error - even - (*input - mean) * tilt);
                }
            }
        });
    }
}
