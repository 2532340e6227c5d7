//! The `grampus` command.

/// Runs the command; returns its exit code.
pub fn main(_arguments: Vec<String>, _python: Option<String>) -> i32 {
    2
}
