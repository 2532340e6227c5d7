//! Everyone gets the root's.

use super::{Deck, Exchange, Place, Posted, Step, copy};
use crate::CollectiveError;

pub(crate) struct Broadcast {
    buffer: Place,
    bytes: usize,
    root: usize,
    done: usize,
    posted: bool,
}

impl Broadcast {
    pub fn new(buffer: Place, bytes: usize, root: usize) -> Self {
        Self {
            buffer,
            bytes,
            root,
            done: 0,
            posted: false,
        }
    }
}

impl Exchange for Broadcast {
    fn step(&mut self, deck: &mut Deck<'_>) -> Result<Step, CollectiveError> {
        if self.posted {
            let chunk = deck.room().min(self.bytes - self.done);
            if deck.me != self.root {
                // SAFETY: the root's slot is written before the meeting, the buffer is the caller's.
                unsafe { copy(deck.slot(self.root), self.buffer.add(self.done), chunk) };
            }
            self.done += chunk;
            if self.done == self.bytes {
                return Ok(Step::Done);
            }
        }
        let chunk = deck.room().min(self.bytes - self.done);
        if deck.me != self.root {
            deck.turn_over(Posted::NOTHING);
        } else {
            deck.turn_over(Posted::Front(chunk));
            // SAFETY: this member's slot is free since the turn began.
            unsafe { copy(self.buffer.add(self.done), deck.slot(deck.me), chunk) };
        }
        self.posted = true;
        Ok(Step::Meet)
    }
}
