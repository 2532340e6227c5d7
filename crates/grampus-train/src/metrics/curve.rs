//! Exact curves over all thresholds.

use serde::{Deserialize, Serialize};

use super::error::MetricError;
use super::fit;
use super::ranking::{ALL, Ranking};
use super::values::{Values, for_each_row};

/// Which curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Curve {
    /// `fpr` and `tpr` from the highest threshold to the lowest, after a point with nothing found.
    Roc,
    /// `precision` and `recall` from the lowest threshold to the highest, before a point with nothing found.
    PrecisionRecall,
}

impl Curve {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Roc => "ROC",
            Self::PrecisionRecall => "PrecisionRecallCurve",
        }
    }
}

/// Every score that was seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Scores {
    pub kind: Curve,
    ranking: Ranking,
}

impl Scores {
    pub fn new(kind: Curve) -> Self {
        Self {
            kind,
            ranking: Ranking::default(),
        }
    }

    pub fn update(&mut self, predictions: &Values<'_>, targets: &Values<'_>) -> Result<(), MetricError> {
        let metric = self.kind.name();
        if !fit::in_pairs(predictions, targets) {
            let needs = "one score for each target";
            return Err(MetricError::misfit(metric, predictions, targets, needs));
        }
        fit::check_labels(metric, targets, 2, 0)?;
        fit::check_scores(metric, predictions)?;
        for_each_row(predictions, targets, (1, 1), |score, label| {
            self.ranking.add(score[0], label[0] == 1.0);
        });
        self.ranking.settle_at_times(ALL);
        Ok(())
    }

    pub fn merge(&mut self, other: &Self) {
        self.ranking.merge(&other.ranking);
        self.ranking.settle_at_times(ALL);
    }

    /// The same, with equal scores counted together.
    pub fn settled(&self) -> Self {
        Self {
            kind: self.kind,
            ranking: self.ranking.settled(ALL),
        }
    }

    /// The arrays of the curve, by name.
    pub fn value(&self) -> Vec<(&'static str, Vec<f64>)> {
        let ranking = self.ranking.settled(ALL);
        let points = ranking.points();
        let (mut negatives, mut positives) = (0, 0);
        // Found at each threshold, from the highest on: how many of either class.
        let found = points.iter().rev().map(|point| {
            negatives += point.negatives;
            positives += point.positives;
            (negatives, positives)
        });
        let found: Vec<(u64, u64)> = found.collect();
        let (negatives, positives) = found.last().copied().unwrap_or_default();
        let thresholds = points.iter().map(|point| point.score);
        let share = |part: u64, whole: u64| part as f64 / whole as f64;
        match self.kind {
            Curve::Roc => {
                let found: Vec<(u64, u64)> = std::iter::once((0, 0)).chain(found).collect();
                vec![
                    ("fpr", found.iter().map(|(no, _)| share(*no, negatives)).collect()),
                    (
                        "tpr",
                        found.iter().map(|(_, yes)| share(*yes, positives)).collect(),
                    ),
                    (
                        "thresholds",
                        std::iter::once(f64::INFINITY).chain(thresholds.rev()).collect(),
                    ),
                ]
            }
            Curve::PrecisionRecall => {
                let upwards = || found.iter().rev();
                let precision = upwards().map(|(no, yes)| share(*yes, no + yes));
                let recall = upwards().map(|(_, yes)| share(*yes, positives));
                vec![
                    ("precision", precision.chain([1.0]).collect()),
                    ("recall", recall.chain([0.0]).collect()),
                    ("thresholds", thresholds.collect()),
                ]
            }
        }
    }
}
