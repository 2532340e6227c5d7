//! Collectives between threads of one process, against plain serial loops.
//!
//! One binary for all: forming groups is what takes the time, not the tests' number.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod lanes;
mod misuse;
mod moves;
mod reduces;
mod sequences;
#[path = "../support/mod.rs"]
mod support;
