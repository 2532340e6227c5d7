//! What workers are asked to do, as it travels to them.

use grampus_core::platform::Population;
use grampus_data::batch::Output;
use grampus_native::optim::Optimizer;
use grampus_native::schedule::Schedule;
use grampus_native::{Loss, Model, NativeError, Network, Real};
use serde::{Deserialize, Serialize};

use super::learner::{Bounds, LayerGroup};
use super::packed::PackedArray;
use crate::fit::{Position, Record};
use crate::metrics::{Metric, higher_is_better};
use crate::plan::{Draw, lane_seed};
use crate::trigger::Trigger;

/// A model, and how it is trained and measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// Its layers.
    pub model: Model,
    /// What is to become small; not needed to predict.
    pub loss: Option<Loss>,
    /// How weights follow from gradients; needed to train only.
    pub optimizer: Option<Optimizer>,
    /// How the learning rate changes.
    pub schedule: Option<Schedule>,
    /// Bounds of gradients.
    pub bounds: Bounds,
    /// Layers with settings of their own.
    pub groups: Vec<LayerGroup>,
    /// Whether what the optimizer remembers is divided among the workers.
    pub sharded: bool,
    /// What is measured.
    pub metrics: Vec<Named>,
}

impl Spec {
    /// The model with its first weights: equal wherever it is made from the same seed.
    pub fn network<T: Real>(&self, seed: u64, threads: u32) -> Result<Network<T>, NativeError> {
        let seed = lane_seed(Draw::Make, seed, 0, 0, 0);
        Network::new(&self.model, seed, threads as usize)
    }

    /// The schedule, with the direction of the metric that a plateau in it looks at.
    pub fn settled_schedule(&self) -> Result<Option<Schedule>, NativeError> {
        let mut schedule = self.schedule.clone();
        if let Some(schedule) = &mut schedule {
            schedule.check()?;
            schedule.settle(&|name| higher_is_better(name, |bare| self.direction(bare)))?;
        }
        Ok(schedule)
    }

    fn direction(&self, name: &str) -> Option<Option<bool>> {
        let named = self.metrics.iter().find(|named| named.name == name);
        named.map(|named| named.metric.higher_is_better())
    }

    /// What is wrong with a trigger that waits for a score, if anything is.
    pub fn check_score(&self, trigger: &Trigger, validates: bool) -> Result<(), String> {
        let directions = self
            .metrics
            .iter()
            .map(|named| (named.name.as_str(), named.metric.higher_is_better()));
        trigger.check_score(directions, validates)
    }
}

/// A metric under the name that it has in results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Named {
    /// What it is called.
    pub name: String,
    /// What it is.
    pub metric: Metric,
}

/// What makes the bits of a run, besides its data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Into how many parts each batch is cut.
    pub lanes: u32,
    /// What all random numbers follow from.
    pub seed: u64,
    /// Threads of each lane.
    pub threads: u32,
}

/// Rows, and how many of them make a batch over all lanes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Data {
    /// Where they are.
    pub source: Source,
    /// How many arrays of them go into the model; one more is what should come out.
    pub inputs: usize,
    /// Rows of a batch.
    pub batch_size: u64,
}

/// Where rows are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Source {
    /// In memory that workers of this machine share.
    Packed {
        /// The file that stands for it.
        path: String,
        /// What lies where in it.
        arrays: Vec<PackedArray>,
    },
    /// In Parquet files that workers read while they train.
    Files {
        /// Their names.
        paths: Vec<String>,
        /// What becomes of their columns.
        outputs: Vec<Output>,
        /// Blocks that are shuffled among themselves; without it all rows are kept in memory.
        window: Option<usize>,
    },
}

/// Where and when a run is saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saving {
    /// A folder, or a prefix of an object store.
    pub url: String,
    /// When.
    pub every: Trigger,
    /// How many checkpoints stay; all, where nothing is said.
    pub keep: Option<usize>,
}

/// To train.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FitJob {
    /// Tells runs apart.
    pub id: String,
    /// What is trained.
    pub spec: Spec,
    /// What makes its bits.
    pub layout: Layout,
    /// What it is trained on.
    pub data: Data,
    /// What it is measured on after each epoch.
    pub validation: Option<Data>,
    /// Where the run began.
    pub first: Position,
    /// Where it stands.
    pub at: Position,
    /// What came out of epochs before.
    pub records: Vec<Record>,
    /// Epochs to do.
    pub epochs: Option<u64>,
    /// Steps to do at most.
    pub max_steps: Option<u64>,
    /// What else ends it.
    pub end: Option<Trigger>,
    /// Where and when it is saved.
    pub saving: Option<Saving>,
    /// How often it went on after workers were lost.
    pub losses: u32,
    /// On what it was trained before: where that differs, its bits may.
    #[serde(default)]
    pub platforms: Vec<Population>,
}

/// To evaluate or to predict.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PassJob {
    /// What answers.
    pub spec: Spec,
    /// How rows are dealt out.
    pub layout: Layout,
    /// The rows.
    pub data: Data,
}

/// What workers tell while they train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// Training begins, or goes on.
    Begin {
        /// The epoch after which it ends, if that is known.
        epochs: Option<u64>,
        /// Steps of an epoch, if that is known.
        steps: Option<u64>,
        /// Rows of an epoch, if that is known.
        samples: Option<u64>,
        /// How many workers there are.
        workers: usize,
        /// Where it begins.
        at: Position,
        /// How often workers were lost before.
        losses: u32,
    },
    /// Steps were done.
    Steps {
        /// Where it stands.
        at: Position,
        /// Step and loss of each since the last time.
        losses: Vec<(u64, Option<f64>)>,
    },
    /// An epoch is done.
    Epoch {
        /// What came out of it.
        record: Record,
    },
    /// Something that people should know.
    Note {
        /// In words.
        text: String,
    },
    /// A checkpoint is being written.
    Checkpoint {
        /// Where.
        path: String,
        /// Why now.
        why: String,
    },
}
