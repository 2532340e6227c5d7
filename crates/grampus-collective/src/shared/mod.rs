//! Memory that the members of a group on one host share.

mod arena;
mod fault;
mod fork;
mod futex;
mod layout;
mod line;
#[cfg(test)]
mod model;
mod presence;
mod segment;
pub mod word;

pub(crate) use arena::Arena;
pub(crate) use layout::{Layout, skew};
pub(crate) use segment::{Segment, monotonic};
