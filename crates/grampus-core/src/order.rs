//! Which row stands at which place of an epoch.

use crate::Random;

/// Rounds of the network below. Four make a good permutation; two more cost a few nanoseconds a row.
const ROUNDS: usize = 6;
/// Tells these draws from all others that are made from the same seed.
const PURPOSE: u64 = 0x006f_7264_6572;

/// A permutation of the rows of one epoch: a formula and no list, so that any worker can ask for any place, and the state of
/// a reader is the place alone.
///
/// It is a Feistel network over the least even number of bits that can count the rows; what falls behind the last row is
/// sent through again until it does not.
///
/// ```
/// use grampus_core::Order;
/// let order = Order::new(42, 0, 5);
/// let mut rows: Vec<u64> = (0..5).map(|place| order.row(place)).collect();
/// assert_ne!(rows, [0, 1, 2, 3, 4]);
/// rows.sort();
/// assert_eq!(rows, [0, 1, 2, 3, 4]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Order {
    rows: u64,
    /// Bits of a half.
    half: u32,
    keys: [u64; ROUNDS],
}

impl Order {
    /// The order of an epoch.
    pub fn new(seed: u64, epoch: u64, rows: u64) -> Self {
        let mut random = Random::from_parts(&[seed, epoch, rows, PURPOSE]);
        let bits = u64::BITS - rows.saturating_sub(1).leading_zeros();
        Self {
            rows,
            half: bits.div_ceil(2).max(1),
            keys: std::array::from_fn(|_| random.next_u64()),
        }
    }

    /// The row at a place, which is below the number of rows; other places have no row, and are given back as they are.
    pub fn row(&self, place: u64) -> u64 {
        if place >= self.rows {
            return place;
        }
        let mut row = self.shuffled(place);
        while row >= self.rows {
            row = self.shuffled(row);
        }
        row
    }

    fn shuffled(&self, place: u64) -> u64 {
        let mask = (1 << self.half) - 1;
        let (mut left, mut right) = (place >> self.half, place & mask);
        for key in self.keys {
            let mixed = (right ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            // The upper bits of a product depend on all lower ones, but not the other way round.
            let mixed =
                (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> (u64::BITS - self.half);
            (left, right) = (right, left ^ mixed);
        }
        (left << self.half) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(seed: u64, epoch: u64, count: u64) -> Vec<u64> {
        let order = Order::new(seed, epoch, count);
        (0..count).map(|place| order.row(place)).collect()
    }

    #[test]
    fn the_order_never_changes() {
        assert_eq!(rows(1, 0, 10), [5, 4, 0, 7, 8, 9, 1, 6, 3, 2]);
    }

    #[test]
    fn epochs_and_seeds_differ() {
        assert_ne!(rows(1, 0, 100), rows(1, 1, 100));
        assert_ne!(rows(1, 0, 100), rows(2, 0, 100));
    }

    #[test]
    fn every_row_comes_to_every_place() {
        let mut met = [[0_u32; 7]; 7];
        for seed in 0..7000 {
            for (place, row) in rows(seed, 3, 7).into_iter().enumerate() {
                met[place][row as usize] += 1;
            }
        }
        let all = met.iter().flatten();
        assert!(
            all.clone().all(|count| (850..1150).contains(count)),
            "1000 each are expected: {met:?}"
        );
    }

    #[test]
    fn neighbours_part() {
        let shuffled = rows(9, 0, 10_000);
        let close = shuffled
            .windows(2)
            .filter(|pair| pair[0].abs_diff(pair[1]) <= 10)
            .count();
        assert!(close < 60, "20 are expected by chance, {close} were found");
    }

    proptest! {
        #[test]
        fn each_row_once(seed: u64, epoch in 0..1000_u64, count in 0..3000_u64) {
            let mut shuffled = rows(seed, epoch, count);
            shuffled.sort_unstable();
            prop_assert_eq!(shuffled, (0..count).collect::<Vec<u64>>());
        }

        #[test]
        fn large_tables_too(seed: u64, count in 1..u64::MAX / 2, place: u64) {
            let order = Order::new(seed, 0, count);
            prop_assert!(order.row(place % count) < count);
        }
    }
}
