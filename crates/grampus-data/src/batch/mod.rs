//! Rows of tables as a model takes them: packed, row behind row, and gathered into batches.

mod buffer;
mod columns;
mod matrix;
mod output;
mod pack;
mod room;
mod step;
mod values;

pub use buffer::{Buffer, Spare};
pub use columns::Columns;
pub use matrix::Matrix;
pub use output::{Column, Kind, Output};
pub use pack::{Bad, Images, Packed, Stored, pack};
pub use step::{Classes, Pad, Step};
