//! The loop over batches: what a model, a feed and a watcher must do, and in which order they are asked.
//!
//! Every worker runs the same loop in step with the others. Whatever decides how it goes on is equal on all of them: the plan,
//! the summed loss, the triggers, and what a watcher says, which must have agreed with the other workers' before.

mod record;
mod run;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Deserializer, Serialize};

pub use record::{Progress, Record};
pub use run::{Outcome, fit};

use crate::trigger::Trigger;

/// What one lane has of a batch.
#[derive(Debug)]
pub struct Part<B> {
    /// Which lane.
    pub lane: u32,
    /// Its rows; 0 where the batch was too short for it.
    pub rows: u64,
    /// What it counts for in the loss: its rows, unless the loss itself is weighted.
    pub weight: f64,
    /// The rows themselves; nothing where there are none.
    pub batch: Option<B>,
}

/// A batch as one worker sees it.
#[derive(Debug)]
pub struct Batch<B> {
    /// Rows and weight of the whole batch, over all lanes of all workers; nothing where the workers have to ask each other.
    pub total: Option<Total>,
    /// One part for every lane of this worker, in order.
    pub parts: Vec<Part<B>>,
}

/// Size of a whole batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Total {
    /// Its rows.
    pub rows: u64,
    /// Sum of the weights of its parts.
    pub weight: f64,
}

/// Where a run stands: what of it has been done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Epochs that are done; the one under way has this number.
    pub epoch: u64,
    /// Steps done in the epoch under way.
    pub step_in_epoch: u64,
    /// Steps done in all.
    pub step: u64,
    /// Sum over the batches of this epoch of loss times weight.
    #[serde(deserialize_with = "number_or_nan")]
    pub loss_sum: f64,
    /// Sum of their weights.
    pub weight: f64,
    /// Rows done in this epoch.
    pub rows: u64,
    /// Seconds spent on this epoch.
    pub seconds: f64,
    /// Seconds of them spent waiting for data.
    pub waited: f64,
    /// Loss of the last step; of the last epoch where it has just ended.
    #[serde(default)]
    pub loss: Option<f64>,
    /// Score of the last epoch, where it has just ended.
    #[serde(default)]
    pub score: Option<f64>,
}

/// JSON has no word for NaN, and says null; other formats have one.
fn number_or_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    if !from.is_human_readable() {
        return f64::deserialize(from);
    }
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// How long a run goes on, and when it is saved.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// What the random numbers and the order are made from.
    pub seed: u64,
    /// Where the run begins: not at zero where a model is trained further.
    pub first: Position,
    /// Epochs to do, counted from `first`.
    pub epochs: Option<u64>,
    /// Steps to do at most, counted from `first`.
    pub max_steps: Option<u64>,
    /// What else ends the run.
    pub end: Option<Trigger>,
    /// When the run is saved.
    pub save: Option<Trigger>,
    /// The run was under way before, in this very position: whatever ended it there may have kept it from being saved.
    #[serde(default)]
    pub goes_on: bool,
    /// The loss is a sum over rows, not a mean: every lane counts in full, and the loss of an epoch is the sum over its batches.
    #[serde(default)]
    pub sums: bool,
}

/// Reads batches. All workers' feeds give equally many.
pub trait Feed {
    /// Rows as the model takes them.
    type Batch;
    /// What can go wrong.
    type Error;

    /// How many batches an epoch has, where that is known.
    fn steps(&mut self, _epoch: u64) -> Result<Option<u64>, Self::Error> {
        Ok(None)
    }

    /// Goes to a step of an epoch.
    fn open(&mut self, epoch: u64, step: u64) -> Result<(), Self::Error>;

    /// The next batch; nothing at the end of the epoch.
    fn next(&mut self) -> Result<Option<Batch<Self::Batch>>, Self::Error>;
}

/// What is trained.
pub trait Model {
    /// Rows as it takes them.
    type Batch;
    /// What can go wrong.
    type Error;

    /// Works through one lane's part, forward and backward; its loss is to be multiplied by `share`, and its random
    /// numbers drawn from `seed`. A lane without rows counts as zero.
    fn train(&mut self, part: Part<Self::Batch>, share: f64, seed: u64) -> Result<(), Self::Error>;

    /// Sums over all lanes of all workers, and applies the step; says the loss of the batch, or nothing where it is still being
    /// computed: then [`Model::late`] says it. Nothing is applied unless every part came whole.
    fn commit(&mut self) -> Result<Option<f64>, Self::Error>;

    /// A batch in which no row counts: nothing is trained, and the step is counted.
    fn skip(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Losses that `commit` did not say and that are known by now, from the oldest on; all of them where it is to `wait`.
    fn late(&mut self, _wait: bool) -> Result<Vec<f64>, Self::Error> {
        Ok(Vec::new())
    }

    /// Where a commit failed: the loss of the step if it was applied here all the same, so that this worker stands behind it.
    fn applied(&self) -> Option<f64> {
        None
    }

    /// Rows and weight of a batch over all lanes of all workers.
    fn agree(&mut self, parts: &[Part<Self::Batch>]) -> Result<Total, Self::Error>;
}

/// Looks on, saves, validates, and may ask for the end. What it answers is equal on all workers.
pub trait Watcher {
    /// What can go wrong.
    type Error;

    /// An epoch begins.
    fn epoch_begins(&mut self, at: &Position) -> Result<(), Self::Error>;

    /// A step begins.
    fn step_begins(&mut self, _at: &Position) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A step is done, with its loss where that is known; a reason ends the run.
    fn step_ends(&mut self, at: &Position, loss: Option<f64>) -> Result<Option<String>, Self::Error>;

    /// A step is done, and saved where it is to be: the last chance to end the run here by an error, to go on later.
    fn may_yield(&mut self, _at: &Position) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Validates; the names and values are added to the record. The first is the score.
    fn validate(&mut self, at: &Position, record: &mut Record) -> Result<(), Self::Error>;

    /// An epoch is done; a reason ends the run.
    fn epoch_ends(&mut self, at: &Position, record: &Record) -> Result<Option<String>, Self::Error>;

    /// Saves the run as it stands.
    fn save(&mut self, at: &Position, why: &str) -> Result<(), Self::Error>;

    /// Tells about the progress, now and then.
    fn report(&mut self, progress: &Progress<'_>) -> Result<(), Self::Error>;
}
