//! What a Rust user imports, and the `grampus` command.

pub mod cli;

pub use grampus_collective as collective;
pub use grampus_data as data;
pub use grampus_train as train;
