//! The mean, over classes, of the area under the curve of precision and recall.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::boxes;
use super::error::MetricError;
use super::fit;
use super::ranking::{ALL, Ranking};
use super::values::{Values, for_each_row};

/// What is found, and how the area is taken.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum AveragePrecision {
    /// Rows of a class, by its score.
    Rows {
        /// How many of the highest scores of a class count; all, if it is not said.
        first: Option<u32>,
        /// Number of classes.
        classes: u32,
    },
    /// Objects of a class in images, by boxes around them.
    Boxes {
        /// Number of classes.
        classes: u32,
        /// A box is found by one that covers so much of what both cover together.
        iou: f64,
        /// Whether precision is read at eleven recalls, as for VOC until 2009, or else at each.
        use_voc2007: bool,
        /// A class that does not count, such as the background.
        skip_class: Option<u32>,
    },
}

impl AveragePrecision {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Rows { .. } => "MeanAveragePrecision",
            Self::Boxes { .. } => boxes::NAME,
        }
    }

    fn first(&self) -> u64 {
        match self {
            Self::Rows {
                first: Some(first), ..
            } => u64::from(*first),
            _ => ALL,
        }
    }

    fn skips(&self, class: u32) -> bool {
        matches!(self, Self::Boxes { skip_class: Some(skipped), .. } if *skipped == class)
    }
}

/// What was found of a class, right or wrong, by its score; and how often it is there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Class {
    there: u64,
    found: Ranking,
}

/// All classes that were seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Found {
    pub kind: AveragePrecision,
    classes: BTreeMap<u32, Class>,
}

impl Found {
    pub fn new(kind: AveragePrecision) -> Self {
        Self {
            kind,
            classes: BTreeMap::new(),
        }
    }

    pub fn update(&mut self, predictions: &Values<'_>, targets: &Values<'_>) -> Result<(), MetricError> {
        match self.kind {
            AveragePrecision::Rows { classes, .. } => self.rows(predictions, targets, classes)?,
            AveragePrecision::Boxes { classes, iou, .. } => self.boxes(predictions, targets, classes, iou)?,
        }
        self.settle_at_times();
        Ok(())
    }

    pub fn merge(&mut self, other: &Self) {
        for (class, more) in &other.classes {
            let class = self.classes.entry(*class).or_default();
            class.there += more.there;
            class.found.merge(&more.found);
        }
        self.settle_at_times();
    }

    /// The same, with equal scores counted together.
    pub fn settled(&self) -> Self {
        let mut settled = self.clone();
        for class in settled.classes.values_mut() {
            class.found = class.found.settled(self.kind.first());
        }
        settled
    }

    /// The mean over the classes that are there.
    pub fn value(&self) -> f64 {
        let there = self
            .classes
            .iter()
            .filter(|(class, of)| of.there > 0 && !self.kind.skips(**class));
        let areas: Vec<f64> = there.map(|(_, class)| self.area(class)).collect();
        areas.iter().sum::<f64>() / areas.len() as f64
    }

    fn rows(&mut self, predictions: &Values<'_>, targets: &Values<'_>, classes: u32) -> Updated {
        let width = classes as usize;
        if fit::classes(predictions, targets) != Some(width) {
            let needs =
                "one axis more in the predictions, the last, with a score for each of `classes` classes";
            return Err(MetricError::misfit(self.kind.name(), predictions, targets, needs));
        }
        fit::check_labels(self.kind.name(), targets, width, 0)?;
        fit::check_scores(self.kind.name(), predictions)?;
        for_each_row(predictions, targets, (width, 1), |scores, label| {
            for (class, score) in (0..classes).zip(scores) {
                let right = f64::from(class) == label[0];
                let class = self.classes.entry(class).or_default();
                class.found.add(*score, right);
                class.there += u64::from(right);
            }
        });
        Ok(())
    }

    fn boxes(&mut self, predictions: &Values<'_>, targets: &Values<'_>, classes: u32, iou: f64) -> Updated {
        boxes::check(predictions, targets, classes)?;
        for image in boxes::images(predictions, targets) {
            for there in &image.there {
                self.classes.entry(there.class).or_default().there += 1;
            }
            for (found, right) in image.compared(iou) {
                let class = self.classes.entry(found.class).or_default();
                class.found.add(found.score, right);
            }
        }
        Ok(())
    }

    fn settle_at_times(&mut self) {
        let first = self.kind.first();
        for class in self.classes.values_mut() {
            class.found.settle_at_times(first);
        }
    }

    fn area(&self, class: &Class) -> f64 {
        let steps = steps(&class.found.settled(self.kind.first()), self.kind.first());
        match self.kind {
            AveragePrecision::Boxes {
                use_voc2007: true, ..
            } => at_eleven_recalls(&steps, class.there),
            _ => at_each_recall(&steps, class.there),
        }
    }
}

type Updated = Result<(), MetricError>;

/// What is right down to a score: with it alone, down to it, and its share of all that was found.
struct Step {
    more: u64,
    right: u64,
    precision: f64,
}

/// From the highest score to the lowest. Of equal scores, those that are wrong stand first.
fn steps(found: &Ranking, first: u64) -> Vec<Step> {
    let (mut right, mut all) = (0, 0);
    let steps = found.points().iter().rev().map(|point| {
        all += point.negatives;
        let more = point.positives.min(first.saturating_sub(all));
        all += more;
        right += more;
        let precision = right as f64 / all as f64;
        Step {
            more,
            right,
            precision,
        }
    });
    steps.collect()
}

/// The mean over all that is there of the highest precision with which it, and all before it, was found.
fn at_each_recall(steps: &[Step], there: u64) -> f64 {
    let mut best = 0.0f64;
    let mut area = 0.0;
    for step in steps.iter().rev().filter(|step| step.more > 0) {
        best = best.max(step.precision);
        area += best * step.more as f64;
    }
    area / there as f64
}

/// The mean, over recalls of 0, 0.1, … 1, of the highest precision with which so much was found.
fn at_eleven_recalls(steps: &[Step], there: u64) -> f64 {
    let highest = |tenths: u128| {
        let enough = steps
            .iter()
            .filter(|step| step.more > 0 && u128::from(step.right) * 10 >= tenths * u128::from(there));
        enough.map(|step| step.precision).fold(0.0, f64::max)
    };
    (0..=10).map(highest).sum::<f64>() / 11.0
}
