//! Files and Arrow streams to tables, images and batches, in an order that is a formula.

mod error;
mod parallel;
pub mod source;
pub mod table;

pub use error::{DataError, Place};
pub use table::Table;
