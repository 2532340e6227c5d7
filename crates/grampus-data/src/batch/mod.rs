//! Rows of tables as a model takes them: packed, row behind row, and gathered into batches.

mod buffer;
mod output;
mod pack;
mod step;
mod values;

pub use buffer::{Buffer, Spare};
pub use output::{Column, Kind, Output};
pub use pack::{Bad, Images, Matrix, Packed, Stored, pack};
pub use step::{Classes, Pad, Step};
