//! Several inputs in one.

use serde::{Deserialize, Serialize};

use crate::activation::Activation;
use crate::description::Describe;
use crate::error::NativeError;
use crate::kernel::{Backward, Forward, Kernel};
use crate::layers::smooth::place;
use crate::real::{Real, wide_loop};
use crate::shape::Shape;

/// The sum of all inputs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Add;

/// The product of all inputs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Multiply;

/// All inputs one behind the other along an axis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Concat {
    /// Which axis of a row; counted from the last where below zero; the first by default.
    pub axis: isize,
}

/// The shape that all inputs have.
fn common(inputs: &[Shape]) -> Result<Shape, String> {
    match inputs.iter().find(|shape| **shape != inputs[0]) {
        None => Ok(inputs[0].clone()),
        Some(other) => Err(format!(
            "needs inputs of one shape, and {} and {other} came in",
            inputs[0]
        )),
    }
}

macro_rules! merge {
    ($kind:ident, $kernel:expr) => {
        impl Describe for $kind {
            fn takes(&self) -> (usize, usize) {
                (2, usize::MAX)
            }

            fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
                common(inputs)
            }

            fn kernel<T: Real>(&self, _inputs: &[Shape], _rows: usize) -> Box<dyn Kernel<T>> {
                Box::new($kernel)
            }

            fn told(&self) -> String {
                concat!(stringify!($kind), "()").into()
            }
        }
    };
}

merge!(Add, Sum { activation: None });
merge!(Multiply, Product);

struct Sum {
    activation: Option<Activation>,
}

impl<T: Real> Kernel<T> for Sum {
    fn fuse(&mut self, activation: Activation) -> bool {
        self.activation = Some(activation);
        true
    }

    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError> {
        at.output.copy_from_slice(at.inputs[0]);
        for input in &at.inputs[1..] {
            wide_loop(|| {
                for (sum, value) in at.output.iter_mut().zip(*input) {
                    *sum += *value;
                }
            });
        }
        if let Some(activation) = self.activation {
            activation.apply(at.output);
        }
        Ok(())
    }

    fn backward(&mut self, at: Backward<'_, T>) {
        if let Some(activation) = self.activation {
            activation.back(at.output, at.d_output);
        }
        for d_input in at.d_inputs.iter_mut().flatten() {
            d_input.copy_from_slice(at.d_output);
        }
    }
}

struct Product;

impl<T: Real> Kernel<T> for Product {
    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError> {
        at.output.copy_from_slice(at.inputs[0]);
        for input in &at.inputs[1..] {
            for (product, value) in at.output.iter_mut().zip(*input) {
                *product *= *value;
            }
        }
        Ok(())
    }

    fn backward(&mut self, at: Backward<'_, T>) {
        for (own, d_input) in at.d_inputs.iter_mut().enumerate() {
            let Some(d_input) = d_input else { continue };
            d_input.copy_from_slice(at.d_output);
            // Not the output divided by the input, which may be zero.
            let others = at.inputs.iter().enumerate().filter(|(place, _)| *place != own);
            for (_, input) in others {
                for (target, value) in d_input.iter_mut().zip(*input) {
                    *target *= *value;
                }
            }
        }
    }
}

impl Describe for Concat {
    fn takes(&self) -> (usize, usize) {
        (2, usize::MAX)
    }

    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        let axis = place(self.axis, &inputs[0])?;
        let mut made = inputs[0].clone();
        for other in &inputs[1..] {
            let mut same = other.clone();
            if other.axes().len() == made.axes().len() {
                same.0[axis] = made.0[axis];
            }
            if same != made {
                return Err(format!(
                    "needs inputs that differ only along axis {axis}, and {} and {other} came in",
                    inputs[0]
                ));
            }
            made.0[axis] += other.0[axis];
        }
        Ok(made)
    }

    fn kernel<T: Real>(&self, inputs: &[Shape], _rows: usize) -> Box<dyn Kernel<T>> {
        let axis = place(self.axis, &inputs[0]).unwrap_or(0);
        let widths = inputs.iter().map(|shape| shape.axes()[axis..].iter().product());
        Box::new(Behind {
            widths: widths.collect(),
        })
    }

    fn told(&self) -> String {
        format!("Concat({})", self.axis)
    }
}

struct Behind {
    /// Numbers that come from each input in turn.
    widths: Vec<usize>,
}

impl<T: Real> Kernel<T> for Behind {
    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError> {
        let whole: usize = self.widths.iter().sum();
        let mut start = 0;
        for (input, width) in at.inputs.iter().zip(&self.widths) {
            for (output, input) in at.output.chunks_exact_mut(whole).zip(input.chunks_exact(*width)) {
                output[start..start + width].copy_from_slice(input);
            }
            start += width;
        }
        Ok(())
    }

    fn backward(&mut self, at: Backward<'_, T>) {
        let whole: usize = self.widths.iter().sum();
        let mut start = 0;
        for (d_input, width) in at.d_inputs.iter_mut().zip(&self.widths) {
            if let Some(d_input) = d_input {
                for (target, errors) in d_input
                    .chunks_exact_mut(*width)
                    .zip(at.d_output.chunks_exact(whole))
                {
                    target.copy_from_slice(&errors[start..start + width]);
                }
            }
            start += width;
        }
    }
}
