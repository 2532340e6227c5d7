//! Why a run ends before it is done.

use grampus_collective::CollectiveError;
use grampus_data::DataError;
use grampus_native::NativeError;

use super::learner::LearnError;
use crate::checkpoint::CheckpointError;
use crate::metrics::MetricError;

/// The kind of [`RunError::NotFinite`].
pub const NOT_FINITE: &str = "NotFinite";

/// What can go wrong in a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// With the model, or with the rows that it got.
    #[error("{error}{}", place.as_deref().unwrap_or_default())]
    Model {
        /// What is wrong.
        error: NativeError,
        /// Where it was, in words.
        place: Option<String>,
    },
    /// Between workers.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// With the data.
    #[error("{0}")]
    Data(std::sync::Arc<DataError>),
    /// A metric that does not fit what it measures.
    #[error(transparent)]
    Metric(#[from] MetricError),
    /// A checkpoint that could not be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A loss that is no number.
    #[error("{0}")]
    NotFinite(String),
    /// What was asked for cannot be.
    #[error("{0}")]
    Asked(String),
    /// It was told to end.
    #[error("the run was interrupted")]
    Interrupted,
    /// No worker is left that has the run.
    #[error("no worker is left that has the run, and it was not saved: give it a checkpoint")]
    NothingKept,
}

impl RunError {
    /// Whether it only follows from what happened to another worker.
    pub fn is_consequence(&self) -> bool {
        match self {
            Self::Collective(CollectiveError::Mismatch { .. } | CollectiveError::Argument(_)) => false,
            Self::Collective(_) | Self::Interrupted => true,
            _ => false,
        }
    }

    /// The kind of error, for people and for those who decide whether to go on.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Model { .. } => "ModelError",
            Self::Collective(_) => "CollectiveError",
            Self::Data(_) => "DataError",
            Self::Metric(_) => "MetricError",
            Self::Checkpoint(_) => "CheckpointError",
            Self::NotFinite(_) => NOT_FINITE,
            Self::Asked(_) => "WrongUse",
            Self::Interrupted => "Interrupted",
            Self::NothingKept => "NothingKept",
        }
    }
}

impl From<NativeError> for RunError {
    fn from(error: NativeError) -> Self {
        Self::Model { error, place: None }
    }
}

impl From<LearnError> for RunError {
    fn from(error: LearnError) -> Self {
        match error {
            LearnError::Model(error) => error.into(),
            LearnError::Collective(error) => error.into(),
        }
    }
}

impl From<DataError> for RunError {
    fn from(error: DataError) -> Self {
        Self::Data(std::sync::Arc::new(error))
    }
}
