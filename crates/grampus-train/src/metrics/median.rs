//! Medians of errors, which need all of them.

use serde::{Deserialize, Serialize};

use super::error::MetricError;
use super::fit;
use super::ranking::{ALL, Ranking};
use super::relative;
use super::values::{Values, for_each_row};

/// Of what the median is taken.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Median {
    /// `|t - p| / |t|`, in percent.
    Mdape,
    /// `|t - p| / (|t| + |p|)`, in percent.
    Smdape,
}

impl Median {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Mdape => "MDAPE",
            Self::Smdape => "sMDAPE",
        }
    }
}

/// Every error that was seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Errors {
    pub kind: Median,
    ranking: Ranking,
}

impl Errors {
    pub fn new(kind: Median) -> Self {
        Self {
            kind,
            ranking: Ranking::default(),
        }
    }

    pub fn update(&mut self, predictions: &Values<'_>, targets: &Values<'_>) -> Result<(), MetricError> {
        if !fit::in_pairs(predictions, targets) {
            let needs = "one prediction for each target";
            return Err(MetricError::misfit(self.kind.name(), predictions, targets, needs));
        }
        let kind = self.kind;
        for_each_row(predictions, targets, (1, 1), |p, t| {
            let error = match kind {
                Median::Mdape => relative::error(p[0], t[0]).abs(),
                Median::Smdape => relative::symmetric(p[0], t[0]),
            };
            self.ranking.add(error, false);
        });
        self.ranking.settle_at_times(ALL);
        Ok(())
    }

    pub fn merge(&mut self, other: &Self) {
        self.ranking.merge(&other.ranking);
        self.ranking.settle_at_times(ALL);
    }

    /// The same, with equal errors counted together.
    pub fn settled(&self) -> Self {
        Self {
            kind: self.kind,
            ranking: self.ranking.settled(ALL),
        }
    }

    /// The error in the middle, or the mean of the two; NaN if one of all is.
    pub fn value(&self) -> f64 {
        let ranking = self.ranking.settled(ALL);
        let points = ranking.points();
        let all: u64 = points.iter().map(|point| point.negatives).sum();
        let last = points.last().map_or(f64::NAN, |point| point.score);
        if all == 0 || last.is_nan() {
            return f64::NAN;
        }
        let at = |wanted: u64| {
            let mut before = 0;
            let found = points.iter().find(|point| {
                before += point.negatives;
                before > wanted
            });
            found.map_or(f64::NAN, |point| point.score)
        };
        (at((all - 1) / 2) + at(all / 2)) / 2.0 * relative::PERCENT
    }
}
