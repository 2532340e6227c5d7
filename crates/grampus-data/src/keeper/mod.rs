//! Packed rows that stay on the machines where an engine read them, until workers have trained on them.
//!
//! Whoever reads a partition of a frame packs it into sealed memory ([`Deposit`]) and hands that to the keeper of its executor
//! ([`keep`]), a small process that holds blocks and gives out rows. Workers read any rows of all keepers ([`Kept`]): where they
//! share a host with the keeper they map its memory, else they ask it for the rows that they need. The driver's [`Hub`] knows
//! which keepers live, and ends them.
//!
//! What holds:
//! - A keeper ends when its executor does, when its link to the hub ends or falls silent, and when it is told to. It owns
//!   nothing that has a name, so nothing is left of it.
//! - A block is written once, by the process that packs it. It is handed over as a descriptor, and never copied while it
//!   stays in memory.
//! - Of the deposits of one partition those count that the driver names; the others are dropped. What was cut off half way
//!   never counts.
//! - Every wait ends by a deadline, and a keeper that is gone is named with the partitions that it held.

mod deposit;
mod far;
mod hub;
mod layout;
mod message;
mod reader;
mod server;
mod store;
mod writer;

pub use deposit::Deposit;
pub use hub::{Hub, KeeperState, Setting};
pub use message::{Card, Form, Receipt, hidden_name};
pub use reader::{Held, Kept, Manifest};
pub use server::{Keeper, Started, keep};

#[cfg(test)]
mod tests;
