//! What a worker keeps of a run whose other workers are gone, and how all of them get it.

use grampus_collective::Element;
use grampus_native::Real;
use serde::{Deserialize, Serialize};

use super::error::RunError;
use super::job::FitJob;
use super::run::Fitted;
use super::seat::Seat;
use super::sharing::Held;
use super::state::{Plain, State};
use crate::fit::{Position, Record};

/// A run as one worker has it.
#[derive(Clone, Serialize, Deserialize)]
pub struct Kept {
    /// Which run.
    pub run: String,
    /// Where it stands.
    pub at: Position,
    /// What came out of its epochs.
    pub records: Vec<Record>,
    /// Weights and memories.
    pub has: Has,
}

/// What is kept.
#[derive(Clone, Serialize, Deserialize)]
pub enum Has {
    /// All of it, as [`State::to_bytes`] gives it.
    Whole(Vec<u8>),
    /// The parts that are this worker's, and what is said about the rest. Until the first step after a loss, they are those
    /// of all workers.
    Parts(Vec<Vec<u8>>, String),
}

/// What a run goes on with.
pub(super) enum Start<T> {
    /// A state, or first weights where there is none.
    State(Option<Box<State>>),
    /// What all workers have kept, to be put together.
    Parts(Vec<Held<T>>, Plain),
}

/// How far a worker has come: steps, and epochs, which may end without a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Reached {
    step: u64,
    epoch: u64,
}

impl Kept {
    fn reached(&self) -> Reached {
        Reached {
            step: self.at.step,
            epoch: self.at.epoch,
        }
    }

    /// Adds what all workers had handed over, where no step was done since: those who had it may be lost.
    pub(super) fn with_parts_of(mut self, before: Self) -> Self {
        let same = before.run == self.run && before.at.step == self.at.step;
        if let (Has::Parts(parts, _), Has::Parts(others, _), true) = (&mut self.has, before.has, same) {
            parts.extend(others);
        }
        self
    }

    /// All of the run as this worker alone has it; nothing where others have parts of it.
    pub fn whole(&self, run: &str) -> Result<Option<Fitted>, RunError> {
        let Has::Whole(bytes) = &self.has else {
            return Ok(None);
        };
        let fitted = || -> Result<Fitted, RunError> {
            Ok(Fitted {
                state: State::from_bytes(bytes)?,
                at: self.at,
                records: self.records.clone(),
                reason: String::new(),
                unsaved: None,
            })
        };
        (self.run == run).then(fitted).transpose()
    }
}

/// Lets all workers go on from where the one stands that has come furthest; nothing where nobody has anything.
///
/// From here on all of them have it in `kept`, which is theirs to let go once a step is done: another may be lost before.
///
/// ```text
/// ranks have come to   step 7, step 8, nowhere   →   all go on from step 8, which rank 1 has
/// ```
pub(super) fn gone_on<T: Real + Element>(
    job: &mut FitJob,
    kept: &mut Option<Kept>,
    seat: &Seat,
) -> Result<Option<Start<T>>, RunError> {
    let mine = kept.as_ref().filter(|kept| kept.run == job.id);
    let reached = mine.map(Kept::reached);
    let told = seat.gather(&serde_json::to_vec(&reached).map_err(unreadable)?)?;
    let mut places: Vec<Option<Reached>> = Vec::with_capacity(told.len());
    for each in &told {
        places.push(serde_json::from_slice(each).map_err(unreadable)?);
    }
    let Some(source) = furthest(&places) else {
        return Ok(None);
    };
    // All send their parts; of a whole, the one that has come furthest sends it.
    let sends = seat.group.rank() == source
        || matches!(
            mine,
            Some(Kept {
                has: Has::Parts(..),
                ..
            })
        );
    let text = match mine.filter(|_| sends) {
        Some(kept) => postcard::to_stdvec(kept).map_err(unreadable)?,
        None => Vec::new(),
    };
    let mut all: Vec<Option<Kept>> = Vec::with_capacity(places.len());
    for each in seat.gather(&text)? {
        let kept = (!each.is_empty()).then(|| postcard::from_bytes(&each));
        all.push(kept.transpose().map_err(unreadable)?);
    }
    let Some(mut best) = all[source].take() else {
        return Ok(None);
    };
    if let Has::Parts(parts, _) = &mut best.has {
        for other in all.into_iter().flatten() {
            if let Has::Parts(others, _) = other.has {
                parts.extend(others);
            }
        }
        // Where this is not the first loss since the last step, each worker has sent all of them.
        parts.sort_unstable();
        parts.dedup();
    }
    (job.at, job.records) = (best.at, best.records.clone());
    let start = match &best.has {
        Has::Whole(bytes) => Start::State(Some(Box::new(State::from_bytes(bytes)?))),
        Has::Parts(parts, plain) => {
            let parts = parts
                .iter()
                .map(|bytes| Held::from_bytes(bytes).map_err(RunError::Asked));
            let parts = parts.collect::<Result<_, _>>()?;
            Start::Parts(parts, serde_json::from_str(plain).map_err(unreadable)?)
        }
    };
    *kept = Some(best);
    Ok(Some(start))
}

/// The first of those that have come furthest; nothing where nobody has anything.
fn furthest(places: &[Option<Reached>]) -> Option<usize> {
    let most = places.iter().flatten().max()?;
    places.iter().position(|place| place.as_ref() == Some(most))
}

fn unreadable(error: impl std::fmt::Display) -> RunError {
    RunError::Asked(format!("what another worker has kept cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_has_come_furthest_is_followed() {
        let at = |step, epoch| Some(Reached { step, epoch });
        assert_eq!(furthest(&[None, at(7, 1), at(8, 1), at(8, 1)]), Some(2));
        assert_eq!(furthest(&[at(8, 1), at(8, 2)]), Some(1));
        assert_eq!(furthest(&[None, None]), None);
    }
}
