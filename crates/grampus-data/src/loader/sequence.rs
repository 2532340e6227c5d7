//! Which rows stand where in an epoch.

use std::ops::Range;

use grampus_core::{Order, Random, Windows};

use crate::image::Rows;

/// The rows of an epoch, by place.
#[derive(Clone, Debug)]
pub struct Sequence {
    kind: Kind,
    seed: u64,
    epoch: u64,
    /// The first row of each block, and the number of rows at the end.
    starts: Vec<u64>,
}

#[derive(Clone, Debug)]
enum Kind {
    InOrder,
    Shuffled(Order),
    Windows(Windows),
}

impl Sequence {
    /// As they come.
    pub fn in_order(seed: u64, epoch: u64, sizes: &[u64]) -> Self {
        Self::of(Kind::InOrder, seed, epoch, sizes)
    }

    /// All of them shuffled.
    pub fn shuffled(seed: u64, epoch: u64, sizes: &[u64]) -> Self {
        let order = Order::new(seed, epoch, sizes.iter().sum());
        Self::of(Kind::Shuffled(order), seed, epoch, sizes)
    }

    /// Blocks shuffled, and the rows of so many blocks among themselves.
    pub fn windows(seed: u64, epoch: u64, sizes: &[u64], window: usize) -> Self {
        let windows = Windows::new(seed, epoch, sizes, window);
        Self::of(Kind::Windows(windows), seed, epoch, sizes)
    }

    fn of(kind: Kind, seed: u64, epoch: u64, sizes: &[u64]) -> Self {
        let mut starts = vec![0];
        for size in sizes {
            starts.push(starts.last().copied().unwrap_or(0) + size);
        }
        Self {
            kind,
            seed,
            epoch,
            starts,
        }
    }

    /// How many rows there are.
    pub fn rows(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Block and row at each of some places.
    pub fn at(&self, places: Range<u64>) -> Vec<(usize, u64)> {
        let places = places.start.min(self.rows())..places.end.min(self.rows());
        match &self.kind {
            Kind::InOrder => places.map(|place| self.located(place)).collect(),
            Kind::Shuffled(order) => places.map(|place| self.located(order.row(place))).collect(),
            Kind::Windows(windows) => windows.located_rows(places),
        }
    }

    /// The blocks, in order, that hold the rows at some places; of shuffled rows also others that may hold them.
    pub fn blocks(&self, places: Range<u64>) -> Vec<usize> {
        let Some(last) = places.end.min(self.rows()).checked_sub(1) else {
            return Vec::new();
        };
        if places.start > last {
            return Vec::new();
        }
        let mut found: Vec<usize> = match &self.kind {
            Kind::InOrder => (self.located(places.start).0..=self.located(last).0).collect(),
            Kind::Shuffled(_) => (0..self.starts.len() - 1).collect(),
            Kind::Windows(windows) => (windows.window_of(places.start)..=windows.window_of(last))
                .flat_map(|window| windows.blocks(window).iter().copied())
                .collect(),
        };
        found.retain(|&block| self.starts[block] < self.starts[block + 1]);
        found.sort_unstable();
        found
    }

    /// The row's number among all.
    pub fn number(&self, (block, row): (usize, u64)) -> u64 {
        self.starts[block] + row
    }

    /// The random numbers of a row: the same whoever reads it, and in whatever order.
    pub fn random(&self, row: (usize, u64)) -> Random {
        let rows = Rows {
            seed: self.seed,
            epoch: self.epoch,
            first: self.number(row),
        };
        rows.random(0)
    }

    /// The blocks that are worth having while the rows at a place are read: those of now and those of soon.
    pub fn near(&self, place: u64) -> Vec<usize> {
        if place >= self.rows() {
            return Vec::new();
        }
        match &self.kind {
            Kind::InOrder => {
                let block = self.located(place).0;
                (block..self.starts.len() - 1).take(2).collect()
            }
            Kind::Shuffled(_) => Vec::new(),
            Kind::Windows(windows) => {
                let window = windows.window_of(place);
                let (now, soon) = (windows.blocks(window), windows.blocks(window + 1));
                now.iter().chain(soon).copied().collect()
            }
        }
    }

    fn located(&self, row: u64) -> (usize, u64) {
        let block = self.starts.partition_point(|&start| start <= row) - 1;
        (block, row - self.starts[block])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_without_rows_are_passed_over() {
        let sequence = Sequence::in_order(0, 0, &[2, 0, 1]);
        assert_eq!(sequence.at(0..9), [(0, 0), (0, 1), (2, 0)]);
        assert_eq!(sequence.number((2, 0)), 2);
        assert_eq!(sequence.near(1), [0, 1]);
        assert!(sequence.near(3).is_empty());
    }

    #[test]
    fn a_window_and_the_next_are_near() {
        let sequence = Sequence::windows(1, 0, &[5; 6], 2);
        let near = sequence.near(12);
        assert_eq!(near.len(), 4);
        assert!(
            sequence
                .at(10..30)
                .iter()
                .take(20)
                .all(|row| near.contains(&row.0))
        );
        assert_eq!(sequence.near(29).len(), 2);
    }

    #[test]
    fn the_blocks_of_places_hold_their_rows() {
        let sizes = [3, 0, 4, 1, 0, 6, 2];
        for sequence in [
            Sequence::in_order(1, 0, &sizes),
            Sequence::shuffled(1, 0, &sizes),
            Sequence::windows(1, 0, &sizes, 2),
        ] {
            for (first, end) in (0..18).flat_map(|first| (first..20).map(move |end| (first, end))) {
                let blocks = sequence.blocks(first..end);
                assert!(blocks.is_sorted());
                assert!(blocks.iter().all(|&block| sizes[block] > 0));
                assert!(sequence.at(first..end).iter().all(|row| blocks.contains(&row.0)));
            }
        }
        assert_eq!(Sequence::in_order(1, 0, &sizes).blocks(2..8), [0, 2, 3]);
    }

    #[test]
    fn nothing_has_no_rows() {
        for sequence in [Sequence::in_order(0, 0, &[]), Sequence::windows(1, 0, &[], 2)] {
            assert!(sequence.at(0..3).is_empty());
            assert!(sequence.near(0).is_empty());
            assert!(sequence.blocks(0..3).is_empty());
        }
    }
}
