//! Checkpoints of a run: those that Python writes of native models are the same.

use std::sync::Arc;
use std::time::Duration;

use grampus_core::platform::Population;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::error::RunError;
use super::job::{FitJob, Layout, Saving};
use super::state::{Plain, State};
use crate::checkpoint::{Checkpoint, CheckpointError, Keep, Order, Store, Writer};
use crate::fit::{Position, Record};

/// How long the end of a run waits for what is being written; a store that is slower is in trouble.
const WITHIN: Duration = Duration::from_secs(600);
const FILES: [&str; 2] = ["model.safetensors", "optimizer.safetensors"];

/// What a checkpoint says besides its tensors.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Meta {
    at: Position,
    first: Position,
    layout: Layout,
    #[serde(default)]
    batch_size: Option<u64>,
    #[serde(default)]
    samples: Option<u64>,
    #[serde(default)]
    records: Vec<serde_json::Map<String, serde_json::Value>>,
    plain: Plain,
    /// What metrics of training have counted, which is nothing here.
    #[serde(default)]
    meters: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    best: Option<(f64, String)>,
    #[serde(default)]
    why: String,
    #[serde(default)]
    platforms: Vec<Population>,
}

/// A run as it was saved.
pub struct Resumed {
    /// The name of the checkpoint.
    pub name: String,
    /// Weights and memories.
    pub state: State,
    /// Where the run stood, and where it began.
    pub at: Position,
    /// Where it began.
    pub first: Position,
    /// What makes its bits.
    pub layout: Layout,
    /// What came out of the epochs before.
    pub records: Vec<Record>,
    /// Rows of a batch, and of an epoch.
    pub rows: (Option<u64>, Option<u64>),
    /// On what it was trained.
    pub platforms: Vec<Population>,
    /// Why newer ones were passed over.
    pub skipped: Vec<String>,
}

/// The newest whole checkpoint of a place, if there is one; an error where all that there are cannot be read.
pub fn resumed(url: &str) -> Result<Option<Resumed>, RunError> {
    let latest = Store::open(url)?.resumable()?;
    let skipped: Vec<String> = latest.skipped.into_iter().map(|each| each.reason).collect();
    let Some((entry, checkpoint)) = latest.found else {
        return Ok(None);
    };
    let mut found = read(entry.name, checkpoint)?;
    found.skipped = skipped;
    Ok(Some(found))
}

fn read(name: String, checkpoint: Checkpoint) -> Result<Resumed, RunError> {
    let meta: Meta = serde_json::from_str(checkpoint.meta.get()).map_err(|error| {
        RunError::Asked(format!("checkpoint {name} is not one of a native model: {error}"))
    })?;
    let mut files = checkpoint.files;
    let mut tensors = |file: &str| files.remove(file).unwrap_or_default();
    Ok(Resumed {
        state: State {
            model: tensors(FILES[0]),
            optimizer: tensors(FILES[1]),
            plain: meta.plain,
        },
        name,
        at: meta.at,
        first: meta.first,
        layout: meta.layout,
        records: meta.records.into_iter().map(record).collect(),
        rows: (meta.batch_size, meta.samples),
        platforms: meta.platforms,
        skipped: Vec::new(),
    })
}

/// Where the first worker saves a run.
pub(super) struct RunStore {
    writer: Writer,
    saving: Saving,
    written: Vec<String>,
    /// A place that never took anything is a mistake, one that takes nothing more may be full.
    worked: bool,
    /// Why the last one could not be written, where it could not; and whether that is yet to be told.
    failed: Option<CheckpointError>,
    untold: bool,
}

impl RunStore {
    pub fn open(saving: &Saving, goes_on: bool) -> Result<Self, CheckpointError> {
        let store = Arc::new(Store::open(&saving.url)?);
        // A run that goes on after a loss may have saved the step at which it stands. It does not end since nobody knows.
        let written = match goes_on {
            true => store.list().unwrap_or_default(),
            false => Vec::new(),
        };
        let written: Vec<String> = written.into_iter().map(|entry| entry.name).collect();
        Ok(Self {
            writer: Writer::new(store),
            saving: saving.clone(),
            worked: !written.is_empty(),
            written,
            failed: None,
            untold: false,
        })
    }

    /// Begins to write what the state holds, once the one before is written; says where, unless this step is saved already or
    /// nothing can be written: [`RunStore::trouble`] then says why.
    pub fn save(
        &mut self,
        state: State,
        job: &FitJob,
        at: &Position,
        told: (&[Record], u64, &str),
    ) -> Result<Option<String>, RunError> {
        let is_idle = self.settle();
        let name = format!("step-{:08}", at.step);
        if !is_idle || self.written.contains(&name) {
            return Ok(None);
        }
        let (records, samples, why) = told;
        let meta = Meta {
            at: *at,
            first: job.first,
            layout: job.layout.clone(),
            batch_size: Some(job.data.batch_size),
            samples: Some(samples),
            records: records.iter().map(written).collect(),
            plain: state.plain,
            meters: serde_json::Map::new(),
            best: None,
            why: why.to_owned(),
            platforms: job.platforms.clone(),
        };
        let order = Order {
            name: name.clone(),
            files: FILES
                .into_iter()
                .map(str::to_owned)
                .zip([state.model, state.optimizer])
                .collect(),
            meta: raw(&meta)?,
            keep: self.saving.keep.map(|last| Keep {
                last,
                pinned: Vec::new(),
            }),
        };
        if let Err(error) = self.writer.begin(order, WITHIN) {
            self.fail(error);
            return Ok(None);
        }
        let path = format!("{}/{name}", self.saving.url);
        self.written.push(name);
        Ok(Some(path))
    }

    /// Waits until all is written or has failed; false where it takes too long, and is still under way.
    pub fn settle(&mut self) -> bool {
        match self.writer.wait(WITHIN) {
            Ok(None) => true,
            Ok(Some(_)) => {
                (self.worked, self.failed) = (true, None);
                true
            }
            Err(error @ CheckpointError::Late { .. }) => {
                self.fail(error);
                false
            }
            Err(error) => {
                // What was written stands where older ones could not be removed. Otherwise the same step may be tried again.
                match error {
                    CheckpointError::Prune { .. } => self.worked = true,
                    _ => drop(self.written.pop()),
                }
                self.fail(error);
                true
            }
        }
    }

    fn fail(&mut self, error: CheckpointError) {
        (self.failed, self.untold) = (Some(error), true);
    }

    /// Why the last one could not be written, once, for people: the run goes on.
    pub fn trouble(&mut self) -> Option<String> {
        if !std::mem::take(&mut self.untold) {
            return None;
        }
        self.failed.as_ref().map(|error| match error {
            CheckpointError::Prune { .. } => error.to_string(),
            _ => format!("a checkpoint could not be written, and the run goes on: {error}"),
        })
    }

    /// Why there is no checkpoint at all, where there is none.
    pub fn unsaved(self) -> Option<String> {
        let failed = self.failed.filter(|_| !self.worked);
        failed.map(|error| error.to_string())
    }
}

fn raw(meta: &Meta) -> Result<Box<RawValue>, CheckpointError> {
    to_raw_value(meta).map_err(CheckpointError::Meta)
}

/// A record as JSON has it; what is no number is left out.
fn written(record: &Record) -> serde_json::Map<String, serde_json::Value> {
    let values = record.values.iter();
    values
        .filter(|(_, value)| value.is_finite())
        .map(|(name, value)| (name.clone(), serde_json::Value::from(*value)))
        .collect()
}

fn record(values: serde_json::Map<String, serde_json::Value>) -> Record {
    let mut record = Record::default();
    for (name, value) in values {
        if let Some(value) = value.as_f64() {
            record.add(name, value);
        }
    }
    record
}
