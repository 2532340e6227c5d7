//! Frames between two named peers, over memory, a Unix socket or TCP, and bulk bytes over TCP ([`Wire`]). The only crate
//! of Grampus with sockets.
//!
//! Invariants; tests cite them by id:
//! - `NET-1` Nothing a peer sends is parsed beyond the fixed-size messages of [`handshake`] before it has proved the
//!   job key; a name is read after the proof.
//! - `NET-2` Every read and write ends by a deadline of [`Limits`]. The one exception is [`Receiver::recv`] before the
//!   first byte of a frame: how long a peer may be silent is for heartbeats to decide. No call on a [`Wire`] waits, and
//!   [`wait_ready`] has a deadline; for the same reason the kernel sets a wire none.
//! - `NET-3` A length that a peer announces is compared with [`Limits`] before memory is taken for it.
//! - `NET-4` What a Unix peer passes as memory can never shrink under a mapping: its size is sealed, or it is refused.
//! - `NET-5` Descriptors that no frame asked for are closed, and end the link.
//! - `NET-6` TCP is under mutual TLS from the first byte, with an authority derived from the job key. The one exception
//!   is a [`Wire`] that both sides ask for as [`Security::Plain`]: there the peers only prove the key. Sides that
//!   disagree are told so, and nothing is sent.
//! - `NET-7` That two peers share a host is said only after a descriptor went from one to the other.
//! - `NET-8` What a sealed [`Wire`] gives is what the peer sent, in order and from the first byte on; a byte that was
//!   changed, left out or repeated on the way is an error, and so is an end that the peer did not announce.

mod arrivals;
mod connect;
mod decoder;
mod error;
mod frame;
mod greeting;
pub mod handover;
pub mod handshake;
mod hidden;
mod limits;
mod link;
mod listen;
mod local;
pub mod pipe;
mod port;
mod private;
pub mod probe;
mod proof;
mod region;
mod secret;
mod stream;
mod tcp;
mod tls;
mod traffic;
mod unix;
mod wire;

pub use connect::{connect, connect_to};
pub use error::{ErrorKind, NetError};
pub use frame::Frame;
pub use limits::Limits;
pub use link::{Link, Peer, Receiver, Sender, TransportKind};
pub use listen::{Incoming, Listener};
pub use local::{memory_pair, memory_pair_with};
pub use port::{Reservation, local_address_for, local_address_towards};
pub use private::private_dir;
pub use region::Memory;
pub use secret::{derive_job, random_job, random_key};
pub use wire::{Bell, Ready, Security, Wire, connect_wire, wait_ready};

#[cfg(test)]
mod tests;
