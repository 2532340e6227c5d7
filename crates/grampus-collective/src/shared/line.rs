//! What one member tells the others: how far it is, in which call, and that it lives.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::call::{Call, Kind};
use crate::numerics::{DType, Op};

/// A call beside the word that says how far it is, in one cache line. There are two, used in turn: what a member
/// said in a phase stays readable until all have left the next.
#[repr(C, align(64))]
pub(crate) struct Line {
    pub word: AtomicU32,
    root: AtomicU32,
    what: AtomicU64,
    count: AtomicU64,
    number: AtomicU64,
    place: AtomicU64,
}

impl Line {
    /// Writes all but the word. `place` is the buffer's offset in the arena, counted from 1; 0 for a private one.
    pub fn say(&self, call: &Call, place: u64) {
        let codes =
            u64::from(call.kind as u8) | u64::from(call.dtype as u8) << 8 | u64::from(call.op as u8) << 16;
        self.what
            .store(codes | u64::from(call.parts) << 32, Ordering::Relaxed);
        self.root.store(call.root, Ordering::Relaxed);
        self.count.store(call.count, Ordering::Relaxed);
        self.number.store(call.number, Ordering::Relaxed);
        self.place.store(place, Ordering::Relaxed);
    }

    /// Whether the line says exactly this. The quick look of the good path; [`Line::said`] tells the rest.
    pub fn says(&self, other: &Line) -> bool {
        let same = |mine: &AtomicU64, theirs: &AtomicU64| {
            mine.load(Ordering::Relaxed) == theirs.load(Ordering::Relaxed)
        };
        same(&self.what, &other.what)
            && same(&self.count, &other.count)
            && same(&self.number, &other.number)
            && self.root.load(Ordering::Relaxed) == other.root.load(Ordering::Relaxed)
    }

    /// The call; `None` where the memory holds no call that this build knows.
    pub fn said(&self) -> Option<Call> {
        let what = self.what.load(Ordering::Relaxed);
        Some(Call {
            kind: Kind::from_code(what as u8)?,
            dtype: DType::from_code((what >> 8) as u8)?,
            op: Op::from_code((what >> 16) as u8)?,
            count: self.count.load(Ordering::Relaxed),
            root: self.root.load(Ordering::Relaxed),
            parts: (what >> 32) as u32,
            number: self.number.load(Ordering::Relaxed),
        })
    }

    /// Where the member's buffer lies in the arena.
    pub fn place(&self) -> Option<usize> {
        (self.place.load(Ordering::Relaxed) as usize).checked_sub(1)
    }
}

/// All that a member writes for the others, and who sleeps on it.
#[repr(C, align(64))]
pub(crate) struct Block {
    pub lines: [Line; 2],
    pub sleepers: AtomicU32,
    /// Set when the member leaves in good order.
    pub left: AtomicU32,
    /// Tells members that are threads of one process, as in tests, from those that can die apart.
    pub process: AtomicU64,
    /// Time of the last sign of life, in nanoseconds of the host's monotonic clock.
    pub beat: AtomicU64,
    /// The rank that the member waits for, counted from 1; 0 while it waits for none, or not for long yet.
    pub awaits: AtomicU32,
    /// Grows with bytes of calls that move between hosts; see [`super::Segment::count_moved`].
    pub moved: AtomicU64,
    /// When it last grew, in nanoseconds of the host's monotonic clock.
    pub moved_at: AtomicU64,
}
