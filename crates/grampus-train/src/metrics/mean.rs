//! Means of a loss over elements or rows.

use serde::{Deserialize, Serialize};

use super::error::MetricError;
use super::exact::ExactSum;
use super::fit;
use super::relative;
use super::values::{Values, for_each_row};

/// Probabilities nearer to 0, or to 1 where that matters, count as this far away: a logarithm stays finite.
const MARGIN: f64 = 1e-7;

/// What metrics of numbers need that are no probabilities.
const ANY_PAIRS: &str = "one prediction for each target";

/// What is averaged.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Mean {
    /// Distance of prediction and target.
    Mae,
    /// Square of that distance.
    Mse,
    /// Square of that distance; the root of the mean.
    Rmse,
    /// `t - p`: where it is positive, predictions are too low.
    MeanError,
    /// `(t - p) / t`, in percent.
    Mpe,
    /// `|t - p| / |t|`, in percent.
    Mape,
    /// `((t - p) / t)^2`, in percent.
    Mspe,
    /// `|t - p| / (|t| + |p|)`, in percent.
    Smape,
    /// `(ln(1 + t) - ln(1 + p))^2`.
    Msle,
    /// `-t ln(p) - (1 - t) ln(1 - p)`, for each element.
    BinaryCrossEntropy,
    /// `-t ln(p)`, summed over the classes, for each row.
    CategoricalCrossEntropy,
    /// `-ln(p)` of the target's class, for each row.
    SparseCategoricalCrossEntropy,
    /// `t ln(t / p)`, summed over the classes, for each row.
    KlDivergence,
    /// `p - t ln(p)`, for each element.
    Poisson,
}

impl Mean {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Mae => "MAE",
            Self::Mse => "MSE",
            Self::Rmse => "RMSE",
            Self::MeanError => "ME",
            Self::Mpe => "MPE",
            Self::Mape => "MAPE",
            Self::Mspe => "MSPE",
            Self::Smape => "sMAPE",
            Self::Msle => "MSLE",
            Self::BinaryCrossEntropy => "BinaryCrossEntropy",
            Self::CategoricalCrossEntropy => "CategoricalCrossEntropy",
            Self::SparseCategoricalCrossEntropy => "SparseCategoricalCrossEntropy",
            Self::KlDivergence => "KLDivergence",
            Self::Poisson => "Poisson",
        }
    }

    fn needs(&self) -> &'static str {
        match self {
            Self::BinaryCrossEntropy => "one probability, a float, for each target",
            Self::Poisson => "one expected count, a float, for each target",
            Self::CategoricalCrossEntropy | Self::KlDivergence => {
                "equal shapes with probabilities, floats, of the classes along the last of at least two axes"
            }
            Self::SparseCategoricalCrossEntropy => {
                "one axis more in the predictions, the last, with a probability, a float, for each class"
            }
            _ => ANY_PAIRS,
        }
    }
}

/// The sum of a loss, and how many terms it has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sum {
    pub kind: Mean,
    sum: ExactSum,
    terms: u64,
}

impl Sum {
    pub fn new(kind: Mean) -> Self {
        Self {
            kind,
            sum: ExactSum::default(),
            terms: 0,
        }
    }

    pub fn update(&mut self, predictions: &Values<'_>, targets: &Values<'_>) -> Result<(), MetricError> {
        match self.kind {
            Mean::Mae => self.pairs(predictions, targets, |p, t| (p - t).abs()),
            Mean::Mse | Mean::Rmse => self.pairs(predictions, targets, |p, t| (p - t) * (p - t)),
            Mean::MeanError => self.pairs(predictions, targets, |p, t| t - p),
            Mean::Mpe => self.pairs(predictions, targets, relative::error),
            Mean::Mape => self.pairs(predictions, targets, |p, t| relative::error(p, t).abs()),
            Mean::Mspe => self.pairs(predictions, targets, |p, t| relative::error(p, t).powi(2)),
            Mean::Smape => self.pairs(predictions, targets, relative::symmetric),
            Mean::Msle => self.pairs(predictions, targets, |p, t| (t.ln_1p() - p.ln_1p()).powi(2)),
            Mean::BinaryCrossEntropy => self.pairs(predictions, targets, binary_cross_entropy),
            Mean::Poisson => self.pairs(predictions, targets, |p, t| p - t * positive(p).ln()),
            Mean::CategoricalCrossEntropy => self.rows(predictions, targets, cross_entropy),
            Mean::KlDivergence => self.rows(predictions, targets, divergence),
            Mean::SparseCategoricalCrossEntropy => self.labels(predictions, targets),
        }
    }

    pub fn merge(&mut self, other: &Self) {
        self.sum.merge(&other.sum);
        self.terms += other.terms;
    }

    pub fn value(&self) -> f64 {
        let mean = self.sum.value() / self.terms as f64;
        match self.kind {
            Mean::Rmse => mean.sqrt(),
            Mean::Mpe | Mean::Mape | Mean::Mspe | Mean::Smape => mean * relative::PERCENT,
            _ => mean,
        }
    }

    fn pairs(
        &mut self,
        predictions: &Values<'_>,
        targets: &Values<'_>,
        loss: impl Fn(f64, f64) -> f64,
    ) -> Updated {
        let fits = fit::in_pairs(predictions, targets) && self.takes(predictions);
        if !fits {
            return Err(self.misfit(predictions, targets));
        }
        for_each_row(predictions, targets, (1, 1), |p, t| {
            self.sum.add(loss(p[0], t[0]))
        });
        self.terms += targets.count() as u64;
        Ok(())
    }

    fn rows(
        &mut self,
        predictions: &Values<'_>,
        targets: &Values<'_>,
        term: impl Fn(f64, f64) -> f64,
    ) -> Updated {
        let classes = fit::distributions(predictions, targets).filter(|_| self.takes(predictions));
        let classes = classes.ok_or_else(|| self.misfit(predictions, targets))?;
        for_each_row(predictions, targets, (classes, classes), |p, t| {
            self.sum.add(p.iter().zip(t).map(|(p, t)| term(*p, *t)).sum());
        });
        self.terms += (targets.count() / classes) as u64;
        Ok(())
    }

    fn labels(&mut self, predictions: &Values<'_>, targets: &Values<'_>) -> Updated {
        let classes = fit::classes(predictions, targets).filter(|_| self.takes(predictions));
        let classes = classes.ok_or_else(|| self.misfit(predictions, targets))?;
        fit::check_labels(self.kind.name(), targets, classes, 0)?;
        for row in 0..targets.count() {
            let class = targets.number(row) as usize;
            self.sum
                .add(-positive(predictions.number(row * classes + class)).ln());
        }
        self.terms += targets.count() as u64;
        Ok(())
    }

    /// Whether the predictions are of a type that can hold what they should be.
    fn takes(&self, predictions: &Values<'_>) -> bool {
        self.kind.needs() == ANY_PAIRS || predictions.dtype().is_float()
    }

    fn misfit(&self, predictions: &Values<'_>, targets: &Values<'_>) -> MetricError {
        MetricError::misfit(self.kind.name(), predictions, targets, self.kind.needs())
    }
}

type Updated = Result<(), MetricError>;

/// Comparisons instead of `max` and `clamp`, which would hide NaN or end on it.
fn positive(probability: f64) -> f64 {
    if probability < MARGIN { MARGIN } else { probability }
}

fn binary_cross_entropy(probability: f64, target: f64) -> f64 {
    let probability = positive(probability);
    let probability = if probability > 1.0 - MARGIN {
        1.0 - MARGIN
    } else {
        probability
    };
    -target * probability.ln() - (1.0 - target) * (-probability).ln_1p()
}

fn cross_entropy(probability: f64, target: f64) -> f64 {
    -target * positive(probability).ln()
}

fn divergence(probability: f64, target: f64) -> f64 {
    // What has no share adds nothing, although its logarithm is infinite.
    if target == 0.0 {
        0.0
    } else {
        target * (target / positive(probability)).ln()
    }
}
