//! Checkpoints in an object store that speaks S3.

use std::future::Future;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use grampus_data::source;
use object_store::aws::AmazonS3;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart};
use tokio::runtime::{Builder, Handle, Runtime};

use super::error::CheckpointError;
use super::place::{Blob, Length, Place};
use super::tensor::Memory;

/// What is sent or fetched at once; a store takes at most 10,000 such parts of a file.
const PART: u64 = 16 << 20;
const MOST_PARTS: u64 = 9_000;
const PARTS_AT_ONCE: usize = 8;

pub(super) struct Bucket {
    store: AmazonS3,
    runtime: Runtime,
    name: String,
    prefix: Path,
}

impl Bucket {
    /// Settings come from the variables AWS_*.
    pub fn open(name: &str, prefix: &str) -> Result<Self, CheckpointError> {
        let url = format!("s3://{name}/{prefix}");
        let wrong = |why: String| CheckpointError::Remote {
            url: url.clone(),
            why,
        };
        let prefix = Path::parse(prefix.trim_matches('/')).map_err(|error| wrong(error.to_string()))?;
        let store = source::s3(name).map_err(|error| wrong(error.to_string()))?;
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Self {
            store,
            runtime: runtime.map_err(|error| wrong(error.to_string()))?,
            name: name.to_owned(),
            prefix,
        })
    }

    fn key(&self, folder: &str, file: &str) -> Path {
        let parts = [folder, file].into_iter().filter(|part| !part.is_empty());
        parts.fold(self.prefix.clone(), |key, part| key.join(part))
    }

    /// Waits for an answer; the limits of requests see to it that one comes.
    fn ask<T>(
        &self,
        key: &Path,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, CheckpointError> {
        let url = format!("s3://{}/{key}", self.name);
        let wrong = |why: String| CheckpointError::Remote {
            url: url.clone(),
            why,
        };
        if Handle::try_current().is_ok() {
            return Err(wrong(
                "call this from a thread that runs no async code".to_owned(),
            ));
        }
        self.runtime
            .block_on(answer)
            .map_err(|error| wrong(source::explain(&url, &error)))
    }

    async fn put(&self, key: &Path, parts: &[Bytes]) -> Result<(), Error> {
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if length <= PART {
            self.store
                .put(key, PutPayload::from_iter(parts.iter().cloned()))
                .await?;
            return Ok(());
        }
        let size = PART.max(length.div_ceil(MOST_PARTS)) as usize;
        let mut upload = WriteMultipart::new_with_chunk_size(self.store.put_multipart(key).await?, size);
        for part in parts {
            // A tensor may be large, and all that is put is under way at once.
            for start in (0..part.len()).step_by(size) {
                if let Err(error) = upload.wait_for_capacity(PARTS_AT_ONCE).await {
                    let _ = upload.abort().await;
                    return Err(error);
                }
                upload.put(part.slice(start..part.len().min(start + size)));
            }
        }
        upload.finish().await.map(|_| ())
    }

    async fn get(&self, key: &Path, length: u64) -> Result<Vec<u8>, Error> {
        let starts = (0..length).step_by(PART as usize);
        let mut fetched = stream::iter(starts)
            .map(|start| self.store.get_range(key, start..length.min(start + PART)))
            .buffered(PARTS_AT_ONCE);
        let mut bytes = Vec::new();
        // A length that is a lie must not end the process.
        let _ = bytes.try_reserve_exact(usize::try_from(length).unwrap_or(usize::MAX));
        while let Some(part) = fetched.try_next().await? {
            bytes.extend_from_slice(&part);
        }
        Ok(bytes)
    }

    async fn keys(&self, folder: &Path) -> Result<Vec<Path>, Error> {
        let listed = self.store.list(Some(folder));
        listed.map_ok(|object| object.location).try_collect().await
    }
}

impl Place for Bucket {
    fn path(&self, folder: &str, file: &str) -> String {
        format!("s3://{}/{}", self.name, self.key(folder, file))
    }

    fn folders(&self) -> Result<Vec<String>, CheckpointError> {
        let listed = self.ask(&self.prefix, self.store.list_with_delimiter(Some(&self.prefix)))?;
        let folders = listed.common_prefixes.iter();
        Ok(folders
            .filter_map(|folder| folder.filename().map(str::to_owned))
            .collect())
    }

    fn files(&self, folder: &str) -> Result<Vec<String>, CheckpointError> {
        let key = self.key(folder, "");
        let listed = self.ask(&key, self.store.list_with_delimiter(Some(&key)))?;
        let objects = listed.objects.iter();
        Ok(objects
            .filter_map(|object| object.location.filename().map(str::to_owned))
            .collect())
    }

    fn read(&self, folder: &str, file: &str, length: Length) -> Result<Option<Memory>, CheckpointError> {
        let key = self.key(folder, file);
        let found = self.ask(&key, async {
            match self.store.head(&key).await {
                Err(Error::NotFound { .. }) => Ok(None),
                head => head.map(|object| Some(object.size)),
            }
        })?;
        let Some(found) = found else {
            return Ok(None);
        };
        if let Some(why) = length.objection(found) {
            let path = self.path(folder, file);
            return Err(CheckpointError::Damaged { path, why });
        }
        let bytes = self.ask(&key, self.get(&key, found))?;
        Ok(Some(Memory::heap(bytes)))
    }

    /// An object appears whole or not at all, and one after the other: so the last says that all are there.
    fn write_folder(&self, folder: &str, files: &[Blob]) -> Result<(), CheckpointError> {
        if let Some(last) = files.last() {
            self.remove_key(&self.key(folder, &last.name))?;
        }
        for file in files {
            let key = self.key(folder, &file.name);
            self.ask(&key, self.put(&key, &file.parts))?;
        }
        Ok(())
    }

    fn is_atomic(&self) -> bool {
        false
    }

    fn write_file(&self, file: &Blob) -> Result<(), CheckpointError> {
        let key = self.key("", &file.name);
        self.ask(&key, self.put(&key, &file.parts))
    }

    fn remove(&self, folder: &str, first: &str) -> Result<(), CheckpointError> {
        self.remove_key(&self.key(folder, first))?;
        let key = self.key(folder, "");
        for key in self.ask(&key, self.keys(&key))? {
            self.remove_key(&key)?;
        }
        Ok(())
    }
}

impl Bucket {
    fn remove_key(&self, key: &Path) -> Result<(), CheckpointError> {
        self.ask(key, async {
            match self.store.delete(key).await {
                Err(Error::NotFound { .. }) => Ok(()),
                other => other,
            }
        })
    }
}
