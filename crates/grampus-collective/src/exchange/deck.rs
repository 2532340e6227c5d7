//! The slots of all ranks in the present turn.

use crate::shared::Segment;

/// What a step works with.
pub(crate) struct Deck<'a> {
    /// The memory.
    pub segment: &'a Segment,
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
}

impl Deck<'_> {
    /// Begins a turn: from here on slots are the other ones, and free to write.
    pub fn turn_over(&mut self) {
        *self.turn += 1;
    }

    /// Bytes of a slot.
    pub fn room(&self) -> usize {
        self.segment.layout().slot_bytes()
    }

    /// The slot of a rank.
    pub fn slot(&self, rank: usize) -> *mut u8 {
        self.segment.slot(rank, *self.turn)
    }

    /// Where a rank's buffer lies in the arena, if it does, as it said at the last meeting.
    pub fn placed(&self, rank: usize, len: usize) -> Option<*mut u8> {
        let offset = self.segment.line(rank, self.phase).place()?;
        self.segment.arena().ok()?.at(offset, len)
    }
}
