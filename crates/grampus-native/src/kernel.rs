//! What a layer does with numbers.

use crate::activation::Activation;
use crate::error::NativeError;
use crate::real::Real;

/// What goes through a layer from its inputs to its output.
pub(crate) struct Forward<'a, T> {
    /// How many rows.
    pub(crate) rows: usize,
    /// What comes in, one row behind the other.
    pub(crate) inputs: &'a [&'a [T]],
    /// Its parameters, in the order in which it names them.
    pub(crate) parameters: &'a [&'a [T]],
    /// What it keeps beside them, such as running means.
    pub(crate) buffers: &'a mut [&'a mut [T]],
    /// What comes out; the layer writes all of it.
    pub(crate) output: &'a mut [T],
    /// Whether the model is trained: then the layer keeps what its way back needs.
    pub(crate) trains: bool,
    /// What random numbers are drawn from, different for every layer and step.
    pub(crate) seed: u64,
    /// Threads that it may use.
    pub(crate) threads: usize,
}

/// What goes back through a layer: from the gradient of its output to those of its inputs and parameters.
pub(crate) struct Backward<'a, T> {
    /// How many rows.
    pub(crate) rows: usize,
    /// What came in.
    pub(crate) inputs: &'a [&'a [T]],
    /// Its parameters.
    pub(crate) parameters: &'a [&'a [T]],
    /// What came out.
    pub(crate) output: &'a [T],
    /// The gradient of what came out; the layer may use its memory.
    pub(crate) d_output: &'a mut [T],
    /// The gradients of what came in, where they are wanted; the layer writes all of them.
    pub(crate) d_inputs: &'a mut [Option<&'a mut [T]>],
    /// The gradients of its parameters, to which it adds.
    pub(crate) d_parameters: &'a mut [&'a mut [T]],
    /// Threads that it may use.
    pub(crate) threads: usize,
}

/// A layer for rows of one shape, with whatever it keeps from its way forth for its way back.
pub(crate) trait Kernel<T: Real>: Send {
    /// Takes over the activation that follows it; false where it cannot.
    fn fuse(&mut self, _activation: Activation) -> bool {
        false
    }

    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError>;

    /// Follows a `forward` that trained, with the same rows.
    fn backward(&mut self, at: Backward<'_, T>);
}
