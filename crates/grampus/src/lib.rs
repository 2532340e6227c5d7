//! What a Rust user imports, and the `grampus` command.

pub mod cli;
