//! Everyone, or the root alone, gets everyone's part; parts may be of unequal size.

use super::{Deck, Exchange, Place, Posted, Step, copy};
use crate::CollectiveError;

pub(crate) struct Gather {
    mine: Place,
    /// Bytes of each rank's part.
    sizes: Vec<usize>,
    /// Where each part goes; empty where this member gets nothing.
    targets: Vec<Place>,
    done: usize,
    posted: bool,
}

impl Gather {
    pub fn new(mine: Place, sizes: Vec<usize>, targets: Vec<Place>) -> Self {
        Self {
            mine,
            sizes,
            targets,
            done: 0,
            posted: false,
        }
    }

    /// Bytes of a rank's part that the present turn carries.
    fn chunk(&self, rank: usize, room: usize) -> usize {
        self.sizes[rank].saturating_sub(self.done).min(room)
    }

    fn collect(&self, deck: &Deck<'_>) {
        for (rank, target) in self.targets.iter().enumerate() {
            let chunk = self.chunk(rank, deck.room());
            let from = if rank == deck.me {
                self.mine.add(self.done)
            } else {
                deck.slot(rank)
            };
            // SAFETY: slots are written before the meeting; targets are the caller's and large enough.
            unsafe { copy(from, target.add(self.done), chunk) };
        }
    }
}

impl Exchange for Gather {
    fn step(&mut self, deck: &mut Deck<'_>) -> Result<Step, CollectiveError> {
        if self.posted {
            self.collect(deck);
            self.done += deck.room();
            if self.done >= self.sizes.iter().copied().max().unwrap_or(0) {
                return Ok(Step::Done);
            }
        }
        deck.turn_over(Posted::Front(self.chunk(deck.me, deck.room())));
        // SAFETY: this member's slot is free since the turn began.
        unsafe {
            copy(
                self.mine.add(self.done),
                deck.slot(deck.me),
                self.chunk(deck.me, deck.room()),
            );
        }
        self.posted = true;
        Ok(Step::Meet)
    }
}
