//! Where a recommender puts the one item of a group that is right.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::MetricError;
use super::fit;
use super::values::{Values, for_each_row};

/// What counts for a group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Recommended {
    /// One if the positive is among the first.
    HitRatio,
    /// `1 / log2(1 + place)` if the positive is among the first; places count from 1.
    Ndcg,
}

/// Groups of one positive and some negatives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Groups {
    /// What counts.
    pub kind: Recommended,
    /// How many places are the first.
    pub first: u32,
    /// How many negatives a group has.
    pub negatives: u32,
}

impl Groups {
    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            Recommended::HitRatio => "HitRatio",
            Recommended::Ndcg => "NDCG",
        }
    }

    fn size(&self) -> usize {
        self.negatives as usize + 1
    }

    fn gain(&self, place: u32) -> f64 {
        match self.kind {
            Recommended::HitRatio => 1.0,
            Recommended::Ndcg => 1.0 / (f64::from(place) + 1.0).log2(),
        }
    }
}

/// How many positives stand at each of the first places.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Places {
    pub of: Groups,
    counts: BTreeMap<u32, u64>,
    groups: u64,
}

impl Places {
    pub fn new(of: Groups) -> Self {
        Self {
            of,
            counts: BTreeMap::new(),
            groups: 0,
        }
    }

    pub fn update(&mut self, predictions: &Values<'_>, targets: &Values<'_>) -> Result<(), MetricError> {
        self.check(predictions, targets)?;
        let size = self.of.size();
        for_each_row(predictions, targets, (size, size), |scores, group| {
            let place = place(scores, group);
            if place <= self.of.first {
                *self.counts.entry(place).or_default() += 1;
            }
            self.groups += 1;
        });
        Ok(())
    }

    pub fn merge(&mut self, other: &Self) {
        for (place, count) in &other.counts {
            *self.counts.entry(*place).or_default() += count;
        }
        self.groups += other.groups;
    }

    pub fn value(&self) -> f64 {
        let gains = self
            .counts
            .iter()
            .map(|(place, count)| *count as f64 * self.of.gain(*place));
        // The sum of no floats is minus zero.
        (0.0 + gains.sum::<f64>()) / self.groups as f64
    }

    /// Whether these are whole groups with one positive each.
    fn check(&self, predictions: &Values<'_>, targets: &Values<'_>) -> Result<(), MetricError> {
        let (metric, size) = (self.of.name(), self.of.size());
        let flat = fit::is_flat(targets);
        let grouped = targets.shape().len() > 1 && targets.shape().last() == Some(&size);
        if !fit::in_pairs(predictions, targets) || !(flat || grouped) {
            let needs = "a row of 1 + neg_num scores for each group, and targets of the same shape; or such groups one \
                         after the other along one axis";
            return Err(MetricError::misfit(metric, predictions, targets, needs));
        }
        if !targets.count().is_multiple_of(size) {
            return Err(MetricError::Cut {
                metric,
                rows: targets.count(),
                size,
            });
        }
        fit::check_labels(metric, targets, 2, 0)?;
        let mut wrong = None;
        let mut group = 0;
        for_each_row(targets, targets, (size, size), |labels, _| {
            let positives = labels.iter().filter(|label| **label == 1.0).count();
            if positives != 1 && wrong.is_none() {
                wrong = Some(MetricError::Positives {
                    metric,
                    group,
                    size,
                    positives,
                });
            }
            group += 1;
        });
        wrong.map_or(Ok(()), Err)
    }
}

/// Where the positive stands, from 1 on. Of equal scores the negatives stand first, and so does what is no number.
fn place(scores: &[f64], group: &[f64]) -> u32 {
    let own = scores
        .iter()
        .zip(group)
        .find(|(_, label)| **label == 1.0)
        .map_or(f64::NAN, |(score, _)| *score);
    // The positive is not below itself: it counts for its own place.
    let ahead = scores
        .iter()
        .filter(|score| score.partial_cmp(&&own) != Some(Ordering::Less));
    ahead.count() as u32
}
