//! What can go wrong, for those who use this crate.

use grampus_core::TaskFailure;
use grampus_train::native::RunError;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be done.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Workers could not be started, or are gone.
    #[error("{0}")]
    Cluster(String),
    /// A worker failed: which, where and why.
    #[error("{0}")]
    Worker(Box<TaskFailure>),
    /// Workers were lost more often than is made good.
    #[error("{failure}\n{why}")]
    Lost {
        /// The last loss.
        failure: Box<TaskFailure>,
        /// Why the run does not go on.
        why: String,
    },
    /// All is trained, and could not be saved on the way.
    #[error("{why}; the estimator has the weights of the whole run: save() them elsewhere")]
    Unsaved {
        /// Why there is no checkpoint.
        why: String,
    },
    /// The run failed, and what was trained until then is not lost.
    #[error(
        "{source}\nthe estimator keeps the weights of epoch {epoch}, step {step}: save() them, or fit() on"
    )]
    Partial {
        /// What has ended the run.
        source: Box<Error>,
        /// The epoch of the last step that was done, from 1.
        epoch: u64,
        /// How many steps were done in all.
        step: u64,
    },
    /// The model, its data or its checkpoints.
    #[error(transparent)]
    Run(#[from] RunError),
    /// What was asked for cannot be.
    #[error("{0}")]
    Asked(String),
}

/// What `main` shows where it returns one: the words, not the parts that they are made of.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl Error {
    pub(crate) fn cluster(error: impl std::fmt::Display) -> Self {
        Self::Cluster(error.to_string())
    }
}

impl From<grampus_data::DataError> for Error {
    fn from(error: grampus_data::DataError) -> Self {
        Self::Run(error.into())
    }
}

impl From<grampus_native::NativeError> for Error {
    fn from(error: grampus_native::NativeError) -> Self {
        Self::Run(error.into())
    }
}

impl From<grampus_train::checkpoint::CheckpointError> for Error {
    fn from(error: grampus_train::checkpoint::CheckpointError) -> Self {
        Self::Run(error.into())
    }
}

impl From<grampus_train::metrics::MetricError> for Error {
    fn from(error: grampus_train::metrics::MetricError) -> Self {
        Self::Run(error.into())
    }
}
