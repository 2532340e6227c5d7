//! Files and Arrow streams to tables, images and batches, in an order that is a formula.

mod error;
pub mod image;

pub use error::{DataError, Place};
