//! `grampus logs`.

use clap::Args;

#[derive(Args)]
pub(super) struct LogsArguments {}

pub(super) fn main(_arguments: &LogsArguments) -> i32 {
    super::fail("not here yet")
}
