//! What keepers, the hub, and those who bring and fetch rows say to each other.

use std::time::Duration;

use grampus_core::{Address, JoinString};
use grampus_net::{Limits, NetError, derive_job};
use serde::{Deserialize, Serialize};

use super::layout::Layout;
use crate::batch::Kind;

/// What a hub is called.
pub(super) const HUB: &str = "hub";
/// What all keepers are called; the address tells them apart.
pub(super) const KEEPER: &str = "keeper";
/// Rows of a batch that a keeper gives out at once.
const ROWS: usize = 1 << 30;

/// A keeper, as others find it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Card {
    /// Tells it from all others.
    pub id: u64,
    /// Its process.
    pub pid: u32,
    /// Name of its host, for people.
    pub host: String,
    /// Name of its socket for processes of its host.
    pub hidden: String,
    /// Where others reach it.
    pub address: String,
}

/// What one array of rows is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Form {
    /// What its numbers are.
    pub kind: Kind,
    /// Numbers of a row along each axis.
    pub shape: Vec<usize>,
}

/// What was deposited of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The partition.
    pub partition: u64,
    /// Tells this deposit from others of the same partition.
    pub deposit: u64,
    /// How many rows there are.
    pub rows: u64,
    /// Rows of each block, in order.
    pub blocks: Vec<u64>,
    /// Rows that must not be used.
    pub bad: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// Of all that was written, in 32 hexadecimal digits: rows that are the same have the same, however they were cut.
    pub digest: String,
    /// One for each array; none where there are no rows.
    pub forms: Vec<Form>,
    /// Who holds them.
    pub keeper: Card,
}

/// What a keeper hears.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToKeeper {
    /// A block, which is the frame's memory.
    Put { deposit: u64, layout: Layout },
    /// No more blocks come.
    Done { deposit: u64 },
    /// All blocks of some deposits.
    Open { deposits: Vec<u64> },
    /// Rows of blocks.
    Rows { ask: u64, picks: Vec<Pick> },
}

/// Rows of one block.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Pick {
    pub deposit: u64,
    pub block: usize,
    pub rows: Vec<u32>,
}

/// What a keeper says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromKeeper {
    /// A deposit is whole.
    Stored(Card),
    /// It cannot be done; nothing more comes.
    Refused { why: String },
    /// A block of a deposit; where the other shares the host and the block is in memory, this is the frame's.
    Block { deposit: u64, layout: Layout },
    /// All blocks of one deposit were told.
    Opened { deposit: u64 },
    /// A deposit that is not there.
    Missing { deposit: u64 },
    /// Rows, one part for each array of numbers and two for each of files.
    Rows { ask: u64 },
}

/// What the hub hears.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToHub {
    Hello(Card),
    Alive,
}

/// What the hub says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromHub {
    Welcome,
    Alive,
    /// Of all deposits that are whole, these count.
    Keep {
        deposits: Vec<u64>,
    },
    End,
}

/// Limits of links over which rows go, and on which nobody waits for longer.
pub(super) fn limits(wait: Duration) -> Limits {
    Limits {
        body: 64 << 20,
        parts: ROWS,
        io: wait,
        ..Limits::default()
    }
}

/// The name of the socket of the keeper that watches a process. Nobody guesses it who does not know the key. `space` tells processes
/// with the same number apart, where several see only some of a host's.
pub fn hidden_name(join: &JoinString, watched: u32, space: u64) -> Result<String, NetError> {
    let (name, _) = derive_job(&join.key, &format!("keeper {space} {watched}"))?;
    Ok(format!("grampus-keeper-{name}"))
}

/// The way to a keeper on this host.
pub(super) fn near(join: &JoinString, hidden: &str) -> JoinString {
    JoinString {
        address: Address::Abstract(hidden.to_owned()),
        ..join.clone()
    }
}
