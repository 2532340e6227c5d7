//! The area under the ROC curve, from a histogram of probabilities.

use serde::{Deserialize, Serialize};

use super::error::MetricError;
use super::fit;
use super::values::{Values, for_each_row};

pub(super) const NAME: &str = "AUC";

/// 0 and 1 are always thresholds.
pub(super) const LEAST: u32 = 2;

/// Counts of targets of both classes between one threshold and the next.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "Vec<[u64; 2]>", try_from = "Vec<[u64; 2]>")]
pub(super) struct Histogram {
    /// Of each: scores from threshold `i / (n - 1)` to the next; first the negatives, then the positives.
    bins: Vec<[u64; 2]>,
}

impl Histogram {
    pub fn new(thresholds: u32) -> Self {
        Self {
            bins: vec![[0; 2]; thresholds as usize],
        }
    }

    pub fn thresholds(&self) -> u32 {
        self.bins.len() as u32
    }

    pub fn update(&mut self, predictions: &Values<'_>, targets: &Values<'_>) -> Result<(), MetricError> {
        if !fit::in_pairs(predictions, targets) {
            let needs = "one probability for each target";
            return Err(MetricError::misfit(NAME, predictions, targets, needs));
        }
        fit::check_labels(NAME, targets, 2, 0)?;
        if let Some((position, score)) = predictions.find(|score| !(0.0..=1.0).contains(&score)) {
            return Err(MetricError::Score {
                metric: NAME,
                score,
                position,
                needs: "probabilities from 0 to 1: let the model end in a sigmoid",
            });
        }
        let last = self.bins.len() - 1;
        for_each_row(predictions, targets, (1, 1), |score, label| {
            self.bins[bin(score[0], last)][usize::from(label[0] == 1.0)] += 1;
        });
        Ok(())
    }

    pub fn merge(&mut self, other: &Self) {
        for (bin, added) in self.bins.iter_mut().zip(&other.bins) {
            bin[0] += added[0];
            bin[1] += added[1];
        }
    }

    /// The trapezoids between the thresholds: pairs of a positive and a negative that stand in the right order,
    /// half of those that fell between the same thresholds, and all pairs.
    pub fn value(&self) -> f64 {
        let (mut positives, mut negatives, mut halves) = (0u128, 0u128, 0u128);
        for [no, yes] in self.bins.iter().rev().map(|bin| bin.map(u128::from)) {
            halves += no * (2 * positives + yes);
            positives += yes;
            negatives += no;
        }
        halves as f64 / (2 * positives * negatives) as f64
    }
}

impl From<Histogram> for Vec<[u64; 2]> {
    fn from(histogram: Histogram) -> Self {
        histogram.bins
    }
}

impl TryFrom<Vec<[u64; 2]>> for Histogram {
    type Error = &'static str;

    fn try_from(bins: Vec<[u64; 2]>) -> Result<Self, Self::Error> {
        if bins.len() < LEAST as usize || u32::try_from(bins.len()).is_err() {
            return Err("a histogram has too few bins or too many");
        }
        Ok(Self { bins })
    }
}

/// The last threshold that the score reaches.
fn bin(score: f64, last: usize) -> usize {
    let threshold = |index: usize| index as f64 / last as f64;
    let near = ((score * last as f64) as usize).min(last);
    // The product is rounded: it may be off by one on either side.
    if threshold(near) > score {
        near - 1
    } else if near < last && threshold(near + 1) <= score {
        near + 1
    } else {
        near
    }
}
