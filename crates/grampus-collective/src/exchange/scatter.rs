//! Each gets its part of the root's.

use super::{Deck, Exchange, Place, Posted, Step, copy};
use crate::CollectiveError;

pub(crate) struct Scatter {
    /// The root's parts, by rank; empty elsewhere.
    parts: Vec<Place>,
    target: Place,
    /// Bytes of one part.
    bytes: usize,
    root: usize,
    done: usize,
    posted: bool,
}

impl Scatter {
    pub fn new(parts: Vec<Place>, target: Place, bytes: usize, root: usize) -> Self {
        Self {
            parts,
            target,
            bytes,
            root,
            done: 0,
            posted: false,
        }
    }

    fn post(&self, deck: &Deck<'_>, room: usize) {
        let chunk = room.min(self.bytes - self.done);
        for (rank, part) in self.parts.iter().enumerate() {
            let to = if rank == deck.me {
                self.target.add(self.done)
            } else {
                deck.slot(deck.me).wrapping_add(rank * room)
            };
            // SAFETY: this member's slot is free since the turn began; parts are the caller's.
            unsafe { copy(part.add(self.done), to, chunk) };
        }
    }
}

impl Exchange for Scatter {
    fn step(&mut self, deck: &mut Deck<'_>) -> Result<Step, CollectiveError> {
        // Whole elements of every type fit into multiples of eight bytes.
        let room = (deck.room() / deck.ranks) & !7;
        if self.posted {
            let chunk = room.min(self.bytes - self.done);
            if deck.me != self.root {
                let from = deck.slot(self.root).wrapping_add(deck.me * room);
                // SAFETY: the root's slot is written before the meeting, the target is the caller's.
                unsafe { copy(from, self.target.add(self.done), chunk) };
            }
            self.done += chunk;
            if self.done == self.bytes {
                return Ok(Step::Done);
            }
        }
        let used = room.min(self.bytes - self.done);
        deck.turn_over(Posted::Parts {
            stride: room,
            used,
            mine: deck.me == self.root,
        });
        self.post(deck, room);
        self.posted = true;
        Ok(Step::Meet)
    }
}
