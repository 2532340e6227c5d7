//! Files of object stores and web sites.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use glob::{MatchOptions, Pattern};
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt};
use tokio::runtime::{Builder, Handle, Runtime};
use url::Url;

use super::client::explain;
use super::file::{File, cut};
use super::{WILD, fixed_part, is_meant};
use crate::DataError;

/// A bucket or a site. It has no thread of its own: whoever asks drives the requests.
#[derive(Debug)]
pub(super) struct Store {
    client: Arc<dyn ObjectStore>,
    runtime: Runtime,
    base: String,
}

impl Store {
    pub fn new(client: Arc<dyn ObjectStore>, base: &str) -> Result<Self, DataError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Self {
            client,
            runtime: runtime.map_err(|error| DataError::io(base, error))?,
            base: base.to_owned(),
        })
    }

    /// The one file at an address.
    pub fn page(store: &Arc<Self>, written: &str, url: &Url) -> Result<File, DataError> {
        let wrong = |why: String| DataError::Url {
            url: written.to_owned(),
            why,
        };
        let key = match url.query() {
            Some(_) => Path::default(),
            None if url.path().contains('*') => {
                return Err(wrong("a web site lists no files: name each of them".to_owned()));
            }
            None => Path::from_url_path(url.path()).map_err(|error| wrong(error.to_string()))?,
        };
        Ok(File::remote(written.to_owned(), store, key))
    }

    /// The files that a key, a pattern or a prefix names.
    pub fn find(
        store: &Arc<Self>,
        written: &str,
        key: &str,
        extensions: &[&str],
    ) -> Result<Vec<File>, DataError> {
        let wrong = |why: String| DataError::Url {
            url: written.to_owned(),
            why,
        };
        let is_pattern = key.contains(WILD);
        let prefix = if is_pattern { fixed_part(key) } else { key };
        let prefix = Path::parse(prefix.trim_matches('/')).map_err(|error| wrong(error.to_string()))?;
        if !is_pattern && !key.is_empty() && !key.ends_with('/') && store.holds(written, &prefix)? {
            return Ok(vec![File::remote(written.to_owned(), store, prefix)]);
        }
        let pattern = Pattern::new(key).map_err(|error| wrong(error.to_string()))?;
        let options = MatchOptions {
            require_literal_separator: true,
            ..MatchOptions::default()
        };
        let meant = |key: &Path| match is_pattern {
            true => pattern.matches_with(key.as_ref(), options),
            false => {
                let below = key.prefix_match(&prefix);
                below.is_some_and(|mut parts| parts.all(|part| !part.as_ref().starts_with(['.', '_'])))
                    && is_meant(key.filename().unwrap_or_default(), extensions)
            }
        };
        let listed = store.client.list(Some(&prefix)).map_ok(|object| object.location);
        let mut keys: Vec<Path> = store.ask(written, listed.try_collect())?;
        let some = !keys.is_empty();
        keys.retain(meant);
        keys.sort();
        match keys.is_empty() {
            false => {
                let folder = format!("{}/{prefix}", store.base);
                let file = |key| File::remote(format!("{}/{key}", store.base), store, key).below(&folder);
                Ok(keys.into_iter().map(file).collect())
            }
            true if is_pattern => Err(DataError::EmptyGlob {
                pattern: written.to_owned(),
            }),
            true if some => Err(DataError::EmptyFolder {
                folder: written.to_owned(),
                extensions: extensions.iter().map(|end| format!(".{end}")).collect(),
            }),
            true => Err(DataError::NoSuchPath {
                path: written.to_owned(),
            }),
        }
    }

    fn holds(&self, name: &str, key: &Path) -> Result<bool, DataError> {
        self.ask(name, async {
            match self.client.head(key).await {
                Err(Error::NotFound { .. }) => Ok(false),
                other => other.map(|_| true),
            }
        })
    }

    pub fn read(&self, name: &str, key: &Path) -> Result<Bytes, DataError> {
        self.ask(name, async { self.client.get(key).await?.bytes().await })
    }

    pub fn read_ranges(
        &self,
        name: &str,
        key: &Path,
        ranges: &[Range<u64>],
    ) -> Result<Vec<Bytes>, DataError> {
        let some = self.ask(name, async {
            match self.client.get_ranges(key, ranges).await {
                Err(Error::NotSupported { .. }) => Ok(None),
                other => other.map(Some),
            }
        })?;
        match some {
            Some(pieces) => Ok(pieces),
            // Plain web servers give all or nothing.
            None => cut(name, &self.read(name, key)?, ranges),
        }
    }

    pub fn read_tail(&self, name: &str, key: &Path, length: u64) -> Result<(Bytes, u64), DataError> {
        let options = GetOptions {
            range: Some(GetRange::Suffix(length)),
            ..GetOptions::default()
        };
        let some = self.ask(name, async {
            match self.client.get_opts(key, options).await {
                Err(Error::NotSupported { .. }) => Ok(None),
                Err(error) => Err(error),
                Ok(found) => {
                    let size = found.meta.size;
                    found.bytes().await.map(|bytes| Some((bytes, size)))
                }
            }
        })?;
        match some {
            Some(tail) => Ok(tail),
            None => self
                .read(name, key)
                .map(|bytes| (bytes.clone(), bytes.len() as u64)),
        }
    }

    /// Waits for an answer; the limits of requests see to it that one comes.
    fn ask<T>(&self, name: &str, answer: impl Future<Output = Result<T, Error>>) -> Result<T, DataError> {
        let wrong = |why: String| DataError::Store {
            url: name.to_owned(),
            why,
        };
        if Handle::try_current().is_ok() {
            return Err(wrong(
                "call this from a thread that runs no async code".to_owned(),
            ));
        }
        self.runtime.block_on(answer).map_err(|error| match error {
            Error::NotFound { .. } => DataError::NoSuchPath {
                path: name.to_owned(),
            },
            error => wrong(explain(name, &error)),
        })
    }
}
