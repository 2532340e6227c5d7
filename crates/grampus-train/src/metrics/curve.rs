//! Exact curves over all thresholds.

use serde::{Deserialize, Serialize};

use super::error::MetricError;
use super::fit;
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

/// How many targets of each class have a score.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Point {
    score: f64,
    negatives: u64,
    positives: u64,
}

/// Every score that was seen. It grows with the number of different scores.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Scores {
    pub kind: Curve,
    /// The first `settled` are in order, and no two scores are equal; the rest came later.
    points: Vec<Point>,
    #[serde(skip)]
    settled: usize,
}

impl Scores {
    pub fn new(kind: Curve) -> Self {
        Self {
            kind,
            points: Vec::new(),
            settled: 0,
        }
    }

    pub fn update(&mut self, predictions: &Values<'_>, targets: &Values<'_>) -> Result<(), MetricError> {
        let metric = self.kind.name();
        if !fit::in_pairs(predictions, targets) {
            let needs = "one score for each target";
            return Err(MetricError::misfit(metric, predictions, targets, needs));
        }
        fit::check_labels(metric, targets, 2, 0)?;
        if let Some((position, score)) = predictions.find(f64::is_nan) {
            return Err(MetricError::Score {
                metric,
                score,
                position,
                needs: "numbers, which have an order",
            });
        }
        for_each_row(predictions, targets, (1, 1), |score, label| {
            let positives = u64::from(label[0] == 1.0);
            self.points.push(Point {
                // Plus zero: the two zeros are one score.
                score: score[0] + 0.0,
                negatives: 1 - positives,
                positives,
            });
        });
        self.settle_at_times();
        Ok(())
    }

    pub fn merge(&mut self, other: &Self) {
        self.points.extend(&other.points);
        self.settle_at_times();
    }

    /// The same, with equal scores counted together.
    pub fn settled(&self) -> Self {
        let mut scores = self.clone();
        scores.settle();
        scores
    }

    /// The arrays of the curve, by name.
    pub fn value(&self) -> Vec<(&'static str, Vec<f64>)> {
        let points = self.settled().points;
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

    /// Now and then, so that equal scores take no memory and the cost of it stays small.
    fn settle_at_times(&mut self) {
        const FEW: usize = 4096;
        if self.points.len() > 2 * self.settled + FEW {
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.points
            .sort_by(|one, other| one.score.total_cmp(&other.score));
        self.points.dedup_by(|later, kept| {
            let same = later.score == kept.score;
            if same {
                kept.negatives += later.negatives;
                kept.positives += later.positives;
            }
            same
        });
        self.settled = self.points.len();
    }
}
