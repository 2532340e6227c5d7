//! The slots of all ranks in the present turn, and the way to other hosts.

use super::Place;
use crate::CollectiveError;
use crate::across::{Post, Topology};
use crate::call::Call;
use crate::shared::Segment;

/// What of its slot a member has written for the others in this turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    /// So many bytes from the start, for all.
    Front(usize),
    /// A part for each rank, `stride` bytes apart, of which `used` are written by those who have any.
    Parts { stride: usize, used: usize, mine: bool },
}

impl Posted {
    pub const NOTHING: Self = Self::Front(0);
}

/// What a step works with.
pub(crate) struct Deck<'a> {
    /// The memory.
    pub segment: &'a Segment,
    /// Who is where.
    pub topology: &'a Topology,
    /// The connections with other hosts.
    pub post: &'a mut Post,
    /// This member's buffer lies in the arena.
    pub is_placed: bool,
    /// The call that this belongs to.
    pub call: &'a Call,
    /// Ranks of the group.
    pub ranks: usize,
    /// This member's rank.
    pub me: usize,
    /// Up to this many bytes of all ranks together, everyone sums for itself.
    pub flat: usize,
    /// Phase at which all have met last.
    pub phase: u32,
    /// Turns begun so far.
    pub turn: &'a mut usize,
    /// What goes to other hosts at the next meeting.
    pub posted: &'a mut Posted,
}

impl Deck<'_> {
    /// Begins a turn: from here on slots are the other ones, and free to write. `posted` is what will be written.
    pub fn turn_over(&mut self, posted: Posted) {
        *self.turn += 1;
        *self.posted = posted;
    }

    /// Bytes of a slot.
    pub fn room(&self) -> usize {
        self.segment.layout().slot_bytes()
    }

    /// The slot of a rank.
    pub fn slot(&self, rank: usize) -> *mut u8 {
        self.segment.slot(rank, *self.turn)
    }

    /// Where the buffer of a rank of this host lies in the arena, if it does, as it said at the last meeting.
    pub fn placed(&self, rank: usize, len: usize) -> Result<Option<Place>, CollectiveError> {
        let line = self.segment.line(self.topology.seat(rank), self.phase);
        match line.place() {
            Some(offset) => Ok(self.segment.arena()?.at(offset, len).map(Place)),
            None => Ok(None),
        }
    }
}
