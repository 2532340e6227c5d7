//! Vectors for numbers.

use serde::{Deserialize, Serialize};

use crate::description::{Describe, Start, Tensor};
use crate::error::NativeError;
use crate::kernel::{Backward, Forward, Kernel};
use crate::real::Real;
use crate::shape::Shape;

/// A vector for each of some whole numbers, as words of a vocabulary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Embedding {
    /// How many numbers there are, from zero on.
    pub count: usize,
    /// Length of the vectors.
    pub size: usize,
    /// A number whose vector is zero and is not trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub padding: Option<usize>,
}

impl Embedding {
    /// For so many numbers, vectors of this length.
    pub fn new(count: usize, size: usize) -> Self {
        Self {
            count,
            size,
            padding: None,
        }
    }

    /// With a number whose vector is zero and is not trained.
    pub fn padding(self, number: usize) -> Self {
        Self {
            padding: Some(number),
            ..self
        }
    }
}

impl Describe for Embedding {
    fn check(&self) -> Result<(), String> {
        // What single precision can count.
        if self.count == 0 || self.size == 0 || self.count > 1 << 24 {
            return Err("needs from 1 to 16,777,216 numbers, and vectors of at least one".into());
        }
        match self.padding {
            Some(padding) if padding >= self.count => Err(format!(
                "padding={padding} is none of the numbers from 0 to {}",
                self.count - 1
            )),
            _ => Ok(()),
        }
    }

    fn parameters(&self) -> Vec<Tensor> {
        vec![Tensor::new("weight", [self.count, self.size], Start::Normal(1.0))]
    }

    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        Ok(Shape([inputs[0].axes(), &[self.size]].concat()))
    }

    fn kernel<T: Real>(&self, inputs: &[Shape], _rows: usize) -> Box<dyn Kernel<T>> {
        Box::new(Lookup {
            of: self.clone(),
            per_row: inputs[0].size(),
        })
    }

    fn told(&self) -> String {
        format!("Embedding({}, {})", self.count, self.size)
    }
}

struct Lookup {
    of: Embedding,
    per_row: usize,
}

impl<T: Real> Kernel<T> for Lookup {
    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError> {
        let lines = at.output.chunks_exact_mut(self.of.size);
        for (place, (line, number)) in lines.zip(at.inputs[0]).enumerate() {
            let value = number.wide();
            if !(value >= 0.0 && value < self.of.count as f64 && value.fract() == 0.0) {
                return Err(NativeError::Row {
                    row: place / self.per_row.max(1),
                    reason: format!(
                        "Embedding has vectors for 0 to {}, and {value} came in",
                        self.of.count - 1
                    ),
                });
            }
            let index = value as usize;
            if self.of.padding == Some(index) {
                line.fill(T::zero());
            } else {
                line.copy_from_slice(&at.parameters[0][index * self.of.size..][..self.of.size]);
            }
        }
        Ok(())
    }

    fn backward(&mut self, at: Backward<'_, T>) {
        for (line, number) in at.d_output.chunks_exact(self.of.size).zip(at.inputs[0]) {
            let index = number.wide() as usize;
            if self.of.padding == Some(index) {
                continue;
            }
            let into = &mut at.d_parameters[0][index * self.of.size..][..self.of.size];
            for (into, error) in into.iter_mut().zip(line) {
                *into += *error;
            }
        }
        // Numbers that are counted have no gradient.
        if let Some(d_input) = &mut at.d_inputs[0] {
            d_input.fill(T::zero());
        }
    }
}
