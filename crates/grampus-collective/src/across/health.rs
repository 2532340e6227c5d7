//! What is known of a peer on another host: written by the heartbeat's thread and by whoever drives calls.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::shared::monotonic;

/// How a peer's end of the connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerEnd {
    /// It said farewell.
    Left = 1,
    /// Without a farewell.
    Cut = 2,
}

/// The state of one peer.
#[derive(Debug)]
pub(crate) struct PeerHealth {
    pub rank: usize,
    /// When the last byte of it came.
    seen: AtomicU64,
    /// The rank that it waits for, counted from 1.
    awaits: AtomicU32,
    end: AtomicU8,
}

impl PeerHealth {
    pub fn new(rank: usize) -> Self {
        let health = Self {
            rank,
            seen: AtomicU64::new(0),
            awaits: AtomicU32::new(0),
            end: AtomicU8::new(0),
        };
        health.see();
        health
    }

    /// Something came from it.
    pub fn see(&self) {
        self.seen.store(monotonic().as_nanos() as u64, Ordering::Relaxed);
    }

    /// How long ago something came from it.
    pub fn last_seen(&self) -> Duration {
        monotonic().saturating_sub(Duration::from_nanos(self.seen.load(Ordering::Relaxed)))
    }

    /// The rank that it said it waits for.
    pub fn awaits(&self) -> Option<usize> {
        (self.awaits.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// It says that it waits for a rank, counted from 1, or for none.
    pub fn set_awaits(&self, awaits: u32) {
        self.awaits.store(awaits, Ordering::Relaxed);
    }

    /// Whether it will never say anything again; all that it said was heard.
    pub fn end(&self) -> Option<PeerEnd> {
        match self.end.load(Ordering::Acquire) {
            0 => None,
            1 => Some(PeerEnd::Left),
            _ => Some(PeerEnd::Cut),
        }
    }

    /// It has ended; what was known first stays.
    pub fn set_end(&self, end: PeerEnd) {
        let _ = self
            .end
            .compare_exchange(0, end as u8, Ordering::AcqRel, Ordering::Relaxed);
    }
}
