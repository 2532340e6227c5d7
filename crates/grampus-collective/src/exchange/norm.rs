//! The norm of a buffer that all members hold: each sums up some blocks of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Deck, Exchange, Gather, Place, Step};
use crate::CollectiveError;
use crate::numerics::{DType, NORM_BLOCK, norm, square_sums};

pub(crate) struct Norm {
    dtype: DType,
    buffer: Place,
    count: usize,
    answer: Arc<AtomicU64>,
    /// The sums of all blocks, in order.
    sums: Vec<f64>,
    gather: Option<Gather>,
}

impl Norm {
    /// `answer` takes the bits of the result.
    pub fn new(dtype: DType, buffer: Place, count: usize, answer: Arc<AtomicU64>) -> Self {
        Self {
            dtype,
            buffer,
            count,
            answer,
            sums: vec![0.0; count.div_ceil(NORM_BLOCK)],
            gather: None,
        }
    }

    fn begin(&mut self, deck: &Deck<'_>) -> Gather {
        let blocks = self.sums.len();
        let first = |rank: usize| blocks * rank / deck.ranks;
        let (from, to) = (first(deck.me), first(deck.me + 1));
        let start = from * NORM_BLOCK;
        let count = (to * NORM_BLOCK).min(self.count).saturating_sub(start);
        // SAFETY: the buffer is the caller's and holds `self.count` elements.
        unsafe {
            let data = self.buffer.add(start * self.dtype.size());
            square_sums(self.dtype, data, count, &mut self.sums[from..to]);
        }
        let sums = Place(self.sums.as_mut_ptr().cast());
        let target = |rank| Place(sums.add(first(rank) * 8));
        let sizes = (0..deck.ranks)
            .map(|rank| (first(rank + 1) - first(rank)) * 8)
            .collect();
        Gather::new(target(deck.me), sizes, (0..deck.ranks).map(target).collect())
    }
}

impl Exchange for Norm {
    fn step(&mut self, deck: &mut Deck<'_>) -> Result<Step, CollectiveError> {
        if self.gather.is_none() {
            self.gather = Some(self.begin(deck));
        }
        let step = match &mut self.gather {
            Some(gather) => gather.step(deck)?,
            None => Step::Done,
        };
        if step == Step::Done {
            self.answer.store(norm(&self.sums).to_bits(), Ordering::Release);
        }
        Ok(step)
    }
}
