//! Files and Arrow streams to tables, images and batches, in an order that is a formula.

pub mod batch;
mod error;
pub mod image;
pub mod keeper;
pub mod loader;
mod parallel;
pub mod source;
pub mod table;

pub use error::{DataError, Place};
pub use table::Table;
