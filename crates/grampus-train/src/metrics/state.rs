//! What a metric has seen so far.

use serde::{Deserialize, Serialize};

use super::area::Histogram;
use super::curve::Scores;
use super::error::MetricError;
use super::explained::Variances;
use super::groups::Places;
use super::mean::Sum;
use super::median::Errors;
use super::metric::Metric;
use super::precision::Found;
use super::ratio::Counts;
use super::share::Hits;
use super::values::Values;

/// The value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// One number; NaN where nothing was seen.
    Number(f64),
    /// The arrays of a curve, by name.
    Arrays(Vec<(&'static str, Vec<f64>)>),
}

/// Counts and sums of a metric, which merge with those of others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State(Tally);

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Tally {
    Share(Hits),
    Mean(Box<Sum>),
    Ratio(Counts),
    Auc(Histogram),
    Curve(Scores),
    Median(Errors),
    R2(Box<Variances>),
    AveragePrecision(Found),
    Groups(Places),
}

impl State {
    pub(super) fn new(metric: &Metric) -> Self {
        Self(match metric {
            Metric::Share(kind) => Tally::Share(Hits::new(kind.clone())),
            Metric::Mean(kind) => Tally::Mean(Box::new(Sum::new(*kind))),
            Metric::Ratio(kind, average) => Tally::Ratio(Counts::new(*kind, *average)),
            Metric::Auc { thresholds } => Tally::Auc(Histogram::new(*thresholds)),
            Metric::Curve(kind) => Tally::Curve(Scores::new(*kind)),
            Metric::Median(kind) => Tally::Median(Errors::new(*kind)),
            Metric::R2 => Tally::R2(Box::default()),
            Metric::AveragePrecision(kind) => Tally::AveragePrecision(Found::new(*kind)),
            Metric::Groups(of) => Tally::Groups(Places::new(*of)),
        })
    }

    /// The metric whose state it is.
    pub fn metric(&self) -> Metric {
        match &self.0 {
            Tally::Share(hits) => Metric::Share(hits.kind.clone()),
            Tally::Mean(sum) => Metric::Mean(sum.kind),
            Tally::Ratio(counts) => Metric::Ratio(counts.kind, counts.average),
            Tally::Auc(histogram) => Metric::Auc {
                thresholds: histogram.thresholds(),
            },
            Tally::Curve(scores) => Metric::Curve(scores.kind),
            Tally::Median(errors) => Metric::Median(errors.kind),
            Tally::R2(_) => Metric::R2,
            Tally::AveragePrecision(found) => Metric::AveragePrecision(found.kind),
            Tally::Groups(places) => Metric::Groups(places.of),
        }
    }

    /// Takes a batch. After an error the state is as it was.
    pub fn update(&mut self, predictions: &Values<'_>, targets: &Values<'_>) -> Result<(), MetricError> {
        match &mut self.0 {
            Tally::Share(hits) => hits.update(predictions, targets),
            Tally::Mean(sum) => sum.update(predictions, targets),
            Tally::Ratio(counts) => counts.update(predictions, targets),
            Tally::Auc(histogram) => histogram.update(predictions, targets),
            Tally::Curve(scores) => scores.update(predictions, targets),
            Tally::Median(errors) => errors.update(predictions, targets),
            Tally::R2(variances) => variances.update(predictions, targets),
            Tally::AveragePrecision(found) => found.update(predictions, targets),
            Tally::Groups(places) => places.update(predictions, targets),
        }
    }

    /// Takes all that another state of the same metric has seen.
    pub fn merge(&mut self, other: &Self) -> Result<(), MetricError> {
        let (mine, theirs) = (self.metric(), other.metric());
        match (&mut self.0, &other.0) {
            (Tally::Share(hits), Tally::Share(more)) if mine == theirs => hits.merge(more),
            (Tally::Mean(sum), Tally::Mean(more)) if mine == theirs => sum.merge(more),
            (Tally::Ratio(counts), Tally::Ratio(more)) if mine == theirs => counts.merge(more)?,
            (Tally::Auc(histogram), Tally::Auc(more)) if mine == theirs => histogram.merge(more),
            (Tally::Curve(scores), Tally::Curve(more)) if mine == theirs => scores.merge(more),
            (Tally::Median(errors), Tally::Median(more)) if mine == theirs => errors.merge(more),
            (Tally::R2(variances), Tally::R2(more)) => variances.merge(more),
            (Tally::AveragePrecision(found), Tally::AveragePrecision(more)) if mine == theirs => {
                found.merge(more);
            }
            (Tally::Groups(places), Tally::Groups(more)) if mine == theirs => places.merge(more),
            _ => {
                return Err(MetricError::Merge {
                    one: format!("{mine:?}"),
                    other: format!("{theirs:?}"),
                });
            }
        }
        Ok(())
    }

    /// The value over all that was seen.
    pub fn value(&self) -> Value {
        match &self.0 {
            Tally::Share(hits) => Value::Number(hits.value()),
            Tally::Mean(sum) => Value::Number(sum.value()),
            Tally::Ratio(counts) => Value::Number(counts.value()),
            Tally::Auc(histogram) => Value::Number(histogram.value()),
            Tally::Curve(scores) => Value::Arrays(scores.value()),
            Tally::Median(errors) => Value::Number(errors.value()),
            Tally::R2(variances) => Value::Number(variances.value()),
            Tally::AveragePrecision(found) => Value::Number(found.value()),
            Tally::Groups(places) => Value::Number(places.value()),
        }
    }

    /// The state as bytes, to travel or to be kept.
    pub fn to_bytes(&self) -> Result<Vec<u8>, MetricError> {
        let settled = match &self.0 {
            Tally::Curve(scores) => &Self(Tally::Curve(scores.settled())),
            Tally::Median(errors) => &Self(Tally::Median(errors.settled())),
            Tally::AveragePrecision(found) => &Self(Tally::AveragePrecision(found.settled())),
            _ => self,
        };
        postcard::to_stdvec(settled).map_err(refuse)
    }

    /// The state that these bytes hold.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MetricError> {
        postcard::from_bytes(bytes).map_err(refuse)
    }
}

fn refuse(why: postcard::Error) -> MetricError {
    MetricError::Bytes { why: why.to_string() }
}
