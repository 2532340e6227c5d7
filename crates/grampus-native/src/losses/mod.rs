//! What a model is to make small, and the gradient of it.
//!
//! Each is the mean over what it looks at, as in PyTorch. The mean over a whole batch follows from those of its parts, each of
//! which counts for its [`Loss::weight`].

mod classes;
mod distances;

use serde::{Deserialize, Serialize};

use crate::error::NativeError;
use crate::real::Real;
use crate::shape::Shape;

use classes::Classes;

/// A loss of outputs and targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
#[non_exhaustive]
pub enum Loss {
    /// Of scores, one for each class, and the number of the right class.
    CrossEntropy {
        /// What each class counts for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weights: Option<Vec<f64>>,
        /// The share of the target that is spread over all classes.
        #[serde(default)]
        label_smoothing: f64,
        /// A target that counts for nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ignore_index: Option<i64>,
    },
    /// Of logarithms of probabilities, one for each class, and the number of the right class.
    Nll {
        /// What each class counts for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weights: Option<Vec<f64>>,
        /// A target that counts for nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ignore_index: Option<i64>,
    },
    /// The square of the difference.
    Mse,
    /// The difference without its sign.
    L1,
    /// The square of small differences, the absolute value of others.
    SmoothL1 {
        /// Where one becomes the other.
        beta: f64,
    },
    /// Of probabilities and targets between zero and one.
    Bce,
    /// Of scores and targets between zero and one.
    BceWithLogits,
    /// How far the target, a distribution, is from one whose logarithms come out; the mean over rows.
    Kl,
    /// Of the logarithm of a rate, and counts.
    Poisson,
    /// What is missing to `margin` on the right side; targets are 1 and -1.
    Hinge {
        /// How far on the right side is far enough.
        margin: f64,
    },
    /// One minus the cosine of the angle to the target; the mean over rows.
    Cosine,
}

/// [`Loss::cross_entropy`], as it is written where a loss is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrossEntropy;

impl From<CrossEntropy> for Loss {
    fn from(_: CrossEntropy) -> Self {
        Self::cross_entropy()
    }
}

/// A model's output and what it should be, one row behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a, T> {
    /// What came out.
    pub output: &'a [T],
    /// The shape of its rows.
    pub output_shape: &'a Shape,
    /// What should have come out.
    pub target: &'a [T],
    /// The shape of its rows.
    pub target_shape: &'a Shape,
    /// How many rows there are.
    pub rows: usize,
}

impl Loss {
    /// Of scores and the number of the right class.
    pub fn cross_entropy() -> Self {
        Self::CrossEntropy {
            weights: None,
            label_smoothing: 0.0,
            ignore_index: None,
        }
    }

    /// What is wrong with its settings, if anything is.
    pub fn check(&self) -> Result<(), NativeError> {
        let wrong = match self {
            Self::CrossEntropy { label_smoothing, .. } if !(0.0..=1.0).contains(label_smoothing) => {
                format!("label_smoothing must be between 0 and 1, it is {label_smoothing}")
            }
            Self::SmoothL1 { beta } if *beta <= 0.0 => format!("beta must be above 0, it is {beta}"),
            Self::CrossEntropy {
                weights: Some(weights),
                ..
            }
            | Self::Nll {
                weights: Some(weights),
                ..
            } if weights.iter().any(|weight| weight.is_nan() || *weight < 0.0) => {
                "weights of classes must not be below 0".into()
            }
            _ => return Ok(()),
        };
        Err(NativeError::Description(format!("{}: {wrong}", self.told())))
    }

    /// Whether rows may count for more or less than others.
    pub fn weighs(&self) -> bool {
        self.classes().is_some_and(|classes| classes.weighs())
    }

    /// What some rows count for in the mean over more of them.
    pub fn weight<T: Real>(&self, target: &[T], rows: usize) -> f64 {
        match self.classes() {
            Some(classes) if classes.weighs() => target.iter().map(|class| classes.counts(*class)).sum(),
            _ => rows as f64,
        }
    }

    /// The loss, and the gradient of it times `share`, which is written where the output has its place.
    pub fn apply<T: Real>(
        &self,
        judged: Judged<'_, T>,
        share: f64,
        gradient: &mut [T],
    ) -> Result<f64, NativeError> {
        if gradient.len() != judged.output.len() {
            return Err(NativeError::Input(
                "the gradient is not as large as the output".into(),
            ));
        }
        match self.classes() {
            Some(classes) => classes.apply(judged, share, gradient),
            None => distances::apply(self, judged, share, gradient),
        }
    }

    fn classes(&self) -> Option<Classes<'_>> {
        match self {
            Self::CrossEntropy {
                weights,
                label_smoothing,
                ignore_index,
            } => Some(Classes {
                name: "CrossEntropy",
                weights: weights.as_deref(),
                smoothing: *label_smoothing,
                ignored: *ignore_index,
                from_scores: true,
            }),
            Self::Nll {
                weights,
                ignore_index,
            } => Some(Classes {
                name: "NLL",
                weights: weights.as_deref(),
                smoothing: 0.0,
                ignored: *ignore_index,
                from_scores: false,
            }),
            _ => None,
        }
    }

    /// What it is called.
    pub fn told(&self) -> &'static str {
        match self {
            Self::CrossEntropy { .. } => "CrossEntropy",
            Self::Nll { .. } => "NLL",
            Self::Mse => "MSE",
            Self::L1 => "L1",
            Self::SmoothL1 { .. } => "SmoothL1",
            Self::Bce => "BCE",
            Self::BceWithLogits => "BCEWithLogits",
            Self::Kl => "KL",
            Self::Poisson => "Poisson",
            Self::Hinge { .. } => "Hinge",
            Self::Cosine => "Cosine",
        }
    }
}
