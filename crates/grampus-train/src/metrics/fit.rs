//! How the shapes of predictions and targets go together.

use super::error::MetricError;
use super::values::Values;

/// A trailing axis of one element is no axis: columns of tables have it, and models with one output.
fn forms(shape: &[usize]) -> impl Iterator<Item = &[usize]> {
    let without = shape
        .split_last()
        .filter(|(last, _)| **last == 1)
        .map(|(_, rest)| rest);
    std::iter::once(shape).chain(without)
}

/// Whether each prediction has its own target.
pub(super) fn in_pairs(predictions: &Values<'_>, targets: &Values<'_>) -> bool {
    forms(predictions.shape()).any(|left| forms(targets.shape()).any(|right| left == right))
}

/// Whether all elements stand along one axis.
pub(super) fn is_flat(values: &Values<'_>) -> bool {
    forms(values.shape()).any(|shape| shape.len() == 1)
}

/// The number of classes, if each target has one score for each of them, along the last axis.
pub(super) fn classes(predictions: &Values<'_>, targets: &Values<'_>) -> Option<usize> {
    forms(predictions.shape()).find_map(|scores| {
        let (classes, rows) = scores.split_last()?;
        let fits = *classes > 0 && forms(targets.shape()).any(|shape| shape == rows);
        fits.then_some(*classes)
    })
}

/// The number of classes, if predictions and targets both are rows with a number for each class.
pub(super) fn distributions(predictions: &Values<'_>, targets: &Values<'_>) -> Option<usize> {
    let shape = predictions.shape();
    let classes = *shape.last()?;
    (shape.len() > 1 && classes > 0 && shape == targets.shape()).then_some(classes)
}

/// Checks that every target is one of so many classes.
pub(super) fn check_labels(
    metric: &'static str,
    targets: &Values<'_>,
    classes: usize,
    first: usize,
) -> Result<(), MetricError> {
    match targets.find(|label| !is_label(label, classes, first)) {
        Some((position, label)) => check_label(metric, position, label, classes, first),
        None => Ok(()),
    }
}

/// Checks that a target is one of so many classes.
pub(super) fn check_label(
    metric: &'static str,
    position: usize,
    label: f64,
    classes: usize,
    first: usize,
) -> Result<(), MetricError> {
    if is_label(label, classes, first) {
        return Ok(());
    }
    Err(MetricError::Label {
        metric,
        label,
        position,
        classes,
        first,
    })
}

/// Whether it is one of so many classes.
pub(super) fn is_label(label: f64, classes: usize, first: usize) -> bool {
    label >= first as f64 && label < (first + classes) as f64 && label.fract() == 0.0
}

/// Checks that scores have an order.
pub(super) fn check_scores(metric: &'static str, predictions: &Values<'_>) -> Result<(), MetricError> {
    match predictions.find(f64::is_nan) {
        Some((position, score)) => check_score(metric, position, score),
        None => Ok(()),
    }
}

/// Checks that a score has a place in an order.
pub(super) fn check_score(metric: &'static str, position: usize, score: f64) -> Result<(), MetricError> {
    if score.is_nan() {
        return Err(MetricError::Score {
            metric,
            score,
            position,
            needs: "numbers, which have an order",
        });
    }
    Ok(())
}

/// The class with the highest score, the first of several; NaN is higher than all, as for numpy and torch.
pub(super) fn highest(scores: &[f64]) -> usize {
    let mut best = 0;
    for (class, score) in scores.iter().enumerate() {
        if *score > scores[best] || (score.is_nan() && !scores[best].is_nan()) {
            best = class;
        }
    }
    best
}

/// How many classes stand before this one when they are put in order of their scores, by the rule of [`highest`].
pub(super) fn place(scores: &[f64], class: usize) -> usize {
    let Some((own, after)) = scores.get(class..).and_then(<[f64]>::split_first) else {
        return scores.len();
    };
    let before = &scores[..class];
    if own.is_nan() {
        return before.iter().filter(|score| score.is_nan()).count();
    }
    let ahead = before.iter().filter(|score| **score >= *own || score.is_nan());
    ahead.count()
        + after
            .iter()
            .filter(|score| **score > *own || score.is_nan())
            .count()
}
