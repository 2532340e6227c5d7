//! What is measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::area;
use super::curve::Curve;
use super::error::MetricError;
use super::mean::Mean;
use super::options::{Options, Setting};
use super::ratio::{Average, Ratio};
use super::share::Share;
use super::state::State;

/// A metric with its options; [`Metric::state`] starts to measure.
///
/// ```
/// use grampus_train::metrics::{Average, Metric, Ratio, Setting};
///
/// let options = [("average".to_owned(), Setting::Text("macro".to_owned()))].into();
/// let recall = Metric::Ratio(Ratio::Recall, Average::Macro);
/// assert_eq!(Metric::named("Recall", &options)?, recall);
/// # Ok::<(), grampus_train::metrics::MetricError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Metric {
    /// The share of predictions that are right.
    Share(Share),
    /// The mean of a loss.
    Mean(Mean),
    /// A ratio of what was found, and of what is there.
    Ratio(Ratio, Average),
    /// The area under the ROC curve, by trapezoids between thresholds at equal distances from 0 to 1.
    Auc {
        /// Their number, at least 2.
        thresholds: u32,
    },
    /// A curve over all thresholds.
    Curve(Curve),
}

impl Metric {
    /// The names of all metrics.
    pub const NAMES: [&'static str; 18] = [
        "AUC",
        "Accuracy",
        "BinaryAccuracy",
        "BinaryCrossEntropy",
        "CategoricalAccuracy",
        "CategoricalCrossEntropy",
        "F1Score",
        "KLDivergence",
        "MAE",
        "MSE",
        "Poisson",
        "Precision",
        "PrecisionRecallCurve",
        "ROC",
        "Recall",
        "SparseCategoricalAccuracy",
        "SparseCategoricalCrossEntropy",
        "Top5Accuracy",
    ];

    /// The metric of this name with these options; those that are not given have their defaults.
    pub fn named(name: &str, options: &BTreeMap<String, Setting>) -> Result<Self, MetricError> {
        let mut options = Options::new(name, options);
        let metric = match name {
            "AUC" => Self::Auc {
                thresholds: options.count("threshold_num", 200, area::LEAST)?,
            },
            "Accuracy" => Self::Share(Share::Accuracy {
                zero_based_label: options.flag("zero_based_label", true)?,
            }),
            "BinaryAccuracy" => Self::Share(Share::BinaryAccuracy {
                threshold: options.number("threshold", 0.5)?,
            }),
            "CategoricalAccuracy" => Self::Share(Share::CategoricalAccuracy),
            "SparseCategoricalAccuracy" => Self::Share(Share::SparseCategoricalAccuracy),
            "Top5Accuracy" => Self::Share(Share::Top5Accuracy {
                zero_based_label: options.flag("zero_based_label", true)?,
            }),
            "MAE" => Self::Mean(Mean::Mae),
            "MSE" => Self::Mean(Mean::Mse),
            "BinaryCrossEntropy" => Self::Mean(Mean::BinaryCrossEntropy),
            "CategoricalCrossEntropy" => Self::Mean(Mean::CategoricalCrossEntropy),
            "SparseCategoricalCrossEntropy" => Self::Mean(Mean::SparseCategoricalCrossEntropy),
            "KLDivergence" => Self::Mean(Mean::KlDivergence),
            "Poisson" => Self::Mean(Mean::Poisson),
            "Precision" => Self::Ratio(Ratio::Precision, options.average()?),
            "Recall" => Self::Ratio(Ratio::Recall, options.average()?),
            "F1Score" => Self::Ratio(Ratio::F1Score, options.average()?),
            "ROC" => Self::Curve(Curve::Roc),
            "PrecisionRecallCurve" => Self::Curve(Curve::PrecisionRecall),
            _ => {
                return Err(MetricError::Unknown {
                    name: name.to_owned(),
                    known: Self::NAMES.join(", "),
                });
            }
        };
        options.end()?;
        Ok(metric)
    }

    /// The name without the options.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Share(kind) => kind.name(),
            Self::Mean(kind) => kind.name(),
            Self::Ratio(kind, _) => kind.name(),
            Self::Auc { .. } => area::NAME,
            Self::Curve(kind) => kind.name(),
        }
    }

    /// A state that has seen nothing.
    pub fn state(&self) -> State {
        State::new(self)
    }
}
