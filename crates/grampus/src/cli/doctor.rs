//! `grampus doctor`.

use clap::Args;

#[derive(Args)]
pub(super) struct DoctorArguments {}

pub(super) fn main(_arguments: &DoctorArguments, _python: Option<String>) -> i32 {
    super::fail("not here yet")
}
