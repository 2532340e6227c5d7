//! Rows of tables as a model takes them: packed, row behind row, and gathered into batches.

mod buffer;
mod output;
mod pack;

pub use buffer::{Buffer, Spare};
pub use output::{Kind, Output};
pub use pack::{Bad, Images, Matrix, Packed, Stored, pack};
