//! Each gets its part of everyone's; parts may be of unequal size.

use super::{Deck, Exchange, Place, Posted, Step, copy};
use crate::CollectiveError;
use crate::numerics::DType;

/// A part of a member's buffers: where, and how many elements.
pub(crate) type Part = (Place, usize);

pub(crate) struct AllToAll {
    dtype: DType,
    sends: Vec<Part>,
    takes: Vec<Part>,
    /// Elements of the largest part of all, known after the first meeting.
    largest: usize,
    done: usize,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Begin,
    Sizes,
    Posted,
}

impl AllToAll {
    pub fn new(dtype: DType, sends: Vec<Part>, takes: Vec<Part>) -> Self {
        Self {
            dtype,
            sends,
            takes,
            largest: 0,
            done: 0,
            stage: Stage::Begin,
        }
    }

    /// Writes what this member sends and expects: two numbers per rank.
    fn post_sizes(&self, deck: &Deck<'_>) {
        let slot = deck.slot(deck.me).cast::<[u64; 2]>();
        for (rank, ((_, sent), (_, taken))) in self.sends.iter().zip(&self.takes).enumerate() {
            // SAFETY: slots are pages, and hold two numbers for each of the few thousand ranks there can be.
            unsafe { slot.add(rank).write([*sent as u64, *taken as u64]) };
        }
    }

    /// Everyone looks at all pairs, so that all find the same first disagreement.
    fn compare_sizes(&mut self, deck: &Deck<'_>) -> Result<(), CollectiveError> {
        let read = |rank: usize, other: usize| {
            // SAFETY: written before the meeting.
            unsafe { deck.slot(rank).cast::<[u64; 2]>().add(other).read() }
        };
        for from in 0..deck.ranks {
            for to in 0..deck.ranks {
                let (sent, taken) = (read(from, to)[0], read(to, from)[1]);
                if sent != taken {
                    let dtype = self.dtype;
                    return Err(CollectiveError::Disagree(format!(
                        "in all_to_all, rank {from} sends {sent} {dtype} to rank {to}, which expects {taken}: let \
                         the sizes on both sides agree"
                    )));
                }
                self.largest = self.largest.max(sent as usize);
            }
        }
        Ok(())
    }

    fn chunk(&self, count: usize, room: usize) -> usize {
        count.saturating_sub(self.done).min(room) * self.dtype.size()
    }

    fn post(&self, deck: &Deck<'_>, room: usize) {
        let size = self.dtype.size();
        for (rank, (place, count)) in self.sends.iter().enumerate() {
            let from = place.add(self.done * size);
            let to = if rank == deck.me {
                self.takes[rank].0.add(self.done * size)
            } else {
                deck.slot(deck.me).wrapping_add(rank * room * size)
            };
            // SAFETY: this member's slot is free since the turn began; parts are the caller's.
            unsafe { copy(from, to, self.chunk(*count, room)) };
        }
    }

    fn collect(&self, deck: &Deck<'_>, room: usize) {
        let size = self.dtype.size();
        for (rank, (place, count)) in self.takes.iter().enumerate() {
            if rank != deck.me {
                let from = deck.slot(rank).wrapping_add(deck.me * room * size);
                // SAFETY: slots are written before the meeting; targets are the caller's.
                unsafe { copy(from, place.add(self.done * size), self.chunk(*count, room)) };
            }
        }
    }
}

impl Exchange for AllToAll {
    fn step(&mut self, deck: &mut Deck<'_>) -> Result<Step, CollectiveError> {
        let room = deck.room() / deck.ranks / self.dtype.size();
        match self.stage {
            Stage::Begin => {
                deck.turn_over(Posted::Front(16 * deck.ranks));
                self.post_sizes(deck);
                self.stage = Stage::Sizes;
                return Ok(Step::Meet);
            }
            Stage::Sizes => self.compare_sizes(deck)?,
            Stage::Posted => {
                self.collect(deck, room);
                self.done += room;
            }
        }
        if self.done >= self.largest {
            return Ok(Step::Done);
        }
        let size = self.dtype.size();
        deck.turn_over(Posted::Parts {
            stride: room * size,
            used: room.min(self.largest - self.done) * size,
            mine: true,
        });
        self.post(deck, room);
        self.stage = Stage::Posted;
        Ok(Step::Meet)
    }
}
