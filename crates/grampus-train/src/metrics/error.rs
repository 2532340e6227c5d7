//! What can be wrong with a metric and with what it is given.

use std::fmt;

use grampus_collective::DType;

use super::values::Values;

/// Type and shape of an array, as errors name them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Type of the elements.
    pub dtype: DType,
    /// Lengths of the axes.
    pub shape: Vec<usize>,
}

impl fmt::Display for Described {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "shape {:?} ({})", self.shape, self.dtype)
    }
}

/// Why a metric refused something. A state that refused a batch is as it was before.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MetricError {
    /// Types or shapes that do not go together.
    #[error("{metric} cannot take predictions of {predictions} with targets of {targets}: it needs {needs}")]
    Misfit {
        /// Name of the metric.
        metric: &'static str,
        /// What was predicted.
        predictions: Described,
        /// What was to be predicted.
        targets: Described,
        /// What would do.
        needs: &'static str,
    },
    /// A target that is no class.
    #[error(
        "{metric} cannot take the target {label} (at position {position}): the {classes} classes count from {first}"
    )]
    Label {
        /// Name of the metric.
        metric: &'static str,
        /// The target.
        label: f64,
        /// Where it stands in the batch.
        position: usize,
        /// Number of classes.
        classes: usize,
        /// The smallest label.
        first: usize,
    },
    /// A box of no class.
    #[error(
        "{metric} cannot take a box of class {class} (at position {position} of the {side}): the {classes} classes count \
         from 0, and less than 0 is no box"
    )]
    Box {
        /// Name of the metric.
        metric: &'static str,
        /// Its class.
        class: f64,
        /// Where it stands in the batch.
        position: usize,
        /// Whether it was predicted, or was to be.
        side: &'static str,
        /// Number of classes.
        classes: u32,
    },
    /// A score that cannot be put in order.
    #[error("{metric} cannot take the score {score} (at position {position}): it needs {needs}")]
    Score {
        /// Name of the metric.
        metric: &'static str,
        /// The score.
        score: f64,
        /// Where it stands in the batch.
        position: usize,
        /// What would do.
        needs: &'static str,
    },
    /// Rows that are no whole number of groups.
    #[error(
        "{metric} cannot take {rows} rows, which are no whole groups of {size}: let a row hold the scores of a group, or \
         choose a batch_size of which each lane gets whole groups"
    )]
    Cut {
        /// Name of the metric.
        metric: &'static str,
        /// The rows that came.
        rows: usize,
        /// Rows of a group.
        size: usize,
    },
    /// A group that has no positive, or several.
    #[error(
        "{metric} cannot take {positives} targets of 1 in group {group} of the batch: each group of {size} needs one, and \
         its rows must stand together"
    )]
    Positives {
        /// Name of the metric.
        metric: &'static str,
        /// Which group of the batch.
        group: usize,
        /// Rows of a group.
        size: usize,
        /// Targets of 1 in it.
        positives: usize,
    },
    /// A number of classes that differs from that of the batches before.
    #[error("{metric} has seen {before} classes and cannot take {now}: let all batches have the same")]
    Classes {
        /// Name of the metric.
        metric: &'static str,
        /// Classes of what was counted already.
        before: usize,
        /// Classes of what came now.
        now: usize,
    },
    /// States of two different metrics.
    #[error("a state of {one} cannot be merged with a state of {other}: merge states of equal metrics")]
    Merge {
        /// The metric that was to take the other's state.
        one: String,
        /// The metric whose state was offered.
        other: String,
    },
    /// A name that no metric has.
    #[error("there is no metric {name:?}: choose one of {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// An option that the metric does not have, or a value that it cannot take.
    #[error("{metric} cannot take {option}={value}: it needs {needs}")]
    Option {
        /// Name of the metric.
        metric: String,
        /// Name of the option.
        option: String,
        /// Its value.
        value: String,
        /// What would do.
        needs: String,
    },
    /// An option without which there is no metric.
    #[error("{metric} needs {option}: give it")]
    Missing {
        /// Name of the metric.
        metric: String,
        /// Name of the option.
        option: String,
    },
    /// Memory whose length does not fit the shape.
    #[error("{bytes} bytes are no array of {described}: pass all of its elements")]
    Length {
        /// What the array was said to be.
        described: Described,
        /// The bytes that came.
        bytes: usize,
    },
    /// Bytes that are no state.
    #[error("these bytes are no state of a metric: pass what `to_bytes` of the same version gave ({why})")]
    Bytes {
        /// What was found.
        why: String,
    },
}

impl MetricError {
    pub(super) fn misfit(
        metric: &'static str,
        predictions: &Values<'_>,
        targets: &Values<'_>,
        needs: &'static str,
    ) -> Self {
        Self::Misfit {
            metric,
            predictions: predictions.described(),
            targets: targets.described(),
            needs,
        }
    }
}
