//! Which row stands at which place of an epoch, where rows lie in blocks that are dear to open.

use std::ops::Range;

use crate::{Order, Random};

/// Tells these draws from all others that are made from the same seed.
const PURPOSE: u64 = 0x7769_6e64_6f77;

/// A permutation of the rows of one epoch that opens few blocks at a time: the blocks are shuffled and taken in windows of
/// some, and the rows of each window are shuffled among themselves.
///
/// It is a function of the seed, the epoch, the sizes of the blocks and that of the window, so any worker can ask for any
/// place; unlike an [`Order`] it keeps a number for each block.
///
/// ```
/// use grampus_core::Windows;
/// let windows = Windows::new(42, 0, &[3, 3, 3, 3], 2);
/// let mut rows: Vec<(usize, u64)> = (0..12).map(|place| windows.row(place)).collect();
/// // The first six places need two blocks and no other.
/// let first: std::collections::BTreeSet<usize> = rows[..6].iter().map(|row| row.0).collect();
/// assert_eq!(first.len(), 2);
/// rows.sort();
/// assert_eq!(rows[..4], [(0, 0), (0, 1), (0, 2), (1, 0)]);
/// ```
#[derive(Clone, Debug)]
pub struct Windows {
    /// Blocks in the order in which they are opened.
    blocks: Vec<usize>,
    /// The first place of each of them, and the number of rows at the end.
    starts: Vec<u64>,
    /// Blocks of a window.
    window: usize,
    /// The seed of the orders inside windows.
    seed: u64,
    epoch: u64,
}

impl Windows {
    /// The order of an epoch over blocks of these sizes, of which a window has `window` (at least one).
    pub fn new(seed: u64, epoch: u64, sizes: &[u64], window: usize) -> Self {
        let order = Order::new(seed, epoch, sizes.len() as u64);
        let blocks: Vec<usize> = (0..sizes.len())
            .map(|place| order.row(place as u64) as usize)
            .collect();
        let mut starts = Vec::with_capacity(sizes.len() + 1);
        let mut rows = 0;
        for &block in &blocks {
            starts.push(rows);
            rows += sizes[block];
        }
        starts.push(rows);
        Self {
            blocks,
            starts,
            window: window.max(1),
            seed: Random::from_parts(&[seed, PURPOSE]).next_u64(),
            epoch,
        }
    }

    /// The number of rows.
    pub fn rows(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The blocks of a window; none behind the last.
    pub fn blocks(&self, window: usize) -> &[usize] {
        self.blocks.get(self.range(window)).unwrap_or(&[])
    }

    /// The window in which a place lies.
    pub fn window_of(&self, place: u64) -> usize {
        // Blocks without rows share the first place of the next: the last of them is meant.
        let block = self.starts.partition_point(|&start| start <= place) - 1;
        block.min(self.blocks.len().saturating_sub(1)) / self.window
    }

    /// Block and row at a place, which is below the number of rows.
    pub fn row(&self, place: u64) -> (usize, u64) {
        let (places, order) = self.shuffled(self.window_of(place));
        self.located(places.start + order.row(place - places.start))
    }

    /// Blocks and rows at places that follow each other: cheaper than one by one.
    pub fn located_rows(&self, places: Range<u64>) -> Vec<(usize, u64)> {
        let mut found = Vec::with_capacity((places.end - places.start) as usize);
        let mut place = places.start;
        while place < places.end {
            let (window, order) = self.shuffled(self.window_of(place));
            let until = places.end.min(window.end);
            found.extend(
                (place..until).map(|place| self.located(window.start + order.row(place - window.start))),
            );
            place = until;
        }
        found
    }

    /// The places of a window, and the order of its rows.
    fn shuffled(&self, window: usize) -> (Range<u64>, Order) {
        let blocks = self.range(window);
        let places = self.starts[blocks.start]..self.starts[blocks.end];
        let seed = self.seed.wrapping_add(window as u64);
        let rows = places.end - places.start;
        (places, Order::new(seed, self.epoch, rows))
    }

    fn located(&self, at: u64) -> (usize, u64) {
        let block = self.starts.partition_point(|&start| start <= at) - 1;
        (self.blocks[block], at - self.starts[block])
    }

    fn range(&self, window: usize) -> Range<usize> {
        let start = (window * self.window).min(self.blocks.len());
        start..(start + self.window).min(self.blocks.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn all(windows: &Windows) -> Vec<(usize, u64)> {
        (0..windows.rows()).map(|place| windows.row(place)).collect()
    }

    #[test]
    fn the_order_never_changes() {
        let windows = Windows::new(1, 0, &[2, 1, 3], 2);
        assert_eq!(all(&windows), [(1, 0), (2, 2), (2, 1), (2, 0), (0, 1), (0, 0)]);
    }

    #[test]
    fn epochs_and_seeds_differ() {
        let rows = |seed, epoch| all(&Windows::new(seed, epoch, &[10; 10], 3));
        assert_ne!(rows(1, 0), rows(1, 1));
        assert_ne!(rows(1, 0), rows(2, 0));
    }

    #[test]
    fn windows_of_equal_size_are_shuffled_differently() {
        let rows = all(&Windows::new(1, 0, &[100; 2], 1));
        let (first, second) = rows.split_at(100);
        assert!(first.iter().map(|row| row.1).ne(second.iter().map(|row| row.1)));
    }

    proptest! {
        #[test]
        fn each_row_once_and_few_blocks_at_a_time(
            seed: u64,
            epoch in 0..100_u64,
            sizes in proptest::collection::vec(0..40_u64, 0..30),
            window in 1..8_usize,
        ) {
            let windows = Windows::new(seed, epoch, &sizes, window);
            let rows = all(&windows);
            let wanted: Vec<(usize, u64)> = sizes
                .iter()
                .enumerate()
                .flat_map(|(block, &size)| (0..size).map(move |row| (block, row)))
                .collect();
            let mut sorted = rows.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, wanted);
            prop_assert_eq!(windows.located_rows(0..windows.rows()), rows.clone());
            for number in 0..sizes.len().div_ceil(window) {
                let places = (0..windows.rows()).filter(|&place| windows.window_of(place) == number);
                let opened: BTreeSet<usize> = places.map(|place| rows[place as usize].0).collect();
                let blocks: BTreeSet<usize> = windows.blocks(number).iter().copied().collect();
                prop_assert!(opened.is_subset(&blocks));
                prop_assert!(blocks.len() <= window);
            }
        }
    }
}
