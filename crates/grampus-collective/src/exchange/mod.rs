//! The collectives themselves, each as steps between points where all members meet.
//!
//! A member writes only into its own slot, and reads another's only between two meetings. Slots are used in turn: what
//! was posted in one turn is overwritten two turns later, and everyone has met once more by then.

mod all_to_all;
mod barrier;
mod broadcast;
mod deck;
mod gather;
mod lanes;
mod norm;
mod reduce;
mod reduce_scatter;
mod scatter;
mod seal;
mod spread;

pub(crate) use all_to_all::AllToAll;
pub(crate) use barrier::Barrier;
pub(crate) use broadcast::Broadcast;
pub(crate) use deck::{Deck, Posted};
pub(crate) use gather::Gather;
pub(crate) use lanes::Lanes;
pub(crate) use norm::Norm;
pub(crate) use reduce::{Receivers, Reduce, Shape};
pub(crate) use reduce_scatter::ReduceScatter;
pub(crate) use scatter::Scatter;

use crate::CollectiveError;

/// One collective call on its way.
pub(crate) trait Exchange: Send {
    /// Goes on until all members must meet, or it is through.
    fn step(&mut self, deck: &mut Deck<'_>) -> Result<Step, CollectiveError>;
}

/// How far a step came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// All members must come this far before the next step, with what they posted.
    Meet,
    /// All members of this host must come this far; nothing goes to others.
    MeetHere,
    /// Something must come from other hosts.
    Post,
    /// The call is through.
    Done,
}

/// Memory of the caller, which keeps it alive and untouched until the call is through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(pub *mut u8);

// SAFETY: whoever makes a call promises that the memory stays valid, whichever thread drives the call.
unsafe impl Send for Place {}

impl Place {
    /// The place `bytes` further on.
    pub fn add(self, bytes: usize) -> *mut u8 {
        self.0.wrapping_add(bytes)
    }
}

/// Copies bytes between memory of the caller and shared memory.
///
/// # Safety
/// Both are valid for `len` bytes, and nobody else writes either meanwhile. They may be the same, but not overlap.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if from != to.cast_const() && len > 0 {
        // SAFETY: by contract.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }
}
