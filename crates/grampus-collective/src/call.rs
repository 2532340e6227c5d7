//! What a member calls: compared with the calls of all others before any byte is used.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::numerics::{DType, Op};

/// The operations of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Kind {
    /// Everyone gets the sum.
    AllReduce = 1,
    /// Everyone gets the sum over lanes.
    AllReduceLanes,
    /// Each gets its part of the sum.
    ReduceScatter,
    /// Everyone gets everyone's part.
    AllGather,
    /// Everyone gets the root's.
    Broadcast,
    /// The root gets the sum.
    Reduce,
    /// The root gets everyone's part.
    Gather,
    /// Each gets its part of the root's.
    Scatter,
    /// Each gets its part of everyone's.
    AllToAll,
    /// Everyone waits for everyone.
    Barrier,
    /// Everyone gets the norm.
    Norm,
}

const KINDS: [Kind; 11] = [
    Kind::AllReduce,
    Kind::AllReduceLanes,
    Kind::ReduceScatter,
    Kind::AllGather,
    Kind::Broadcast,
    Kind::Reduce,
    Kind::Gather,
    Kind::Scatter,
    Kind::AllToAll,
    Kind::Barrier,
    Kind::Norm,
];

impl Kind {
    /// The operation of this number, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        KINDS.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// As users call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce | Self::AllReduceLanes => "all_reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllGather => "all_gather",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::AllToAll => "all_to_all",
            Self::Barrier => "barrier",
            Self::Norm => "norm",
        }
    }

    fn reduces(self) -> bool {
        matches!(
            self,
            Self::AllReduce | Self::AllReduceLanes | Self::ReduceScatter | Self::Reduce
        )
    }

    fn has_root(self) -> bool {
        matches!(
            self,
            Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter
        )
    }

    /// Parts may be of unequal size; their sizes are compared as one checksum.
    fn has_parts(self) -> bool {
        matches!(self, Self::AllGather | Self::Gather)
    }
}

/// One call as its caller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// What.
    pub kind: Kind,
    /// Type of the elements.
    pub dtype: DType,
    /// How elements are combined, where they are.
    pub op: Op,
    /// Elements that this member passes.
    pub count: u64,
    /// The root, where there is one.
    pub root: u32,
    /// Checksum of what else must be equal: the sizes of all parts.
    pub parts: u32,
    /// How many calls this member made on the group before.
    pub number: u64,
}

impl Call {
    /// The count of a member that takes part in a call over lanes and has none.
    pub(crate) const NO_LANES: u64 = u64::MAX;

    /// Whether two members mean the same.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        if self.count == Self::NO_LANES || other.count == Self::NO_LANES {
            // Without a lane there is no type either; the operation and its number must be equal.
            let bare = |call: &Self| (call.kind, call.op, call.number);
            return bare(self) == bare(other);
        }
        let counts = self.count == other.count || self.kind.has_parts() || self.kind == Kind::AllToAll;
        counts && Self { count: 0, ..*self } == Self { count: 0, ..*other }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            dtype,
            op,
            count,
            ..
        } = self;
        f.write_str(kind.name())?;
        if kind.reduces() {
            write!(f, "({op})")?;
        }
        if *count == Self::NO_LANES {
            return f.write_str(" without a lane");
        }
        if *kind != Kind::Barrier {
            write!(f, " of {count} {dtype}")?;
        }
        if *kind == Kind::AllReduceLanes {
            f.write_str(" in lanes")?;
        }
        if kind.has_root() {
            write!(f, " with root {}", self.root)?;
        }
        if kind.has_parts() {
            write!(f, " with parts {:08x}", self.parts)?;
        }
        Ok(())
    }
}

/// A call with the rank that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// Who.
    pub rank: u32,
    /// What.
    pub call: Call,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, call } = self;
        write!(f, "rank {rank} called {call} as its call {}", call.number)
    }
}

/// The first member that called something else than the first one, with what both called.
pub(crate) fn differing(calls: impl Iterator<Item = Said>) -> Option<(Said, Said)> {
    let mut calls = calls;
    let first = calls.next()?;
    calls
        .find(|said| !first.call.agrees(&said.call))
        .map(|second| (first, second))
}
