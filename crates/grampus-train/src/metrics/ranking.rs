//! Numbers in order, with how often each was seen.

use serde::{Deserialize, Serialize};

/// Keeps every score.
pub(super) const ALL: u64 = u64::MAX;

/// How many targets of each class have a score.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Point {
    pub score: f64,
    pub negatives: u64,
    pub positives: u64,
}

/// Every score that was seen. It grows with the number of different scores.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Ranking {
    /// The first `settled` are in order, and no two scores are equal; the rest came later.
    points: Vec<Point>,
    #[serde(skip)]
    settled: usize,
}

impl Ranking {
    /// Takes the score of one target.
    pub fn add(&mut self, score: f64, positive: bool) {
        self.points.push(Point {
            // Plus zero: the two zeros are one score. What is no number is one score, too, the last in order.
            score: if score.is_nan() { f64::NAN } else { score + 0.0 },
            negatives: u64::from(!positive),
            positives: u64::from(positive),
        });
    }

    /// Takes all scores of another ranking.
    pub fn merge(&mut self, other: &Self) {
        self.points.extend(&other.points);
    }

    /// Counts equal scores together now and then, so that they take no memory and the cost of it stays small. Only
    /// the highest `first` scores are asked for later.
    pub fn settle_at_times(&mut self, first: u64) {
        const FEW: usize = 4096;
        if self.points.len() > 2 * self.settled + FEW {
            self.settle(first);
        }
    }

    /// The same, with equal scores counted together, and none but the highest `first`.
    pub fn settled(&self, first: u64) -> Self {
        let mut ranking = self.clone();
        ranking.settle(first);
        ranking
    }

    /// The scores, of a ranking that is settled from the lowest to the highest.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    fn settle(&mut self, first: u64) {
        self.points
            .sort_by(|one, other| one.score.total_cmp(&other.score));
        self.points.dedup_by(|later, kept| {
            let same = later.score.total_cmp(&kept.score).is_eq();
            if same {
                kept.negatives += later.negatives;
                kept.positives += later.positives;
            }
            same
        });
        // A score that goes here has so many above it in any ranking that this one is merged into.
        let mut above = 0u64;
        let kept = self.points.iter().rev().take_while(|point| {
            let wanted = above < first;
            above = above.saturating_add(point.negatives + point.positives);
            wanted
        });
        let kept = kept.count();
        self.points.drain(..self.points.len() - kept);
        self.settled = self.points.len();
    }
}
