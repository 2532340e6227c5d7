//! Reduce, gather, broadcast and the rest over a group of processes. Owns the numerics of Grampus.
//!
//! Each process opens a [`Lobby`] and gives its [`Card`] to the others, by whatever brings them together; with all cards
//! they form a [`Group`]. Here two threads stand for two processes:
//!
//! ```
//! use std::net::Ipv4Addr;
//!
//! use grampus_collective::{Card, GroupId, Lobby, Op, Settings};
//! use grampus_core::{JobId, JobKey};
//!
//! let key = JobKey::from_bytes([7; 32]); // random, in earnest
//! let open = || Lobby::open(JobId(1), key.clone(), "this-host", Ipv4Addr::LOCALHOST.into());
//! let lobbies = [open()?, open()?];
//! let cards: Vec<Card> = lobbies.iter().map(|lobby| lobby.card().clone()).collect();
//! let id = GroupId { name: "world".into(), generation: 1 };
//! let work = |rank: usize| {
//!     let group = lobbies[rank].form(&id, rank, &cards, &Settings::default())?;
//!     let mut gradient = [rank as f32 + 1.0; 3];
//!     group.all_reduce(&mut gradient, Op::Mean)?;
//!     Ok::<_, grampus_collective::CollectiveError>(gradient)
//! };
//! let (first, second) = std::thread::scope(|scope| {
//!     let other = scope.spawn(|| work(1));
//!     (work(0), other.join().unwrap())
//! });
//! assert_eq!((first?, second?), ([1.5; 3], [1.5; 3]));
//! # Ok::<(), grampus_collective::CollectiveError>(())
//! ```

mod across;
mod call;
mod element;
mod error;
mod exchange;
mod group;
pub mod numerics;
mod overlap;
mod request;
mod settings;
mod shared;

pub use call::{Call, Kind, Said};
pub use element::{Element, bytes_of};
pub use error::{CollectiveError, Loss};
pub use group::{
    Card, Group, GroupId, Handle, Hope, Letter, Lobby, Losses, Notice, RawHandle, SharedBuffer, SharedBytes,
    Way,
};
pub use numerics::{DType, Op};
pub use request::{RawPart, Request};
pub use settings::Settings;
