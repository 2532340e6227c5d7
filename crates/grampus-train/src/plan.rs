//! How a batch is cut into lanes, who drives which lane, and what each draws its random numbers from.

use std::ops::Range;

use grampus_core::Random;

/// What random numbers are for. Those of one purpose say nothing about those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// What the model draws, such as dropout.
    Model = 1,
    /// What reading draws, such as the augmentation inside a data set.
    Data = 2,
    /// What making the model draws, such as its first weights.
    Make = 3,
}

/// The lanes that a worker drives: neighbours, as equal in number as can be, the first workers one more.
///
/// ```
/// use grampus_train::plan::lanes_of;
/// assert_eq!(lanes_of(0, 3, 4), 0..2);
/// assert_eq!(lanes_of(1, 3, 4), 2..3);
/// assert_eq!(lanes_of(2, 3, 4), 3..4);
/// ```
pub fn lanes_of(rank: usize, workers: usize, lanes: u32) -> Range<u32> {
    let start = |rank: usize| portion(rank as u64, workers as u64, u64::from(lanes)) as u32;
    start(rank)..start(rank + 1)
}

/// The lanes of each worker where some do less than others: neighbours in order of rank, at least one each, and each further lane
/// for whom it will take the least time to have done all of his, who works with the speed of his share. Equal shares give what
/// [`lanes_of`] gives.
///
/// ```
/// use grampus_train::plan::lanes_by;
/// assert_eq!(lanes_by(&[1.0, 0.25], 6), [0..5, 5..6]);
/// assert_eq!(lanes_by(&[1.0, 0.5, 1.0], 5), [0..2, 2..3, 3..5]);
/// ```
pub fn lanes_by(shares: &[f64], lanes: u32) -> Vec<Range<u32>> {
    let mut counts = vec![0_u32; shares.len()];
    let mut left = lanes;
    for count in counts.iter_mut().take(lanes as usize) {
        *count = 1;
        left -= 1;
    }
    for _ in 0..left {
        let time = |rank: &usize| f64::from(counts[*rank] + 1) / shares[*rank];
        let next = (0..shares.len()).min_by(|one, other| time(one).total_cmp(&time(other)));
        if let Some(rank) = next {
            counts[rank] += 1;
        }
    }
    let mut end = 0;
    let ranges = counts.into_iter().map(|count| {
        end += count;
        end - count..end
    });
    ranges.collect()
}

/// The rows of a batch that a lane takes. A whole batch of `size` rows is cut as equally as can be; a short batch of `rows`
/// fills the lanes in order, so that the last of them may go empty.
///
/// ```
/// use grampus_train::plan::rows_of;
/// assert_eq!(rows_of(0, 4, 10, 10), 0..3);
/// assert_eq!(rows_of(3, 4, 10, 10), 8..10);
/// assert_eq!(rows_of(1, 4, 10, 4), 3..4);
/// assert!(rows_of(2, 4, 10, 4).is_empty());
/// ```
pub fn rows_of(lane: u32, lanes: u32, size: u64, rows: u64) -> Range<u64> {
    let start = |lane: u32| portion(u64::from(lane), u64::from(lanes), size).min(rows);
    start(lane)..start(lane + 1)
}

/// Where part `index` of `parts` begins in `whole`, if the first parts take what is left over.
fn portion(index: u64, parts: u64, whole: u64) -> u64 {
    let parts = parts.max(1);
    index * (whole / parts) + index.min(whole % parts)
}

/// What a lane seeds its random numbers with at a step.
///
/// ```
/// use grampus_train::plan::{Draw, lane_seed};
/// assert_eq!(lane_seed(Draw::Model, 1, 2, 3, 4), lane_seed(Draw::Model, 1, 2, 3, 4));
/// assert_ne!(lane_seed(Draw::Model, 1, 2, 3, 4), lane_seed(Draw::Model, 1, 2, 4, 3));
/// assert_ne!(lane_seed(Draw::Model, 1, 2, 3, 4), lane_seed(Draw::Data, 1, 2, 3, 4));
/// ```
pub fn lane_seed(draw: Draw, seed: u64, epoch: u64, step: u64, lane: u32) -> u64 {
    Random::from_parts(&[draw as u64, seed, epoch, step, u64::from(lane)]).next_u64()
}

/// Threads of each lane: the cores of a host shared among the lanes on it, at least one. It is chosen once for a run and
/// kept in its checkpoints, since the bits of a framework's sums may depend on it.
///
/// ```
/// use grampus_train::plan::threads_per_lane;
/// assert_eq!(threads_per_lane(16, 4), 4);
/// assert_eq!(threads_per_lane(2, 4), 1);
/// ```
pub fn threads_per_lane(cores: u32, lanes_on_host: u32) -> u32 {
    (cores / lanes_on_host.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_lane_has_one_driver(workers in 1..20_usize, lanes in 0..50_u32) {
            let dealt: Vec<u32> = (0..workers).flat_map(|rank| lanes_of(rank, workers, lanes)).collect();
            prop_assert_eq!(dealt, (0..lanes).collect::<Vec<u32>>());
            let sizes: Vec<usize> = (0..workers).map(|rank| lanes_of(rank, workers, lanes).len()).collect();
            prop_assert!(sizes[0] - sizes[workers - 1] <= 1);
        }

        #[test]
        fn shares_leave_no_worker_and_no_lane_out(
            shares in prop::collection::vec(0.01..1.0_f64, 1..20), more in 0..50_u32
        ) {
            let lanes = shares.len() as u32 + more;
            let dealt = lanes_by(&shares, lanes);
            prop_assert_eq!(dealt.len(), shares.len());
            prop_assert!(dealt.iter().all(|range| !range.is_empty()));
            let all: Vec<u32> = dealt.into_iter().flatten().collect();
            prop_assert_eq!(all, (0..lanes).collect::<Vec<u32>>());
        }

        #[test]
        fn equal_shares_are_dealt_as_ever(workers in 1..20_usize, lanes in 0..50_u32, share in 0.01..1.0_f64) {
            let wanted: Vec<_> = (0..workers).map(|rank| lanes_of(rank, workers, lanes)).collect();
            prop_assert_eq!(lanes_by(&vec![share; workers], lanes), wanted);
        }

        #[test]
        fn each_row_has_one_lane(lanes in 1..20_u32, size in 1..200_u64, missing in 0..200_u64) {
            let rows = size.saturating_sub(missing);
            let cut: Vec<u64> = (0..lanes).flat_map(|lane| rows_of(lane, lanes, size, rows)).collect();
            prop_assert_eq!(cut, (0..rows).collect::<Vec<u64>>());
        }

        #[test]
        fn lane_0_is_empty_only_where_all_are(lanes in 1..20_u32, size in 1..200_u64, rows in 0..200_u64) {
            let rows = rows.min(size);
            prop_assert_eq!(rows_of(0, lanes, size, rows).is_empty(), rows == 0);
        }
    }
}
