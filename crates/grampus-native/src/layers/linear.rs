//! Products with a matrix.

use serde::{Deserialize, Serialize};

use crate::activation::Activation;
use crate::description::{Describe, Start, Tensor};
use crate::error::NativeError;
use crate::kernel::{Backward, Forward, Kernel};
use crate::matmul::{Matrix, multiply};
use crate::real::{Real, wide_loop};
use crate::shape::Shape;

/// `x * weight + bias` over the last axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Linear {
    /// Length of the last axis that comes in.
    pub in_features: usize,
    /// Length of the last axis that comes out.
    pub out_features: usize,
    /// Whether something is added.
    pub bias: bool,
}

impl Linear {
    /// With a bias.
    pub fn new(in_features: usize, out_features: usize) -> Self {
        Self {
            in_features,
            out_features,
            bias: true,
        }
    }

    /// Without a bias.
    pub fn without_bias(self) -> Self {
        Self { bias: false, ..self }
    }
}

impl Describe for Linear {
    fn check(&self) -> Result<(), String> {
        match self.in_features * self.out_features {
            0 => Err("needs at least one feature on each side".into()),
            _ => Ok(()),
        }
    }

    fn parameters(&self) -> Vec<Tensor> {
        let start = Start::Uniform(1.0 / (self.in_features as f64).sqrt());
        let mut all = vec![Tensor::new(
            "weight",
            [self.out_features, self.in_features],
            start,
        )];
        if self.bias {
            all.push(Tensor::new("bias", [self.out_features], start));
        }
        all
    }

    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        let axes = inputs[0].axes();
        match axes.split_last() {
            Some((last, before)) if *last == self.in_features => {
                Ok(Shape([before, &[self.out_features]].concat()))
            }
            _ => Err(format!(
                "needs rows whose last axis has {} numbers, and {} came in",
                self.in_features, inputs[0]
            )),
        }
    }

    fn kernel<T: Real>(&self, inputs: &[Shape], _rows: usize) -> Box<dyn Kernel<T>> {
        let repeats = inputs[0].size() / self.in_features;
        Box::new(Product {
            of: self.clone(),
            repeats,
            activation: None,
        })
    }

    fn told(&self) -> String {
        let bias = if self.bias { "" } else { ", bias=False" };
        format!("Linear({}, {}{bias})", self.in_features, self.out_features)
    }
}

struct Product {
    of: Linear,
    /// How many vectors a row has.
    repeats: usize,
    activation: Option<Activation>,
}

impl<T: Real> Kernel<T> for Product {
    fn fuse(&mut self, activation: Activation) -> bool {
        self.activation = Some(activation);
        true
    }

    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError> {
        let (rows, ins, outs) = (at.rows * self.repeats, self.of.in_features, self.of.out_features);
        let input = Matrix::new(at.inputs[0], rows, ins);
        let weight = Matrix::new(at.parameters[0], outs, ins);
        multiply(input, weight.turned(), false, at.output, outs, at.threads);
        if let Some(bias) = at.parameters.get(1) {
            wide_loop(|| {
                for row in at.output.chunks_exact_mut(outs) {
                    for (value, bias) in row.iter_mut().zip(*bias) {
                        *value += *bias;
                    }
                }
            });
        }
        if let Some(activation) = self.activation {
            activation.apply(at.output);
        }
        Ok(())
    }

    fn backward(&mut self, at: Backward<'_, T>) {
        let (rows, ins, outs) = (at.rows * self.repeats, self.of.in_features, self.of.out_features);
        if let Some(activation) = self.activation {
            activation.back(at.output, at.d_output);
        }
        let errors = Matrix::new(at.d_output, rows, outs);
        if let Some((d_weight, d_bias)) = at.d_parameters.split_first_mut() {
            multiply(
                errors.turned(),
                Matrix::new(at.inputs[0], rows, ins),
                true,
                d_weight,
                ins,
                at.threads,
            );
            if let Some(d_bias) = d_bias.first_mut() {
                wide_loop(|| {
                    for row in at.d_output.chunks_exact(outs) {
                        for (sum, error) in d_bias.iter_mut().zip(row) {
                            *sum += *error;
                        }
                    }
                });
            }
        }
        if let Some(d_input) = &mut at.d_inputs[0] {
            multiply(
                errors,
                Matrix::new(at.parameters[0], outs, ins),
                false,
                d_input,
                ins,
                at.threads,
            );
        }
    }
}
