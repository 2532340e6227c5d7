//! Between hosts: who speaks with whom, and the bytes on their way.

mod control;
mod head;
mod health;
mod heartbeat;
mod post;
mod topology;

pub(crate) use control::ControlWire;
pub(crate) use head::{Head, Kind as MessageKind};
pub(crate) use health::PeerHealth;
pub(crate) use heartbeat::Heartbeat;
pub(crate) use post::{Expect, Post, Stream, Trouble, Waiting};
pub(crate) use topology::Topology;
