//! What a layer says about itself before it has any numbers.

use crate::activation::Activation;
use crate::kernel::Kernel;
use crate::real::Real;
use crate::shape::Shape;

/// How the first values of a tensor are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Start {
    /// All the same.
    Constant(f64),
    /// Evenly between minus this and this.
    Uniform(f64),
    /// Normally, with this deviation around zero.
    Normal(f64),
}

/// A tensor that a layer owns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    /// What it is called in the layer: `weight`.
    pub(crate) name: &'static str,
    pub(crate) shape: Vec<usize>,
    pub(crate) start: Start,
}

impl Tensor {
    pub(crate) fn new(name: &'static str, shape: impl Into<Vec<usize>>, start: Start) -> Self {
        Self {
            name,
            shape: shape.into(),
            start,
        }
    }
}

/// A kind of layer with its settings.
pub(crate) trait Describe {
    /// How many inputs it takes: at least, and at most.
    fn takes(&self) -> (usize, usize) {
        (1, 1)
    }

    /// Why its settings cannot be, if they cannot.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// What is trained.
    fn parameters(&self) -> Vec<Tensor> {
        Vec::new()
    }

    /// What is kept with the model and not trained.
    fn buffers(&self) -> Vec<Tensor> {
        Vec::new()
    }

    /// The shape of its output for inputs of these shapes, as many as it takes; or what it needs.
    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String>;

    /// What computes it, for inputs of these shapes, which it takes; `rows` is how many there will usually be at once.
    fn kernel<T: Real>(&self, inputs: &[Shape], rows: usize) -> Box<dyn Kernel<T>>;

    /// How it is written: `Linear(784, 512)`.
    fn told(&self) -> String;

    /// The activation that it is, where another layer can take it over.
    fn activation(&self) -> Option<Activation> {
        None
    }

    /// Whether it only gives the same numbers another shape.
    fn only_renames(&self) -> bool {
        false
    }
}
