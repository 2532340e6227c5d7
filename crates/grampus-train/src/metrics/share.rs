//! The share of predictions that are right.

use serde::{Deserialize, Serialize};

use super::error::MetricError;
use super::fit;
use super::values::{Values, for_each_row};

/// What counts as right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Share {
    /// Where there is a score for each class along the last axis, the highest is the target's. Else predictions and
    /// targets go in pairs: floats from 0.5 on mean the second of two classes, integers are classes themselves.
    Accuracy {
        /// Whether labels count from 0, or else from 1.
        zero_based_label: bool,
    },
    /// `Accuracy` by another name.
    Top1Accuracy {
        /// Whether labels count from 0, or else from 1.
        zero_based_label: bool,
    },
    /// The same of the first node of each row, the root of a tree.
    TreeNnAccuracy,
    /// The highest score is the target's.
    SparseCategoricalAccuracy,
    /// The highest score stands where the highest of the targets stands: targets are one-hot.
    CategoricalAccuracy,
    /// The prediction is as large as the threshold, or larger, just where the target is 1.
    BinaryAccuracy {
        /// The threshold.
        threshold: f64,
    },
    /// The target's score is one of the five highest.
    Top5Accuracy {
        /// Whether labels count from 0, or else from 1.
        zero_based_label: bool,
    },
}

impl Share {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Accuracy { .. } => "Accuracy",
            Self::Top1Accuracy { .. } => "Top1Accuracy",
            Self::TreeNnAccuracy => "TreeNNAccuracy",
            Self::SparseCategoricalAccuracy => "SparseCategoricalAccuracy",
            Self::CategoricalAccuracy => "CategoricalAccuracy",
            Self::BinaryAccuracy { .. } => "BinaryAccuracy",
            Self::Top5Accuracy { .. } => "Top5Accuracy",
        }
    }

    fn needs(&self) -> &'static str {
        match self {
            Self::TreeNnAccuracy => {
                "rows of nodes with a score for each class along a third axis, or with one score; and a target for each \
                 node"
            }
            Self::Accuracy { .. } | Self::Top1Accuracy { .. } => {
                "one axis more in the predictions, the last, with a score for each class; or one prediction for each \
                 target"
            }
            Self::SparseCategoricalAccuracy | Self::Top5Accuracy { .. } => {
                "one axis more in the predictions, the last, with a score for each class"
            }
            Self::CategoricalAccuracy => "equal shapes with the classes along the last of at least two axes",
            Self::BinaryAccuracy { .. } => "one prediction for each target",
        }
    }
}

/// Counts of what was right and of all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Hits {
    pub kind: Share,
    right: u64,
    all: u64,
}

impl Hits {
    pub fn new(kind: Share) -> Self {
        Self {
            kind,
            right: 0,
            all: 0,
        }
    }

    pub fn update(&mut self, predictions: &Values<'_>, targets: &Values<'_>) -> Result<(), MetricError> {
        let right = match self.kind {
            Share::Accuracy { zero_based_label } | Share::Top1Accuracy { zero_based_label } => {
                self.either(predictions, targets, zero_based_label)
            }
            Share::TreeNnAccuracy => self.roots(predictions, targets),
            Share::SparseCategoricalAccuracy => self.in_first(1, predictions, targets, true),
            Share::CategoricalAccuracy => self.one_hot(predictions, targets),
            Share::BinaryAccuracy { threshold } => self.over(threshold, predictions, targets, true),
            Share::Top5Accuracy { zero_based_label } => {
                self.in_first(5, predictions, targets, zero_based_label)
            }
        };
        let (right, all) = right?;
        self.right += right;
        self.all += all;
        Ok(())
    }

    pub fn merge(&mut self, other: &Self) {
        self.right += other.right;
        self.all += other.all;
    }

    pub fn value(&self) -> f64 {
        self.right as f64 / self.all as f64
    }

    fn either(&self, predictions: &Values<'_>, targets: &Values<'_>, zero_based: bool) -> Counted {
        if !fit::in_pairs(predictions, targets) {
            return self.in_first(1, predictions, targets, zero_based);
        }
        if predictions.dtype().is_float() {
            return self.over(0.5, predictions, targets, zero_based);
        }
        let same = (0..targets.count()).filter(|at| predictions.same_integer(targets, *at));
        Ok((same.count() as u64, targets.count() as u64))
    }

    /// The first node of each row, whatever the others are: they may be there to fill the row.
    fn roots(&self, predictions: &Values<'_>, targets: &Values<'_>) -> Counted {
        let one_score = fit::in_pairs(predictions, targets).then_some(1);
        let classes = one_score.or_else(|| fit::classes(predictions, targets));
        let (Some(classes), [_, nodes]) = (classes, targets.shape()) else {
            return Err(self.misfit(predictions, targets));
        };
        let mut counted = (0, 0);
        for position in (0..targets.count()).step_by((*nodes).max(1)) {
            let (label, labels) = (targets.number(position), classes.max(2));
            fit::check_label(self.kind.name(), position, label, labels, 0)?;
            let scores = predictions.row(position, classes);
            let right = match scores[..] {
                [score] => (score >= 0.5) == (label == 1.0),
                _ => fit::highest(&scores) == label as usize,
            };
            counted = (counted.0 + u64::from(right), counted.1 + 1);
        }
        Ok(counted)
    }

    /// Targets whose score is one of the highest so many.
    fn in_first(
        &self,
        many: usize,
        predictions: &Values<'_>,
        targets: &Values<'_>,
        zero_based: bool,
    ) -> Counted {
        let first = usize::from(!zero_based);
        let classes = fit::classes(predictions, targets).ok_or_else(|| self.misfit(predictions, targets))?;
        fit::check_labels(self.kind.name(), targets, classes, first)?;
        let mut right = 0;
        for_each_row(predictions, targets, (classes, 1), |scores, label| {
            right += u64::from(fit::place(scores, label[0] as usize - first) < many);
        });
        Ok((right, targets.count() as u64))
    }

    fn one_hot(&self, predictions: &Values<'_>, targets: &Values<'_>) -> Counted {
        let classes =
            fit::distributions(predictions, targets).ok_or_else(|| self.misfit(predictions, targets))?;
        let mut right = 0;
        for_each_row(predictions, targets, (classes, classes), |scores, target| {
            right += u64::from(fit::place(scores, fit::highest(target)) == 0);
        });
        Ok((right, (targets.count() / classes) as u64))
    }

    fn over(
        &self,
        threshold: f64,
        predictions: &Values<'_>,
        targets: &Values<'_>,
        zero_based: bool,
    ) -> Counted {
        if !fit::in_pairs(predictions, targets) {
            return Err(self.misfit(predictions, targets));
        }
        let first = usize::from(!zero_based);
        fit::check_labels(self.kind.name(), targets, 2, first)?;
        let (mut right, second) = (0, (first + 1) as f64);
        for_each_row(predictions, targets, (1, 1), |score, label| {
            right += u64::from((score[0] >= threshold) == (label[0] == second));
        });
        Ok((right, targets.count() as u64))
    }

    fn misfit(&self, predictions: &Values<'_>, targets: &Values<'_>) -> MetricError {
        MetricError::misfit(self.kind.name(), predictions, targets, self.kind.needs())
    }
}

/// How many were right, of how many.
type Counted = Result<(u64, u64), MetricError>;
