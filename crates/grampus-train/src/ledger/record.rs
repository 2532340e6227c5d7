//! The lines of a ledger.

use serde::{Deserialize, Serialize};

/// The form that this code reads.
pub(super) const FORMAT: u32 = 1;
/// No run has more epochs or steps.
const MOST: u64 = 1 << 60;

/// A step of an epoch, both counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "(u64, u64)", into = "(u64, u64)")]
pub struct Place {
    /// Which epoch.
    pub epoch: u64,
    /// Which of its steps.
    pub step: u64,
}

impl TryFrom<(u64, u64)> for Place {
    type Error = String;

    fn try_from((epoch, step): (u64, u64)) -> Result<Self, String> {
        // What comes after it must be a number, too.
        match epoch.max(step) < MOST {
            true => Ok(Self { epoch, step }),
            false => Err(format!("no run has epoch {epoch} and step {step}")),
        }
    }
}

impl From<Place> for (u64, u64) {
    fn from(place: Place) -> Self {
        (place.epoch, place.step)
    }
}

/// What one worker tells of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// Who writes: the first line.
    Head(Head),
    /// An epoch is begun, or gone on with.
    Open(Open),
    /// A step is about to use rows.
    Begun(Begun),
    /// A step was done, on this worker.
    Done(Place),
    /// The worker ends its part early; all steps before this one were done.
    Left(Place),
    /// The run ended as it was to end, before this step.
    End(Place),
}

/// Who writes, and how the run is cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The form of the lines.
    pub format: u32,
    /// Attempts are numbered within the folder of a run.
    pub attempt: u64,
    /// Which worker of the attempt.
    pub rank: u32,
    /// How many it has.
    pub workers: u32,
    /// Parts of a batch.
    pub lanes: u32,
    /// What the order is made from.
    pub seed: u64,
    /// Rows of a batch.
    pub batch_size: u64,
    /// The first step that the attempt does: what others did from here on does not count.
    pub at: Place,
}

/// What an epoch has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// The step with which it is begun or gone on.
    pub at: Place,
    /// Its rows; nobody knows those of a stream.
    pub rows: Option<u64>,
    /// The rows from which they are taken, none twice; nothing where a sampler may choose one twice.
    pub of: Option<u64>,
}

/// What the lanes of one worker are about to use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// Which step.
    pub at: Place,
    /// One for every lane, also where it has no rows.
    pub parts: Vec<Part>,
}

/// What one lane is about to use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Which lane.
    pub lane: u32,
    /// How many rows it is given.
    pub count: u64,
    /// The place of the first among all of the epoch; nothing where a lane reads for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// Their numbers, where they follow each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<(i64, i64)>,
    /// Their numbers, where they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<i64>>,
    /// How many of them were bad, and not used.
    #[serde(default, skip_serializing_if = "is_none_left_out")]
    pub left_out: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_none_left_out(count: &u64) -> bool {
    *count == 0
}

impl Line {
    /// Whether the numbers of a line fit each other; why not, otherwise.
    pub(super) fn check(&self, lanes: u32) -> Result<(), String> {
        let Self::Begun(begun) = self else { return Ok(()) };
        begun.parts.iter().try_for_each(|part| part.check(lanes))
    }
}

impl Part {
    fn check(&self, lanes: u32) -> Result<(), String> {
        let Self { lane, count, .. } = self;
        if *lane >= lanes {
            return Err(format!("lane {lane} is not among the {lanes} lanes of the run"));
        }
        if let Some(rows) = &self.rows
            && rows.len() as u64 != *count
        {
            return Err(format!("lane {lane} has {count} rows and names {}", rows.len()));
        }
        if let Some((start, end)) = self.range
            && u64::try_from(i128::from(end) - i128::from(start)) != Ok(*count)
        {
            return Err(format!("lane {lane} has {count} rows and names {start} to {end}"));
        }
        if self.left_out > *count {
            return Err(format!(
                "lane {lane} has {count} rows and leaves out {}",
                self.left_out
            ));
        }
        match self.first.map(|first| first.checked_add(*count)) {
            Some(None) => Err(format!("lane {lane} has more rows than can be counted")),
            _ => Ok(()),
        }
    }
}
