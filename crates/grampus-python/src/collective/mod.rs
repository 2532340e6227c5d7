//! Groups of processes for Python buffers.

mod buffer;
mod error;
mod group;
mod handle;
mod lobby;

pub(crate) use buffer::{Buffer, RawBytes, Use};
pub(crate) use error::{CallMismatch, CollectiveError, PeerLost, raise};
pub(crate) use group::{Group, SharedMemory, array_interface, check_buffers};
pub(crate) use handle::{Handle, interruptible};
pub(crate) use lobby::{Lobby, meet_ranks};
