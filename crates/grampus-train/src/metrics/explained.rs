//! How much of the variance of the targets a model explains.

use serde::{Deserialize, Serialize};

use super::error::MetricError;
use super::exact::ExactSum;
use super::fit;
use super::values::{Values, for_each_row};

pub(super) const NAME: &str = "R2";

/// Sums from which both variances are made. They are exact: the difference of two large sums is, too.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Variances {
    errors: ExactSum,
    targets: ExactSum,
    squares: ExactSum,
    terms: u64,
}

impl Variances {
    pub fn update(&mut self, predictions: &Values<'_>, targets: &Values<'_>) -> Result<(), MetricError> {
        if !fit::in_pairs(predictions, targets) {
            let needs = "one prediction for each target";
            return Err(MetricError::misfit(NAME, predictions, targets, needs));
        }
        for_each_row(predictions, targets, (1, 1), |p, t| {
            self.errors.add((t[0] - p[0]) * (t[0] - p[0]));
            self.targets.add(t[0]);
            self.squares.add_product(t[0], t[0]);
        });
        self.terms += targets.count() as u64;
        Ok(())
    }

    pub fn merge(&mut self, other: &Self) {
        self.errors.merge(&other.errors);
        self.targets.merge(&other.targets);
        self.squares.merge(&other.squares);
        self.terms += other.terms;
    }

    /// One less the squares of the errors over those of the distances of the targets to their mean.
    pub fn value(&self) -> f64 {
        if self.terms < 2 {
            return f64::NAN;
        }
        let (errors, spread) = (self.errors.value(), self.spread());
        match (errors == 0.0, spread == 0.0) {
            (true, true) => 1.0,
            (false, true) => 0.0,
            _ => 1.0 - errors / spread,
        }
    }

    /// The squares of the distances of the targets to their mean: `(n sum(t^2) - sum(t)^2) / n`.
    fn spread(&self) -> f64 {
        let terms = self.terms as f64;
        let mut spread = ExactSum::default();
        for part in self.squares.parts() {
            spread.add_product(terms, part);
        }
        let parts = self.targets.parts();
        for one in &parts {
            for other in &parts {
                spread.add_product(-one, *other);
            }
        }
        spread.value() / terms
    }
}
