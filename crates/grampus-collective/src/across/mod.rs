//! Between hosts: who speaks with whom, and the bytes on their way.

mod head;
mod post;
mod topology;

pub(crate) use head::{Head, Kind as MessageKind};
pub(crate) use post::{Expect, Post, Stream, Trouble};
pub(crate) use topology::Topology;
