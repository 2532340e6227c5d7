//! A file, and how its bytes are read.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::Mmap;
use object_store::path::Path;

use super::compressed;
use super::remote::Store;
use crate::DataError;

/// A file of this machine or of an object store.
#[derive(Clone, Debug)]
pub struct File {
    name: String,
    /// How much of the name leads to the folder or pattern that was asked for.
    root: usize,
    lies: Lies,
}

#[derive(Clone, Debug)]
enum Lies {
    Here(PathBuf),
    There(Arc<Store>, Path),
}

impl File {
    /// A file of this machine.
    pub fn local(path: PathBuf) -> Self {
        Self {
            name: path.to_string_lossy().into_owned(),
            root: 0,
            lies: Lies::Here(path),
        }
    }

    /// The same file, found below a folder.
    pub(super) fn below(mut self, folder: &str) -> Self {
        self.root = if self.name.starts_with(folder) {
            folder.len()
        } else {
            0
        };
        self
    }

    pub(super) fn remote(name: String, store: &Arc<Store>, key: Path) -> Self {
        Self {
            name,
            root: 0,
            lies: Lies::There(Arc::clone(store), key),
        }
    }

    /// Its path or address.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folders that lead to it from the folder that was asked for, or from the fixed part of the pattern; all that were
    /// written where the file itself was named.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &str> {
        let below = self.name.get(self.root..).unwrap_or_default();
        below
            .rsplit_once('/')
            .map_or("", |(folders, _)| folders)
            .split('/')
    }

    /// Whether its bytes come over the network, so that many should be asked for at once.
    pub fn is_remote(&self) -> bool {
        matches!(self.lies, Lies::There(..))
    }

    /// All bytes. Those of a file of this machine are mapped, not read: whoever cuts the file short meanwhile ends this process.
    pub fn bytes(&self) -> Result<Bytes, DataError> {
        match &self.lies {
            Lies::Here(path) => self.map(path).map_err(|error| DataError::io(&self.name, error)),
            Lies::There(store, key) => store.read(&self.name, key),
        }
    }

    /// All bytes of a text, which is decompressed where the end of its name says that it is compressed.
    pub(crate) fn text(&self) -> Result<Bytes, DataError> {
        compressed::decompress(&self.name, self.bytes()?)
    }

    /// The bytes of these ranges, and nothing else.
    pub(crate) fn ranges(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, DataError> {
        match &self.lies {
            Lies::Here(_) => cut(&self.name, &self.bytes()?, ranges),
            Lies::There(store, key) => store.read_ranges(&self.name, key, ranges),
        }
    }

    /// The last bytes, at most `length`, and how many there are in all.
    pub(crate) fn tail(&self, length: u64) -> Result<(Bytes, u64), DataError> {
        match &self.lies {
            Lies::Here(_) => {
                let bytes = self.bytes()?;
                let from = bytes.len().saturating_sub(length as usize);
                Ok((bytes.slice(from..), bytes.len() as u64))
            }
            Lies::There(store, key) => store.read_tail(&self.name, key, length),
        }
    }

    fn map(&self, path: &PathBuf) -> std::io::Result<Bytes> {
        let file = fs::File::open(path)?;
        // Pipes and such cannot be mapped, and an empty mapping is refused.
        if !file.metadata()?.is_file() || file.metadata()?.len() == 0 {
            return fs::read(path).map(Bytes::from);
        }
        // SAFETY: the bytes are only read. A file that shrinks ends the process (see `bytes`), one that is written to gives other
        // bytes, which all readers take as they take any damaged file.
        Ok(Bytes::from_owner(unsafe { Mmap::map(&file) }?))
    }
}

/// Pieces of the bytes that are there.
pub(super) fn cut(name: &str, bytes: &Bytes, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, DataError> {
    let piece = |range: &Range<u64>| match range.start <= range.end && range.end <= bytes.len() as u64 {
        true => Ok(bytes.slice(range.start as usize..range.end as usize)),
        false => Err(DataError::Damaged {
            place: crate::Place::file(name),
            why: format!("it has {} bytes and is cut short", bytes.len()),
        }),
    };
    ranges.iter().map(piece).collect()
}
