//! `grampus status`.

use clap::Args;

#[derive(Args)]
pub(super) struct StatusArguments {}

pub(super) fn main(_arguments: &StatusArguments) -> i32 {
    super::fail("not here yet")
}
