//! The same numbers in another shape or order.

use serde::{Deserialize, Serialize};

use crate::description::Describe;
use crate::error::NativeError;
use crate::kernel::{Backward, Forward, Kernel};
use crate::real::Real;
use crate::shape::Shape;

/// All axes of a row in one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flatten;

impl Describe for Flatten {
    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        Ok(Shape::from([inputs[0].size()]))
    }

    fn kernel<T: Real>(&self, _inputs: &[Shape], _rows: usize) -> Box<dyn Kernel<T>> {
        Box::new(Same)
    }

    fn told(&self) -> String {
        "Flatten()".into()
    }

    fn only_renames(&self) -> bool {
        true
    }
}

/// Other lengths of the axes of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reshape {
    /// The lengths; one of them may be -1, which is what is left.
    pub shape: Vec<isize>,
}

impl Reshape {
    /// To these lengths, of which one may be -1.
    pub fn new(shape: impl Into<Vec<isize>>) -> Self {
        Self { shape: shape.into() }
    }
}

impl Describe for Reshape {
    fn check(&self) -> Result<(), String> {
        let open = self.shape.iter().filter(|axis| **axis == -1).count();
        match open > 1 || self.shape.iter().any(|axis| *axis < -1) {
            true => Err("takes lengths from zero on, and -1 at most once".into()),
            false => Ok(()),
        }
    }

    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        let whole = inputs[0].size();
        let known: usize = self
            .shape
            .iter()
            .filter(|axis| **axis >= 0)
            .map(|axis| *axis as usize)
            .product();
        let rest = whole.checked_div(known).unwrap_or(0);
        let axes = self
            .shape
            .iter()
            .map(|axis| if *axis < 0 { rest } else { *axis as usize });
        let made = Shape(axes.collect());
        match made.size() == whole {
            true => Ok(made),
            false => Err(format!("cannot give {} the shape {:?}", inputs[0], self.shape)),
        }
    }

    fn kernel<T: Real>(&self, _inputs: &[Shape], _rows: usize) -> Box<dyn Kernel<T>> {
        Box::new(Same)
    }

    fn told(&self) -> String {
        format!("Reshape({:?})", self.shape)
    }

    fn only_renames(&self) -> bool {
        true
    }
}

/// Gives what it gets.
struct Same;

impl<T: Real> Kernel<T> for Same {
    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError> {
        at.output.copy_from_slice(at.inputs[0]);
        Ok(())
    }

    fn backward(&mut self, at: Backward<'_, T>) {
        if let Some(d_input) = &mut at.d_inputs[0] {
            d_input.copy_from_slice(at.d_output);
        }
    }
}

/// The axes of a row in another order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Permute {
    /// Which axis comes first, which second, and so on.
    pub axes: Vec<usize>,
}

impl Permute {
    /// In this order.
    pub fn new(axes: impl Into<Vec<usize>>) -> Self {
        Self { axes: axes.into() }
    }
}

impl Describe for Permute {
    fn check(&self) -> Result<(), String> {
        let mut sorted = self.axes.clone();
        sorted.sort_unstable();
        match sorted.into_iter().eq(0..self.axes.len()) {
            true => Ok(()),
            false => Err("takes each axis from 0 on once".into()),
        }
    }

    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        let axes = inputs[0].axes();
        match axes.len() == self.axes.len() {
            true => Ok(Shape(self.axes.iter().map(|axis| axes[*axis]).collect())),
            false => Err(format!(
                "orders {} axes, and {} came in",
                self.axes.len(),
                inputs[0]
            )),
        }
    }

    fn kernel<T: Real>(&self, inputs: &[Shape], _rows: usize) -> Box<dyn Kernel<T>> {
        let axes = inputs[0].axes();
        let steps: Vec<usize> = (0..axes.len())
            .map(|axis| axes[axis + 1..].iter().product())
            .collect();
        // For each number that comes out, which one it was.
        let mut from = vec![0];
        for axis in &self.axes {
            from = from
                .iter()
                .flat_map(|at| (0..axes[*axis]).map(move |index| (at, index)))
                .map(|(at, index)| at + index * steps[*axis])
                .collect();
        }
        Box::new(Ordered { from })
    }

    fn told(&self) -> String {
        format!("Permute({:?})", self.axes)
    }
}

struct Ordered {
    from: Vec<usize>,
}

impl<T: Real> Kernel<T> for Ordered {
    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError> {
        let width = self.from.len();
        for (output, input) in at
            .output
            .chunks_exact_mut(width)
            .zip(at.inputs[0].chunks_exact(width))
        {
            for (output, from) in output.iter_mut().zip(&self.from) {
                *output = input[*from];
            }
        }
        Ok(())
    }

    fn backward(&mut self, at: Backward<'_, T>) {
        let width = self.from.len();
        let Some(d_input) = &mut at.d_inputs[0] else {
            return;
        };
        for (target, errors) in d_input
            .chunks_exact_mut(width)
            .zip(at.d_output.chunks_exact(width))
        {
            for (error, from) in errors.iter().zip(&self.from) {
                target[*from] = *error;
            }
        }
    }
}
