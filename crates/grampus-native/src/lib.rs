//! Layers, losses and optimizers in plain Rust: models that need no framework.
//!
//! A [`Model`] is a description, a graph of named layers. A [`Network`] has the numbers: parameters one behind the other in one
//! piece of memory, and gradients in the same places, so that they are summed between workers as they lie.

mod activation;
mod description;
mod error;
mod kernel;
mod kernels;
pub mod layers;
mod losses;
mod matmul;
mod model;
mod network;
pub mod optim;
mod plan;
mod real;
pub mod schedule;
mod shape;
mod summary;
mod weights;

pub use error::NativeError;
pub use losses::{CrossEntropy, Judged, Loss};
pub use model::{Model, Node, Sequential};
pub use network::{Network, Placed, Rows};
pub use real::Real;
pub use shape::Shape;
