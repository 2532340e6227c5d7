//! Reports of a running task that nobody fetched yet.

use std::collections::VecDeque;

use bytes::Bytes;
use grampus_core::Rank;

/// Reports kept for a user's thread that does not fetch them: the newest say most.
const KEPT: usize = 10_000;
const KEPT_BYTES: usize = 64 << 20;

/// The reports of one task, in the order in which they came.
#[derive(Default)]
pub(super) struct Reports {
    waiting: VecDeque<(Rank, Bytes)>,
    bytes: usize,
    skipped: u64,
}

impl Reports {
    pub(super) fn push(&mut self, rank: Rank, body: Bytes) {
        self.bytes += body.len();
        self.waiting.push_back((rank, body));
        while self.waiting.len() > KEPT || self.bytes > KEPT_BYTES {
            let Some((_, oldest)) = self.waiting.pop_front() else {
                break;
            };
            self.bytes -= oldest.len();
            self.skipped += 1;
        }
    }

    /// What is left of them, and how many were dropped before.
    pub(super) fn take(self) -> (Vec<(Rank, Bytes)>, u64) {
        (self.waiting.into(), self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(count: usize, size: usize) -> Reports {
        let mut reports = Reports::default();
        for number in 0..count {
            let mut body = vec![0; size];
            body[..4].copy_from_slice(&(number as u32).to_le_bytes());
            reports.push(Rank(0), body.into());
        }
        reports
    }

    fn first(left: &[(Rank, Bytes)]) -> usize {
        u32::from_le_bytes(left[0].1[..4].try_into().unwrap()) as usize
    }

    #[test]
    fn the_oldest_of_too_many_are_dropped_and_counted() {
        let (left, skipped) = numbered(KEPT + 7, 4).take();
        assert_eq!((left.len(), skipped, first(&left)), (KEPT, 7, 7));
    }

    #[test]
    fn the_oldest_of_too_large_ones_are_dropped_and_counted() {
        let fit = KEPT_BYTES >> 20;
        let (left, skipped) = numbered(fit + 3, 1 << 20).take();
        assert_eq!((left.len(), skipped, first(&left)), (fit, 3, 3));
    }
}
