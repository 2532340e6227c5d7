//! What is measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::area;
use super::curve::Curve;
use super::error::MetricError;
use super::explained;
use super::groups::{Groups, Recommended};
use super::mean::Mean;
use super::median::Median;
use super::options::{Options, Setting};
use super::precision::AveragePrecision;
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
    /// The median of an error.
    Median(Median),
    /// The share of the targets' variance that the predictions explain.
    R2,
    /// The mean over classes of the area under the curve of precision and recall.
    AveragePrecision(AveragePrecision),
    /// Where the positive of each group stands.
    Groups(Groups),
}

impl Metric {
    /// The names of all metrics.
    pub const NAMES: [&'static str; 34] = [
        "AUC",
        "Accuracy",
        "BinaryAccuracy",
        "BinaryCrossEntropy",
        "CategoricalAccuracy",
        "CategoricalCrossEntropy",
        "F1Score",
        "HitRatio",
        "KLDivergence",
        "MAE",
        "MAPE",
        "MDAPE",
        "ME",
        "MPE",
        "MSE",
        "MSLE",
        "MSPE",
        "MeanAveragePrecision",
        "MeanAveragePrecisionObjectDetection",
        "NDCG",
        "Poisson",
        "Precision",
        "PrecisionRecallCurve",
        "R2",
        "RMSE",
        "ROC",
        "Recall",
        "SparseCategoricalAccuracy",
        "SparseCategoricalCrossEntropy",
        "Top1Accuracy",
        "Top5Accuracy",
        "TreeNNAccuracy",
        "sMAPE",
        "sMDAPE",
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
            "Top1Accuracy" => Self::Share(Share::Top1Accuracy {
                zero_based_label: options.flag("zero_based_label", true)?,
            }),
            "Top5Accuracy" => Self::Share(Share::Top5Accuracy {
                zero_based_label: options.flag("zero_based_label", true)?,
            }),
            "BinaryAccuracy" => Self::Share(Share::BinaryAccuracy {
                threshold: options.number("threshold", 0.5)?,
            }),
            "Precision" => Self::Ratio(Ratio::Precision, options.average()?),
            "Recall" => Self::Ratio(Ratio::Recall, options.average()?),
            "F1Score" => Self::Ratio(Ratio::F1Score, options.average()?),
            "MeanAveragePrecision" => Self::AveragePrecision(AveragePrecision::Rows {
                first: options.count_or_none("k", 1)?,
                classes: options.needed_count("classes", 1)?,
            }),
            "MeanAveragePrecisionObjectDetection" => Self::AveragePrecision(AveragePrecision::Boxes {
                classes: options.needed_count("classes", 1)?,
                iou: options.share("iou", 0.5)?,
                use_voc2007: options.flag("use_voc2007", false)?,
                skip_class: options.count_or_none("skip_class", 0)?,
            }),
            "HitRatio" => Self::Groups(options.groups(Recommended::HitRatio)?),
            "NDCG" => Self::Groups(options.groups(Recommended::Ndcg)?),
            _ => Self::without_options(name)?,
        };
        options.end()?;
        Ok(metric)
    }

    fn without_options(name: &str) -> Result<Self, MetricError> {
        Ok(match name {
            "CategoricalAccuracy" => Self::Share(Share::CategoricalAccuracy),
            "SparseCategoricalAccuracy" => Self::Share(Share::SparseCategoricalAccuracy),
            "TreeNNAccuracy" => Self::Share(Share::TreeNnAccuracy),
            "MAE" => Self::Mean(Mean::Mae),
            "MSE" => Self::Mean(Mean::Mse),
            "RMSE" => Self::Mean(Mean::Rmse),
            "ME" => Self::Mean(Mean::MeanError),
            "MPE" => Self::Mean(Mean::Mpe),
            "MAPE" => Self::Mean(Mean::Mape),
            "MSPE" => Self::Mean(Mean::Mspe),
            "sMAPE" => Self::Mean(Mean::Smape),
            "MSLE" => Self::Mean(Mean::Msle),
            "BinaryCrossEntropy" => Self::Mean(Mean::BinaryCrossEntropy),
            "CategoricalCrossEntropy" => Self::Mean(Mean::CategoricalCrossEntropy),
            "SparseCategoricalCrossEntropy" => Self::Mean(Mean::SparseCategoricalCrossEntropy),
            "KLDivergence" => Self::Mean(Mean::KlDivergence),
            "Poisson" => Self::Mean(Mean::Poisson),
            "MDAPE" => Self::Median(Median::Mdape),
            "sMDAPE" => Self::Median(Median::Smdape),
            "R2" => Self::R2,
            "ROC" => Self::Curve(Curve::Roc),
            "PrecisionRecallCurve" => Self::Curve(Curve::PrecisionRecall),
            _ => {
                return Err(MetricError::Unknown {
                    name: name.to_owned(),
                    known: Self::NAMES.join(", "),
                });
            }
        })
    }

    /// The name without the options.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Share(kind) => kind.name(),
            Self::Mean(kind) => kind.name(),
            Self::Ratio(kind, _) => kind.name(),
            Self::Auc { .. } => area::NAME,
            Self::Curve(kind) => kind.name(),
            Self::Median(kind) => kind.name(),
            Self::R2 => explained::NAME,
            Self::AveragePrecision(kind) => kind.name(),
            Self::Groups(of) => of.name(),
        }
    }

    /// Whether more is better; `None` of a curve, and of a signed error, which is best at 0.
    pub fn higher_is_better(&self) -> Option<bool> {
        match self {
            Self::Share(_)
            | Self::Ratio(..)
            | Self::Auc { .. }
            | Self::R2
            | Self::AveragePrecision(_)
            | Self::Groups(_) => Some(true),
            Self::Mean(Mean::MeanError | Mean::Mpe) | Self::Curve(_) => None,
            Self::Mean(_) | Self::Median(_) => Some(false),
        }
    }

    /// A state that has seen nothing.
    pub fn state(&self) -> State {
        State::new(self)
    }
}
