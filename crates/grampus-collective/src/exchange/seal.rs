//! Notices, in debug builds, that a buffer was changed while a call was on its way.

use std::hash::{DefaultHasher, Hasher};

use super::Place;
use crate::CollectiveError;

/// What the pieces of a buffer held when the call was made. Costs a pass over the buffer, so release builds keep none.
#[derive(Default)]
pub(crate) struct Seals(Vec<u64>);

impl Seals {
    /// Keeps what each piece holds, given as start and length in bytes.
    pub fn keep(pieces: impl Iterator<Item = (Place, usize)>) -> Self {
        if cfg!(debug_assertions) {
            Self(pieces.map(hash).collect())
        } else {
            Self::default()
        }
    }

    /// That a piece still holds the same.
    pub fn check(&self, index: usize, piece: (Place, usize)) -> Result<(), CollectiveError> {
        match self.0.get(index) {
            Some(kept) if *kept != hash(piece) => Err(CollectiveError::Argument(
                "a buffer was changed while a call on it was on its way: leave it alone until the call is through".into(),
            )),
            _ => Ok(()),
        }
    }
}

fn hash((start, len): (Place, usize)) -> u64 {
    let mut hasher = DefaultHasher::new();
    if len > 0 {
        // SAFETY: the caller lends the memory for the length of the call, and only reads it meanwhile.
        hasher.write(unsafe { std::slice::from_raw_parts(start.0, len) });
    }
    hasher.finish()
}
