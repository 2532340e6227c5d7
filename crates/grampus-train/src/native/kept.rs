//! What a worker keeps of a run whose other workers are gone, and how all of them get it.

use serde::{Deserialize, Serialize};

use super::error::RunError;
use super::job::FitJob;
use super::seat::Seat;
use super::state::State;
use crate::fit::{Position, Record};

/// A run as one worker has it.
pub struct Kept {
    /// Which run.
    pub run: String,
    /// Where it stands.
    pub at: Position,
    /// What came out of its epochs.
    pub records: Vec<Record>,
    /// Weights and memories.
    pub state: State,
}

/// How far a worker has come: steps, and epochs, which may end without a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Reached {
    step: u64,
    epoch: u64,
}

/// Lets all workers go on from where the one stands that has come furthest; it says why it is that one.
///
/// ```text
/// ranks have come to   step 7, step 8, nowhere   →   all go on from step 8, which rank 1 has
/// ```
pub(super) fn gone_on(job: &mut FitJob, kept: Option<Kept>, seat: &Seat) -> Result<Option<State>, RunError> {
    let mine = kept.filter(|kept| kept.run == job.id);
    let reached = mine.as_ref().map(|kept| Reached {
        step: kept.at.step,
        epoch: kept.at.epoch,
    });
    let told = seat.gather(&serde_json::to_vec(&reached).map_err(unreadable)?)?;
    let mut places: Vec<Option<Reached>> = Vec::with_capacity(told.len());
    for each in &told {
        places.push(serde_json::from_slice(each).map_err(unreadable)?);
    }
    let Some(source) = furthest(&places) else {
        return Ok(None);
    };
    let text = match &mine {
        Some(kept) if seat.group.rank() == source => {
            let told = (&kept.at, &kept.records);
            serde_json::to_vec(&(told, kept.state.to_bytes()?.len())).map_err(unreadable)?
        }
        _ => Vec::new(),
    };
    let told = seat.gather(&text)?.swap_remove(source);
    let ((at, records), length): ((Position, Vec<Record>), usize) =
        serde_json::from_slice(&told).map_err(unreadable)?;
    let mut bytes = match &mine {
        Some(kept) if seat.group.rank() == source => kept.state.to_bytes()?,
        _ => vec![0; length],
    };
    seat.group.broadcast(&mut bytes, source as u32)?;
    job.at = at;
    job.records = records;
    State::from_bytes(&bytes).map(Some)
}

/// The first of those that have come furthest; nothing where nobody has anything.
fn furthest(places: &[Option<Reached>]) -> Option<usize> {
    let most = places.iter().flatten().max()?;
    places.iter().position(|place| place.as_ref() == Some(most))
}

fn unreadable(error: serde_json::Error) -> RunError {
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
