//! What keeps the program from playing at all; a broken promise is no error of it.

use std::io;

/// Why a run could not be played.
#[derive(Debug, thiserror::Error)]
pub enum ChaosError {
    /// The machine refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// How it was refused.
        source: io::Error,
    },
    /// A command that prepares a run failed.
    #[error("{command} failed: {said}")]
    Command {
        /// As it would be typed.
        command: String,
        /// What it said.
        said: String,
    },
    /// None of the faults that were asked for can be made here.
    #[error(
        "none of the faults that were asked for can be made here: see why above, or ask for others with --kinds"
    )]
    NoKinds,
    /// The run without faults did not end as it should.
    #[error("the run without faults failed, so nothing can be held against it: {0}")]
    Undisturbed(String),
}

/// Names what was tried when the machine refuses it.
pub(super) fn during<T>(what: impl Into<String>, result: io::Result<T>) -> Result<T, ChaosError> {
    result.map_err(|source| ChaosError::Io {
        what: what.into(),
        source,
    })
}
