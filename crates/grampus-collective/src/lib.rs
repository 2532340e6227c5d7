//! Reduce, gather, broadcast and the rest over a group of processes. Owns the numerics of Grampus.

mod across;
mod call;
mod element;
mod error;
mod exchange;
mod group;
pub mod numerics;
mod request;
mod settings;
mod shared;

pub use call::{Call, Kind, Said};
pub use element::Element;
pub use error::{CollectiveError, Loss};
pub use group::{Card, Group, GroupId, Handle, Letter, Lobby, RawHandle, SharedBuffer, SharedBytes};
pub use numerics::{DType, Op};
pub use request::{RawPart, Request};
pub use settings::Settings;
