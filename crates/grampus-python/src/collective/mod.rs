//! Groups of processes for Python buffers.

mod buffer;
mod error;
mod group;
mod handle;
mod lobby;

pub(crate) use buffer::RawBytes;
pub(crate) use error::{CallMismatch, CollectiveError, PeerLost};
pub(crate) use group::{Group, SharedMemory, check_buffers};
pub(crate) use handle::Handle;
pub(crate) use lobby::Lobby;
