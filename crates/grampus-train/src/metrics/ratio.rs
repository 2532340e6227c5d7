//! Precision, recall and what is made of both.

use serde::{Deserialize, Serialize};

use super::error::MetricError;
use super::fit;
use super::values::{Values, for_each_row};

/// A ratio of counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ratio {
    /// Of what was found, the share that is right.
    Precision,
    /// Of what is there, the share that was found.
    Recall,
    /// The harmonic mean of both.
    F1Score,
}

/// How the classes are put together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Average {
    /// One class: predictions of 0.5 and more mean that it is there.
    Binary,
    /// Several classes, the one with the highest score is meant; all are counted together.
    Micro,
    /// Several classes, the one with the highest score is meant; the mean of their ratios. A class that was
    /// neither there nor found is left out.
    Macro,
}

impl Ratio {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Precision => "Precision",
            Self::Recall => "Recall",
            Self::F1Score => "F1Score",
        }
    }

    /// Of nothing, it is zero.
    fn of(self, class: Class) -> f64 {
        let (above, below) = match self {
            Self::Precision => (class.right, class.right + class.wrong),
            Self::Recall => (class.right, class.right + class.missed),
            Self::F1Score => (2 * class.right, 2 * class.right + class.wrong + class.missed),
        };
        above as f64 / below.max(1) as f64
    }
}

/// How often a class was found where it is, found where it is not, and not found where it is.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Class {
    right: u64,
    wrong: u64,
    missed: u64,
}

impl Class {
    fn plus(self, other: Self) -> Self {
        Self {
            right: self.right + other.right,
            wrong: self.wrong + other.wrong,
            missed: self.missed + other.missed,
        }
    }
}

/// Counts for each class; just one where there are two.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Counts {
    pub kind: Ratio,
    pub average: Average,
    classes: Vec<Class>,
    rows: u64,
}

impl Counts {
    pub fn new(kind: Ratio, average: Average) -> Self {
        Self {
            kind,
            average,
            classes: Vec::new(),
            rows: 0,
        }
    }

    pub fn update(&mut self, predictions: &Values<'_>, targets: &Values<'_>) -> Result<(), MetricError> {
        match self.average {
            Average::Binary => self.binary(predictions, targets)?,
            Average::Micro | Average::Macro => self.several(predictions, targets)?,
        }
        self.rows += targets.count() as u64;
        Ok(())
    }

    pub fn merge(&mut self, other: &Self) -> Result<(), MetricError> {
        if !other.classes.is_empty() {
            self.expect_classes(other.classes.len())?;
        }
        for (class, added) in self.classes.iter_mut().zip(&other.classes) {
            *class = class.plus(*added);
        }
        self.rows += other.rows;
        Ok(())
    }

    pub fn value(&self) -> f64 {
        if self.rows == 0 {
            return f64::NAN;
        }
        if self.average == Average::Macro {
            let seen = self
                .classes
                .iter()
                .filter(|class| class.right + class.wrong + class.missed > 0);
            let ratios: Vec<f64> = seen.map(|class| self.kind.of(*class)).collect();
            return ratios.iter().sum::<f64>() / ratios.len() as f64;
        }
        self.kind
            .of(self.classes.iter().copied().fold(Class::default(), Class::plus))
    }

    fn binary(&mut self, predictions: &Values<'_>, targets: &Values<'_>) -> Result<(), MetricError> {
        if !fit::in_pairs(predictions, targets) {
            let needs =
                "one prediction for each target, or average=\"micro\" or \"macro\" for scores of classes";
            return Err(MetricError::misfit(self.kind.name(), predictions, targets, needs));
        }
        fit::check_labels(self.kind.name(), targets, 2, 0)?;
        self.expect_classes(1)?;
        let class = &mut self.classes[0];
        for_each_row(predictions, targets, (1, 1), |score, label| {
            match (score[0] >= 0.5, label[0] == 1.0) {
                (true, true) => class.right += 1,
                (true, false) => class.wrong += 1,
                (false, true) => class.missed += 1,
                (false, false) => {}
            }
        });
        Ok(())
    }

    fn several(&mut self, predictions: &Values<'_>, targets: &Values<'_>) -> Result<(), MetricError> {
        let Some(classes) = fit::classes(predictions, targets) else {
            let needs = "one axis more in the predictions, the last, with a score for each class; or \
                         average=\"binary\" for one prediction for each target";
            return Err(MetricError::misfit(self.kind.name(), predictions, targets, needs));
        };
        fit::check_labels(self.kind.name(), targets, classes, 0)?;
        self.expect_classes(classes)?;
        for_each_row(predictions, targets, (classes, 1), |scores, label| {
            let (found, there) = (fit::highest(scores), label[0] as usize);
            if found == there {
                self.classes[there].right += 1;
            } else {
                self.classes[found].wrong += 1;
                self.classes[there].missed += 1;
            }
        });
        Ok(())
    }

    fn expect_classes(&mut self, now: usize) -> Result<(), MetricError> {
        if self.classes.is_empty() {
            self.classes.resize(now, Class::default());
        }
        if self.classes.len() != now {
            return Err(MetricError::Classes {
                metric: self.kind.name(),
                before: self.classes.len(),
                now,
            });
        }
        Ok(())
    }
}
