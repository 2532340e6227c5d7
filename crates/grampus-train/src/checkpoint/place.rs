//! Where checkpoints can lie.

use std::path::PathBuf;

use bytes::Bytes;
use url::Url;

use super::bucket::Bucket;
use super::error::CheckpointError;
use super::folder::Folder;
use super::tensor::Memory;

/// A folder, or what takes its place in an object store. It holds folders, one deep, and those hold files; the empty name
/// stands for the place itself.
pub(super) trait Place: Send + Sync {
    /// The full name of a file, or of a folder where `file` is empty, for messages.
    fn path(&self, folder: &str, file: &str) -> String;

    /// The names of the folders.
    fn folders(&self) -> Result<Vec<String>, CheckpointError>;

    /// The names of the files in a folder; none where the folder is not there.
    fn files(&self, folder: &str) -> Result<Vec<String>, CheckpointError>;

    /// The bytes of a file, or nothing where it is not there. A file that is not `length` long is damaged.
    fn read(&self, folder: &str, file: &str, length: Length) -> Result<Option<Memory>, CheckpointError>;

    /// Writes a folder whole or not at all; replaces one that is there. The last file is what makes it whole.
    fn write_folder(&self, folder: &str, files: &[Blob]) -> Result<(), CheckpointError>;

    /// Whether a folder that a write did not finish is never seen under its name.
    fn is_atomic(&self) -> bool;

    /// Writes a file in the place itself whole or not at all; replaces one that is there.
    fn write_file(&self, file: &Blob) -> Result<(), CheckpointError>;

    /// Removes a folder, `first` before all other files.
    fn remove(&self, folder: &str, first: &str) -> Result<(), CheckpointError>;
}

/// A file to be written.
pub(super) struct Blob {
    pub name: String,
    pub parts: Vec<Bytes>,
}

/// What is known of the length of a file before it is read.
#[derive(Clone, Copy)]
pub(super) enum Length {
    Exactly(u64),
    AtMost(u64),
    Any,
}

impl Length {
    /// What is wrong with a length, if anything.
    pub fn objection(self, found: u64) -> Option<String> {
        match self {
            Self::Exactly(wanted) if found != wanted => Some(format!("it has {found} bytes, not {wanted}")),
            Self::AtMost(limit) if found > limit => Some(format!("it has {found} bytes of at most {limit}")),
            _ => None,
        }
    }
}

/// The place that a user means.
pub(super) fn place(url: &str) -> Result<Box<dyn Place>, CheckpointError> {
    let wrong = |why: &str| CheckpointError::Url {
        url: url.to_owned(),
        why: why.to_owned(),
    };
    match url.split_once("://") {
        None if url.is_empty() => Err(wrong("it is empty")),
        None => Ok(Box::new(Folder::new(PathBuf::from(url)))),
        Some(("file", _)) => {
            let parsed = Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
            let path = parsed
                .to_file_path()
                .map_err(|()| wrong("it names another host"))?;
            Ok(Box::new(Folder::new(path)))
        }
        // Hadoop's name for the same.
        Some(("s3" | "s3a", rest)) => {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            if bucket.is_empty() {
                return Err(wrong("it names no bucket"));
            }
            Ok(Box::new(Bucket::open(bucket, prefix)?))
        }
        Some((scheme, _)) => Err(wrong(&format!("{scheme}:// is not supported"))),
    }
}

/// The place that holds a single file, and the file's name in it.
pub(super) fn place_of_file(url: &str) -> Result<(Box<dyn Place>, String), CheckpointError> {
    let (parent, file) = match url.rsplit_once('/') {
        None => (".", url),
        Some(("", file)) => ("/", file),
        Some((parent, file)) => (parent, file),
    };
    if file.is_empty() {
        return Err(CheckpointError::Url {
            url: url.to_owned(),
            why: "it names no file".to_owned(),
        });
    }
    Ok((place(parent)?, file.to_owned()))
}
