//! Each gets its part of the sum.

use std::sync::Arc;

use super::{Deck, Exchange, Place, Posted, Shape, Step, copy};
use crate::CollectiveError;
use crate::numerics::DType;

pub(crate) struct ReduceScatter {
    shape: Arc<Shape>,
    size: usize,
    source: Place,
    target: Place,
    /// Elements of one part.
    count: usize,
    done: usize,
    posted: bool,
}

impl ReduceScatter {
    /// `shape` is one lane of every rank.
    pub fn new(shape: Arc<Shape>, dtype: DType, source: Place, target: Place, count: usize) -> Self {
        Self {
            shape,
            size: dtype.size(),
            source,
            target,
            count,
            done: 0,
            posted: false,
        }
    }

    fn part(&self, rank: usize) -> *mut u8 {
        self.source.add((rank * self.count + self.done) * self.size)
    }

    fn post(&self, deck: &Deck<'_>, room: usize) {
        let chunk = room.min(self.count - self.done);
        for rank in (0..deck.ranks).filter(|rank| *rank != deck.me) {
            let to = deck.slot(deck.me).wrapping_add(rank * room * self.size);
            // SAFETY: this member's slot is free since the turn began; the source is the caller's.
            unsafe { copy(self.part(rank), to, chunk * self.size) };
        }
    }

    fn sum(&self, deck: &Deck<'_>, room: usize) -> usize {
        let chunk = room.min(self.count - self.done);
        let inputs: Vec<*const u8> = (0..deck.ranks)
            .map(|rank| {
                if rank == deck.me {
                    self.part(rank).cast_const()
                } else {
                    deck.slot(rank)
                        .wrapping_add(deck.me * room * self.size)
                        .cast_const()
                }
            })
            .collect();
        // SAFETY: slots are written before the meeting; the target is the caller's, and the source's own part or apart.
        unsafe {
            self.shape
                .whole
                .run(&inputs, &[self.target.add(self.done * self.size)], chunk);
        }
        chunk
    }
}

impl Exchange for ReduceScatter {
    fn step(&mut self, deck: &mut Deck<'_>) -> Result<Step, CollectiveError> {
        let room = deck.room() / deck.ranks / self.size;
        if self.posted {
            self.done += self.sum(deck, room);
            if self.done == self.count {
                return Ok(Step::Done);
            }
        }
        deck.turn_over(Posted::Parts {
            stride: room * self.size,
            used: room.min(self.count - self.done) * self.size,
            mine: true,
        });
        self.post(deck, room);
        self.posted = true;
        Ok(Step::Meet)
    }
}
