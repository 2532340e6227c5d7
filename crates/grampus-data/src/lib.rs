//! Files and Arrow streams to tables, images and batches, in an order that is a formula.

pub mod batch;
mod error;
pub mod loader;

pub use error::{DataError, Place};
