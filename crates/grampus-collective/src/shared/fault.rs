//! The first cause: written once for all members of a host, by whoever notices it.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::CollectiveError;

const EMPTY: u32 = 0;
const WRITING: u32 = 1;
const WRITTEN: u32 = 2;
const BYTES: usize = 2048;

/// Room for one error in shared memory.
#[repr(C)]
pub(crate) struct Fault {
    state: AtomicU32,
    len: AtomicU32,
    bytes: [AtomicU8; BYTES],
}

impl Fault {
    /// Whether the group has come to its end.
    pub fn is_set(&self) -> bool {
        self.state.load(Ordering::Acquire) != EMPTY
    }

    /// Writes the cause; false where another was first, which may still be writing.
    pub fn set(&self, cause: &CollectiveError) -> bool {
        if self
            .state
            .compare_exchange(EMPTY, WRITING, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            return false;
        }
        let text = encode(cause);
        for (place, byte) in self.bytes.iter().zip(&text) {
            place.store(*byte, Ordering::Relaxed);
        }
        self.len.store(text.len() as u32, Ordering::Relaxed);
        self.state.store(WRITTEN, Ordering::Release);
        true
    }

    /// The cause, once it is written whole.
    pub fn get(&self) -> Option<CollectiveError> {
        if self.state.load(Ordering::Acquire) != WRITTEN {
            return None;
        }
        let len = self.len.load(Ordering::Relaxed) as usize;
        let text: Vec<u8> = self
            .bytes
            .iter()
            .take(len)
            .map(|byte| byte.load(Ordering::Relaxed))
            .collect();
        postcard::from_bytes(&text).ok()
    }
}

/// An error that is too long for the room gives way to its shortened text.
fn encode(cause: &CollectiveError) -> Vec<u8> {
    let whole = postcard::to_stdvec(cause).unwrap_or_default();
    if (1..=BYTES).contains(&whole.len()) {
        return whole;
    }
    let text: String = cause.to_string().chars().take(BYTES / 8).collect();
    postcard::to_stdvec(&CollectiveError::Disagree(text)).unwrap_or_default()
}
