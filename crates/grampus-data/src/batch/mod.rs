//! Rows of tables as a model takes them: packed, row behind row, and gathered into batches.

mod buffer;
mod columns;
mod matrix;
mod output;
mod pack;
mod room;
mod step;
mod values;
mod vectors;

pub use buffer::{Buffer, Spare};
pub use columns::Columns;
pub use matrix::Matrix;
pub use output::{Column, Kind, Output};
pub use pack::{Bad, Images, Packed, Stored, pack};
pub use step::{Classes, Pad, Step};
pub use vectors::Vectors;
#[cfg(test)]
pub(crate) use vectors::tests::column as vector_column;
