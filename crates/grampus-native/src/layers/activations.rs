//! Functions of single numbers.

use serde::{Deserialize, Serialize};

use crate::activation::Activation;
use crate::description::Describe;
use crate::error::NativeError;
use crate::kernel::{Backward, Forward, Kernel};
use crate::real::Real;
use crate::shape::Shape;

/// Zero where it was below zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Relu;

/// Less steep below zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeakyRelu {
    /// How steep below zero; 0.01 by default.
    pub slope: f64,
}

impl Default for LeakyRelu {
    fn default() -> Self {
        Self { slope: 0.01 }
    }
}

/// `alpha * (exp(x) - 1)` below zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Elu {
    /// What it comes near to, with a minus; 1 by default.
    pub alpha: f64,
}

impl Default for Elu {
    fn default() -> Self {
        Self { alpha: 1.0 }
    }
}

/// Between zero and one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sigmoid;

/// Between minus one and one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tanh;

macro_rules! describe {
    ($kind:ident, |$this:ident| $activation:expr, $told:expr) => {
        impl Describe for $kind {
            fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
                Ok(inputs[0].clone())
            }

            fn kernel<T: Real>(&self, _inputs: &[Shape], _rows: usize) -> Box<dyn Kernel<T>> {
                let $this = self;
                Box::new(Each($activation))
            }

            fn activation(&self) -> Option<Activation> {
                let $this = self;
                Some($activation)
            }

            fn told(&self) -> String {
                let $this = self;
                $told
            }
        }
    };
}

describe!(Relu, |_this| Activation::Relu, "ReLU()".into());
describe!(
    LeakyRelu,
    |this| Activation::LeakyRelu(this.slope),
    format!("LeakyReLU({})", this.slope)
);
describe!(
    Elu,
    |this| Activation::Elu(this.alpha),
    format!("ELU({})", this.alpha)
);
describe!(Sigmoid, |_this| Activation::Sigmoid, "Sigmoid()".into());
describe!(Tanh, |_this| Activation::Tanh, "Tanh()".into());

struct Each(Activation);

impl<T: Real> Kernel<T> for Each {
    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError> {
        at.output.copy_from_slice(at.inputs[0]);
        self.0.apply(at.output);
        Ok(())
    }

    fn backward(&mut self, at: Backward<'_, T>) {
        self.0.back(at.output, at.d_output);
        if let Some(d_input) = &mut at.d_inputs[0] {
            d_input.copy_from_slice(at.d_output);
        }
    }
}
