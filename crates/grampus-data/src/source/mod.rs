//! Files, wherever they lie: what a user names, and the bytes of it.

mod client;
mod compressed;
mod file;
mod folder;
mod remote;

pub use client::{explain, s3};
pub use file::File;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use url::Url;

use crate::DataError;
use remote::Store;

/// What names a pattern, rather than one path.
const WILD: [char; 3] = ['*', '?', '['];

/// The files that paths, patterns (`*`, `?`, `**`) and folders name, in the order in which they stand; those of one pattern or folder
/// are sorted by name. A folder stands for all files below it with one of these extensions, except those whose name begins with a
/// dot or an underscore.
///
/// ```
/// # fn main() -> Result<(), grampus_data::DataError> {
/// # let folder = tempfile::tempdir().unwrap();
/// # std::fs::write(folder.path().join("b.csv"), "").unwrap();
/// # std::fs::write(folder.path().join("a.csv"), "").unwrap();
/// let pattern = format!("{}/*.csv", folder.path().display());
/// let files = grampus_data::source::find(&[pattern], &["csv"])?;
/// assert!(files[0].name().ends_with("a.csv"));
/// # Ok(())
/// # }
/// ```
pub fn find(patterns: &[String], extensions: &[&str]) -> Result<Vec<File>, DataError> {
    let mut stores = Stores::default();
    let mut files = Vec::new();
    for pattern in patterns {
        let wrong = |why: &str| DataError::Url {
            url: pattern.clone(),
            why: why.to_owned(),
        };
        match pattern.split_once("://") {
            None if pattern.is_empty() => return Err(wrong("the path is empty")),
            None => files.extend(folder::find(pattern, PathBuf::from(pattern), extensions)?),
            Some(("file", _)) => {
                let url = Url::parse(pattern).map_err(|error| wrong(&error.to_string()))?;
                let path = url.to_file_path().map_err(|()| wrong("it names another host"))?;
                files.extend(folder::find(pattern, path, extensions)?);
            }
            // Hadoop's name for the same.
            Some(("s3" | "s3a", rest)) => {
                let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
                files.extend(Store::find(&stores.bucket(bucket)?, pattern, key, extensions)?);
            }
            Some(("http" | "https", _)) => {
                let url = Url::parse(pattern).map_err(|error| wrong(&error.to_string()))?;
                files.push(Store::page(&stores.site(&url)?, pattern, &url)?);
            }
            Some((scheme, _)) => {
                let why = format!("{scheme}:// is not supported: use a path, file://, s3:// or https://");
                return Err(wrong(&why));
            }
        }
    }
    Ok(files)
}

/// One client for all files of a bucket or a site.
#[derive(Default)]
struct Stores(HashMap<String, Arc<Store>>);

impl Stores {
    fn bucket(&mut self, name: &str) -> Result<Arc<Store>, DataError> {
        self.client(format!("s3://{name}"), |_| {
            client::s3(name).map(|client| Arc::new(client) as _)
        })
    }

    fn site(&mut self, url: &Url) -> Result<Arc<Store>, DataError> {
        // What stands behind a question mark belongs to every request: it stays with the client.
        let base = match url.query() {
            Some(_) => url.to_string(),
            None => url.origin().ascii_serialization(),
        };
        self.client(base, |base| {
            client::http(base).map(|client| Arc::new(client) as _)
        })
    }

    fn client(
        &mut self,
        base: String,
        make: impl Fn(&str) -> object_store::Result<Arc<dyn object_store::ObjectStore>>,
    ) -> Result<Arc<Store>, DataError> {
        if let Some(store) = self.0.get(&base) {
            return Ok(Arc::clone(store));
        }
        let client = make(&base).map_err(|error| DataError::Store {
            url: base.clone(),
            why: error.to_string(),
        })?;
        let store = Arc::new(Store::new(client, &base)?);
        self.0.insert(base, Arc::clone(&store));
        Ok(store)
    }
}

/// The folders of a pattern before the first that it leaves open.
fn fixed_part(pattern: &str) -> &str {
    let fixed = &pattern[..pattern.find(WILD).unwrap_or(pattern.len())];
    fixed.rfind('/').map_or("", |slash| &fixed[..slash])
}

/// Whether a file of this name is meant where its folder is named.
fn is_meant(name: &str, extensions: &[&str]) -> bool {
    let hidden = name.starts_with(['.', '_']);
    // The whole end, so that `csv.gz` can be asked for too.
    !hidden
        && extensions
            .iter()
            .any(|end| name.to_lowercase().ends_with(&format!(".{end}")))
}
