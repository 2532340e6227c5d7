//! Losses whose target is the number of a class.

use crate::error::NativeError;
use crate::real::Real;

use super::Judged;

pub(super) struct Classes<'a> {
    pub(super) name: &'static str,
    pub(super) weights: Option<&'a [f64]>,
    pub(super) smoothing: f64,
    pub(super) ignored: Option<i64>,
    /// Whether scores come in, and not yet logarithms of probabilities.
    pub(super) from_scores: bool,
}

/// The classes lie along the first axis of a row; all other axes are places that are judged by themselves.
struct Axes {
    classes: usize,
    places: usize,
}

impl Classes<'_> {
    /// Whether targets do not all count the same.
    pub(super) fn weighs(&self) -> bool {
        self.weights.is_some() || self.ignored.is_some()
    }

    /// What a target counts for; one that cannot be is found when its row is judged.
    pub(super) fn counts<T: Real>(&self, target: T) -> f64 {
        let value = target.wide();
        match (self.ignored, self.weights) {
            (Some(ignored), _) if value == ignored as f64 => 0.0,
            (_, Some(weights)) => weights.get(value as usize).copied().unwrap_or(1.0),
            (_, None) => 1.0,
        }
    }

    /// What all targets count for, each of which must be a class.
    fn whole<T: Real>(&self, judged: Judged<'_, T>, axes: &Axes) -> Result<f64, NativeError> {
        let mut sum = 0.0;
        for (at, target) in judged.target.iter().enumerate() {
            if let Some(class) = self.class(*target, at / axes.places, axes.classes)? {
                sum += self.weights.map_or(1.0, |weights| weights[class]);
            }
        }
        Ok(sum)
    }

    pub(super) fn apply<T: Real>(
        &self,
        judged: Judged<'_, T>,
        share: f64,
        gradient: &mut [T],
    ) -> Result<f64, NativeError> {
        let axes = self.axes(judged)?;
        let whole = self.whole(judged, &axes)?;
        // Rows that count for nothing have no gradient, though their mean is not a number.
        let scale = if share == 0.0 { 0.0 } else { share / whole };
        let per_row = axes.classes * axes.places;
        let mut logs = vec![0.0; axes.classes];
        let mut sum = 0.0;
        for at in 0..judged.rows * axes.places {
            let (row, place) = (at / axes.places, at % axes.places);
            let start = row * per_row + place;
            let scores = (0..axes.classes).map(|class| judged.output[start + class * axes.places].wide());
            if self.from_scores {
                log_softmax(scores, &mut logs);
            } else {
                logs.iter_mut().zip(scores).for_each(|(log, score)| *log = score);
            }
            let class = self.class(judged.target[at], row, axes.classes)?;
            sum += self.one(class, &logs, scale, |class, value| {
                gradient[start + class * axes.places] = T::of(value);
            });
        }
        Ok(sum / whole)
    }

    /// Loss of one place, before it is divided by what all count for, and its gradient times `scale`.
    fn one(&self, class: Option<usize>, logs: &[f64], scale: f64, mut tell: impl FnMut(usize, f64)) -> f64 {
        let weight = |class: usize| self.weights.map_or(1.0, |weights| weights[class]);
        let Some(right) = class else {
            (0..logs.len()).for_each(|class| tell(class, 0.0));
            return 0.0;
        };
        let even = self.smoothing / logs.len() as f64;
        // What each class is wanted with, times what it counts for.
        let wanted = |class: usize| {
            let own = if class == right { 1.0 - self.smoothing } else { 0.0 };
            (own + even) * weight(class)
        };
        let total: f64 = match self.smoothing == 0.0 {
            true => weight(right),
            false => (0..logs.len()).map(wanted).sum(),
        };
        let mut loss = 0.0;
        for (class, log) in logs.iter().enumerate() {
            let wanted = wanted(class);
            if wanted != 0.0 {
                loss -= wanted * log;
            }
            let slope = if self.from_scores {
                log.exp() * total - wanted
            } else {
                -wanted
            };
            tell(class, slope * scale);
        }
        loss
    }

    fn axes<T>(&self, judged: Judged<'_, T>) -> Result<Axes, NativeError> {
        let shape = judged.output_shape;
        let Some((classes, others)) = shape.axes().split_first() else {
            return Err(NativeError::Input(format!(
                "{} needs a score for each class, and {shape} came out",
                self.name
            )));
        };
        let places: usize = others.iter().product();
        if judged.target.len() != judged.rows * places {
            return Err(NativeError::Input(format!(
                "{} needs the number of a class for each of {places} places of a row, and targets of {} came",
                self.name, judged.target_shape
            )));
        }
        if let Some(weights) = self.weights
            && weights.len() != *classes
        {
            return Err(NativeError::Input(format!(
                "{} has weights for {} classes, and the model has {classes}",
                self.name,
                weights.len()
            )));
        }
        Ok(Axes {
            classes: *classes,
            places,
        })
    }

    /// The class that is meant; nothing where it counts for nothing.
    fn class<T: Real>(&self, target: T, row: usize, classes: usize) -> Result<Option<usize>, NativeError> {
        let value = target.wide();
        if self.ignored.is_some_and(|ignored| value == ignored as f64) {
            return Ok(None);
        }
        if value >= 0.0 && value < classes as f64 && value.fract() == 0.0 {
            return Ok(Some(value as usize));
        }
        Err(NativeError::Row {
            row,
            reason: format!(
                "the label is {value}, and there are classes from 0 to {}",
                classes - 1
            ),
        })
    }
}

/// Logarithms of probabilities, from scores.
fn log_softmax(scores: impl Iterator<Item = f64> + Clone, logs: &mut [f64]) {
    let greatest = scores.clone().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.clone().map(|score| (score - greatest).exp()).sum();
    let below = greatest + sum.ln();
    for (log, score) in logs.iter_mut().zip(scores) {
        *log = score - below;
    }
}
