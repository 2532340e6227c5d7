//! A place that holds several checkpoints, one folder each.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::encoding::{Encoded, decode};
use super::error::CheckpointError;
use super::keep::{Held, Keep, Surplus, surplus};
use super::manifest::{MANIFEST, Manifest, hex, is_file_name};
use super::place::{Blob, Length, Place, place, place_of_file};
use super::tensor::Tensor;

/// No manifest is longer than this: the tensors are elsewhere.
const LONGEST_MANIFEST: u64 = 64 << 20;

/// What a checkpoint holds.
#[derive(Debug)]
pub struct Checkpoint {
    /// The caller's own JSON, to the letter.
    pub meta: Box<RawValue>,
    /// The tensors of each file.
    pub files: BTreeMap<String, Vec<Tensor>>,
}

/// A checkpoint in a store. Entries are ordered by step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The step after which it was written.
    pub step: u64,
    /// The name of its folder.
    pub name: String,
}

impl Entry {
    /// The entry of this name, if a checkpoint may be called so.
    ///
    /// ```
    /// use grampus_train::checkpoint::Entry;
    ///
    /// assert_eq!(Entry::named("step-00000120").map(|entry| entry.step), Some(120));
    /// assert_eq!(Entry::named("best"), None);
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        let digits = name.strip_prefix("step-")?;
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        let step = digits.parse().ok().filter(|_| plain)?;
        let name = name.to_owned();
        Some(Self { step, name })
    }

    /// The entry of this step, with enough zeros in its name that most tools list it in order.
    ///
    /// ```
    /// assert_eq!(grampus_train::checkpoint::Entry::at(120).name, "step-00000120");
    /// ```
    pub fn at(step: u64) -> Self {
        let name = format!("step-{step:08}");
        Self { step, name }
    }
}

/// A checkpoint that was passed over, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Which one.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
    /// It was never finished, as far as can be told: nothing is lost with it.
    pub unfinished: bool,
}

/// The newest checkpoint that is whole, and the newer ones that are not.
#[derive(Debug)]
pub struct Latest {
    /// The checkpoint; nothing where no checkpoint is whole.
    pub found: Option<(Entry, Checkpoint)>,
    /// Newest first.
    pub skipped: Vec<Skipped>,
}

/// A folder, or what takes its place in an object store, that holds checkpoints.
///
/// ```
/// use grampus_train::checkpoint::{DType, Store, Tensor};
/// use serde_json::{json, value::to_raw_value};
///
/// # let folder = tempfile::tempdir()?;
/// # let url = folder.path().to_str().unwrap_or_default();
/// let store = Store::open(url)?;
/// let weight = Tensor::new("weight", DType::F32, vec![1], vec![0; 4])?;
/// let files = vec![("model.safetensors".to_owned(), vec![weight])];
/// store.write("step-00000120", files, to_raw_value(&json!({"epoch": 3}))?)?;
///
/// let (entry, checkpoint) = store.latest()?.found.ok_or("nothing there")?;
/// assert_eq!(entry.step, 120);
/// assert_eq!(checkpoint.files["model.safetensors"][0].name(), "weight");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Store {
    place: Box<dyn Place>,
}

impl Store {
    /// The store at a path, `file:///path` or `s3://bucket/prefix`. Nothing is read or made yet.
    pub fn open(url: &str) -> Result<Self, CheckpointError> {
        place(url).map(|place| Self { place })
    }

    /// Where a checkpoint of this name lies.
    pub fn path(&self, name: &str) -> String {
        self.place.path(name, "")
    }

    /// All checkpoints, whole or not, oldest first.
    pub fn list(&self) -> Result<Vec<Entry>, CheckpointError> {
        let folders = self.place.folders()?;
        let mut entries: Vec<Entry> = folders.iter().filter_map(|name| Entry::named(name)).collect();
        entries.sort();
        Ok(entries)
    }

    /// The newest checkpoint of which every byte is there. It is read for that, so here it is.
    pub fn latest(&self) -> Result<Latest, CheckpointError> {
        let mut skipped = Vec::new();
        for entry in self.list()?.into_iter().rev() {
            match self.read(&entry.name) {
                Ok(checkpoint) => {
                    let found = Some((entry, checkpoint));
                    return Ok(Latest { found, skipped });
                }
                // A store that does not answer would make all of them look broken.
                Err(error @ CheckpointError::Remote { .. }) => return Err(error),
                Err(error) => skipped.push(Skipped {
                    name: entry.name,
                    unfinished: matches!(error, CheckpointError::Missing { .. }) && !self.place.is_atomic(),
                    reason: error.to_string(),
                }),
            }
        }
        let found = None;
        Ok(Latest { found, skipped })
    }

    /// The same for a run that goes on: where none is whole but some were, that is an error, since a run that starts anew
    /// would be written beside them.
    pub fn resumable(&self) -> Result<Latest, CheckpointError> {
        let latest = self.latest()?;
        let lost: Vec<&str> = latest
            .skipped
            .iter()
            .filter(|skipped| !skipped.unfinished)
            .map(|skipped| skipped.reason.as_str())
            .collect();
        match latest.found.is_none() && !lost.is_empty() {
            true => Err(CheckpointError::Unreadable {
                path: self.place.path("", ""),
                why: lost.join("; "),
            }),
            false => Ok(latest),
        }
    }

    /// Reads a checkpoint; each byte is checked before it is handed out.
    pub fn read(&self, name: &str) -> Result<Checkpoint, CheckpointError> {
        checked(name)?;
        self.read_folder(name)
    }

    /// Writes a checkpoint, whole or not at all, and replaces one of the same name. Each file of tensors has a name such
    /// as "model.safetensors".
    pub fn write(
        &self,
        name: &str,
        files: Vec<(String, Vec<Tensor>)>,
        meta: Box<RawValue>,
    ) -> Result<(), CheckpointError> {
        checked(name)?;
        let mut blobs = Vec::new();
        let mut sealed = BTreeMap::new();
        for (file, tensors) in files {
            let encoded = Encoded::new(tensors, &BTreeMap::new())?;
            let taken = sealed.insert(file.clone(), encoded.seal()).is_some();
            if taken || !is_file_name(&file) {
                return Err(CheckpointError::Name {
                    what: "a file of tensors",
                    name: file,
                    instead: "names such as model.safetensors, each once",
                });
            }
            let parts = encoded.parts().collect();
            blobs.push(Blob { name: file, parts });
        }
        let manifest = Manifest {
            grampus: env!("CARGO_PKG_VERSION").to_owned(),
            files: sealed,
            meta,
        };
        let text = manifest.to_bytes().map_err(CheckpointError::Meta)?;
        // Last: what makes a folder a checkpoint.
        blobs.push(Blob {
            name: MANIFEST.to_owned(),
            parts: vec![text.into()],
        });
        self.place.write_folder(name, &blobs)
    }

    /// Removes a checkpoint; one that is not there is no error. The manifest goes first, so half of one is none.
    pub fn remove(&self, name: &str) -> Result<(), CheckpointError> {
        checked(name)?;
        self.place.remove(name, MANIFEST)
    }

    /// Removes what need not be kept, now that `written` is there, and says why.
    pub fn prune(&self, written: &str, keep: &Keep) -> Result<Vec<Surplus>, CheckpointError> {
        let mut held = Vec::new();
        for entry in self.list()? {
            let finished = self.place.files(&entry.name)?.iter().any(|file| file == MANIFEST);
            held.push(Held { entry, finished });
        }
        let surplus = surplus(&held, written, keep);
        for one in &surplus {
            self.remove(&one.name)?;
        }
        Ok(surplus)
    }

    /// The empty name stands for the store's own folder.
    fn read_folder(&self, name: &str) -> Result<Checkpoint, CheckpointError> {
        let manifest = self
            .place
            .read(name, MANIFEST, Length::AtMost(LONGEST_MANIFEST))?;
        let Some(manifest) = manifest else {
            return Err(self.missing(name)?);
        };
        let manifest = Manifest::parse(manifest.bytes()).map_err(|source| CheckpointError::Manifest {
            path: self.place.path(name, MANIFEST),
            source,
        })?;
        let mut files = BTreeMap::new();
        for (file, sealed) in manifest.files {
            let damaged = |why: String| CheckpointError::Damaged {
                path: self.place.path(name, &file),
                why,
            };
            let memory = self.place.read(name, &file, Length::Exactly(sealed.bytes))?;
            let memory = memory.ok_or_else(|| damaged("it is not there".to_owned()))?;
            let found = crc32c::crc32c(memory.bytes());
            if found != sealed.crc32c {
                let wanted = hex(sealed.crc32c);
                return Err(damaged(format!("its checksum is {}, not {wanted}", hex(found))));
            }
            let (tensors, _) = decode(memory).map_err(damaged)?;
            files.insert(file, tensors);
        }
        let meta = manifest.meta;
        Ok(Checkpoint { meta, files })
    }

    /// What to say of a folder without a manifest.
    fn missing(&self, name: &str) -> Result<CheckpointError, CheckpointError> {
        let files = self.place.files(name)?;
        let inside = if name.is_empty() { self.list()? } else { Vec::new() };
        let weights = files.iter().find(|file| is_file_name(file));
        let found = match (inside.last(), weights) {
            (Some(entry), _) => format!("it holds checkpoints, up to {}: name one of them", entry.name),
            (None, Some(file)) => format!(
                "it holds {file} but no {MANIFEST}, so it was never finished, or holds weights alone: load those from {}",
                self.place.path(name, file)
            ),
            (None, None) if files.is_empty() => "it is empty or not there".to_owned(),
            (None, None) => format!("it holds no {MANIFEST}, but {}", files.join(", ")),
        };
        let path = self.place.path(name, "");
        Ok(CheckpointError::Missing { path, found })
    }
}

/// Reads the one checkpoint whose folder this is.
pub fn read(url: &str) -> Result<Checkpoint, CheckpointError> {
    Store::open(url)?.read_folder("")
}

/// Reads a plain safetensors file: the tensors, and the remarks in its header. It has no checksum, so only its form is checked.
///
/// ```
/// use std::collections::BTreeMap;
/// use grampus_train::checkpoint::{DType, Tensor, read_tensors, write_tensors};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("model.safetensors");
/// # let path = path.to_str().unwrap_or_default();
/// let weight = Tensor::new("weight", DType::BF16, vec![2, 1], vec![0; 4])?;
/// write_tensors(path, vec![weight.clone()], &BTreeMap::new())?;
/// assert_eq!(read_tensors(path)?.0, [weight]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_tensors(url: &str) -> Result<(Vec<Tensor>, BTreeMap<String, String>), CheckpointError> {
    let (place, file) = place_of_file(url)?;
    let path = place.path("", &file);
    match place.read("", &file, Length::Any)? {
        None => Err(CheckpointError::Missing {
            path,
            found: "there is no such file".to_owned(),
        }),
        Some(memory) => decode(memory).map_err(|why| CheckpointError::Damaged { path, why }),
    }
}

/// Writes a plain safetensors file, whole or not at all.
pub fn write_tensors(
    url: &str,
    tensors: Vec<Tensor>,
    remarks: &BTreeMap<String, String>,
) -> Result<(), CheckpointError> {
    let (place, name) = place_of_file(url)?;
    let parts = Encoded::new(tensors, remarks)?.parts().collect();
    place.write_file(&Blob { name, parts })
}

fn checked(name: &str) -> Result<(), CheckpointError> {
    match Entry::named(name) {
        Some(_) => Ok(()),
        None => Err(CheckpointError::Name {
            what: "a checkpoint",
            name: name.to_owned(),
            instead: "step- and a number, such as step-00000120",
        }),
    }
}
