//! What can go wrong with a checkpoint.

use std::io;
use std::path::Path;
use std::time::Duration;

use thiserror::Error;

use super::manifest::ManifestError;

/// Why a checkpoint could not be written, found or read. Every message names the place.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// A place that checkpoints cannot be in.
    #[error("{url:?} is no place for checkpoints: {why}; use a folder, file:///path or s3://bucket/prefix")]
    Url {
        /// As it was given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A checkpoint or a file in it cannot be called so.
    #[error("{name:?} cannot be the name of {what}: use {instead}")]
    Name {
        /// The thing to be named.
        what: &'static str,
        /// As it was given.
        name: String,
        /// Names that work.
        instead: &'static str,
    },
    /// A tensor that cannot be stored as it was given.
    #[error("tensor {name:?}: {why}")]
    Tensor {
        /// Which one.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The note beside the tensors is no JSON.
    #[error("the checkpoint's meta is not JSON ({0}): mind that NaN and Infinity are none")]
    Meta(serde_json::Error),
    /// No room is left.
    #[error("no room to write {path} ({why}): free some, or keep fewer checkpoints")]
    Full {
        /// What was being written.
        path: String,
        /// The system's own words.
        why: String,
    },
    /// The system refused.
    #[error("{path}: {source}")]
    Io {
        /// What was being read or written.
        path: String,
        /// The system's own words.
        source: io::Error,
    },
    /// The object store refused or cannot be reached.
    #[error("{url}: {why}")]
    Remote {
        /// What was being read or written.
        url: String,
        /// Its own words.
        why: String,
    },
    /// There is no checkpoint where one was asked for.
    #[error("no checkpoint in {path}: {found}")]
    Missing {
        /// Where it was looked for.
        path: String,
        /// What is there instead, and what to do.
        found: String,
    },
    /// There are checkpoints, and none of them can be read.
    #[error(
        "no checkpoint in {path} can be read: {why}; to start anew, move them away or use another folder"
    )]
    Unreadable {
        /// Where they lie.
        path: String,
        /// What is wrong with each.
        why: String,
    },
    /// The manifest cannot be read.
    #[error("{path}: {source}")]
    Manifest {
        /// Where it lies.
        path: String,
        /// What is wrong with it.
        source: ManifestError,
    },
    /// Bytes are not those that were written, or are no tensors at all.
    #[error("{path} is damaged: {why}: use another checkpoint, or a copy of this one")]
    Damaged {
        /// Which file.
        path: String,
        /// What differs.
        why: String,
    },
    /// A write is not through yet.
    #[error("{path} was not written after {:.1} s; the write goes on", waited.as_secs_f64())]
    Late {
        /// What is being written.
        path: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The thread of a write ended without a word.
    #[error("the write of {path} ended without a word: this is a bug of Grampus")]
    Lost {
        /// What was being written.
        path: String,
    },
    /// The new checkpoint is safe, but an old one stays.
    #[error("{written} is written, but an older one could not be removed: {source}")]
    Prune {
        /// The new one.
        written: String,
        /// What went wrong with the old one.
        source: Box<CheckpointError>,
    },
}

impl CheckpointError {
    /// An error of the system while it handled `path`.
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.display().to_string();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::Full {
                    path,
                    why: source.to_string(),
                }
            }
            _ => Self::Io { path, source },
        }
    }
}
