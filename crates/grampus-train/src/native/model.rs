//! A native model as the loop sees it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use grampus_collective::{CollectiveError, Element, Op};
use grampus_native::schedule::{PlateauState, Schedule};
use grampus_native::{NativeError, Real};

use super::error::RunError;
use super::job::Spec;
use super::learner::{Judging, LaneRows, Learner};
use super::rows::LaneBatch;
use super::seat::Seat;
use super::sharing::Held;
use super::state::{Plain, State};
use crate::fit::{Model, Part, Total};
use crate::gradients::Gradients;

/// Rows that an error names.
const NAMED: usize = 8;

/// A model that is trained, with all that this worker has of the run.
pub(super) struct Trained<T> {
    pub learner: Learner<T>,
    pub seat: Seat,
    schedule: Option<Schedule>,
    plateau: Option<PlateauState>,
    gradients: Gradients,
    /// What layers keep beside their parameters: a lane's own in a step, the first one's for all after it.
    kept: Vec<T>,
    first_kept: Vec<T>,
    /// Steps and epochs that are done.
    pub step: u64,
    pub epoch: u64,
    /// What is known of a loss of this step that is no number.
    odd: Option<String>,
    /// The sum of a step is there, and all know of it or may do so; it was not applied.
    ready: bool,
    /// A step is being applied: what is there belongs neither to it nor to the one before.
    pub midst: bool,
    /// The loss of a step that was applied here, and of which not all know.
    applied: Option<f64>,
    /// Whether a worker wants to stop after the step that was done last.
    pub stops: bool,
    /// Whether this worker wants to stop.
    pub wants_to_stop: Box<dyn Fn() -> bool>,
}

impl<T: Real + Element> Trained<T> {
    pub fn new(spec: &Spec, seat: &Seat, state: Option<&State>) -> Result<Self, RunError> {
        let (Some(loss), Some(optimizer)) = (&spec.loss, spec.optimizer) else {
            return Err(RunError::Asked(
                "a model is trained with a loss and an optimizer: give it both".into(),
            ));
        };
        let network = spec.network(seat.layout.seed, seat.layout.threads)?;
        let judging = Judging::new(network, loss.clone())?;
        let mut learner = Learner::new(judging, optimizer, spec.bounds)?;
        learner.set_groups(&spec.groups)?;
        let schedule = spec.settled_schedule()?;
        if let Some(state) = state {
            state.load(&mut learner)?;
        }
        let parameters = learner.judging.parameters();
        if parameters.is_empty() {
            return Err(RunError::Asked(
                "the model has no parameter that can be trained".into(),
            ));
        }
        let lanes = seat.layout.lanes;
        let gradients = Gradients::new(seat.group.clone(), seat.mine.clone(), lanes, &parameters)?;
        let kept = learner.judging.network.buffers().to_vec();
        Ok(Self {
            gradients,
            seat: seat.clone(),
            schedule,
            plateau: state.and_then(|state| state.plain.plateau.clone()),
            first_kept: kept.clone(),
            kept,
            learner,
            step: 0,
            epoch: state.map_or(0, |state| state.plain.epoch),
            odd: None,
            ready: false,
            midst: false,
            applied: None,
            stops: false,
            wants_to_stop: Box::new(|| false),
        })
    }

    /// Takes what all workers that are left have of a run; says which part is lost, if one is.
    pub fn heal(&mut self, held: Vec<Held<T>>, plain: &Plain) -> Result<(), String> {
        self.learner.heal(held)?;
        self.kept = self.learner.judging.network.buffers().to_vec();
        self.first_kept = self.kept.clone();
        (self.epoch, self.plateau) = (plain.epoch, plain.plateau.clone());
        Ok(())
    }

    /// Divides what the optimizer remembers among the workers.
    pub fn divide(&mut self) {
        let group = &self.seat.group;
        if group.size() > 1 {
            self.learner.memory.divide(group.size(), group.rank());
        }
    }

    /// What this worker has of the run, where that is divided.
    pub fn held(&self) -> Result<Option<Held<T>>, RunError> {
        let next = (&self.gradients, self.rate(), self.first_kept.as_slice());
        Ok(self.learner.held(&self.kept, self.ready.then_some(next))?)
    }

    /// What is said about the rest of its state.
    pub fn plain(&self) -> Plain {
        Plain {
            epoch: self.epoch,
            plateau: self.plateau.clone(),
            ..Plain::default()
        }
    }

    /// The learning rate of the next step.
    pub fn rate(&self) -> f64 {
        let base = self.learner.memory.optimizer.lr();
        let cuts = self.plateau.as_ref().map_or(0, PlateauState::cuts);
        self.schedule.as_ref().map_or(base, |schedule| {
            schedule.rate_after_cuts(cuts, base, self.step, self.epoch)
        })
    }

    /// An epoch is done: a schedule that looks at a metric sees it here, the same on every worker.
    pub fn epoch_ends(&mut self, value: impl Fn(&str) -> Option<f64>) -> Result<(), RunError> {
        let plateau = self.schedule.as_ref();
        let plateau = plateau.and_then(|schedule| schedule.plateau(self.step, self.epoch));
        if let Some(plateau) = plateau {
            let Some(score) = value(&plateau.monitor) else {
                return Err(RunError::Asked(format!(
                    "there is no {:?} for the schedule to look at: name one that an epoch's record has",
                    plateau.monitor
                )));
            };
            self.plateau
                .get_or_insert_with(|| PlateauState::new(plateau.clone()))
                .observe(score);
        }
        self.epoch += 1;
        Ok(())
    }

    /// All of it; all workers must ask at once where it is divided among them.
    pub fn state(&self) -> Result<State, RunError> {
        State::of(&self.learner, &self.seat.group, self.epoch, self.plateau.clone())
    }

    /// Forgets what was begun of a step.
    pub fn roll_back(&mut self) {
        let network = &mut self.learner.judging.network;
        network.buffers_mut().copy_from_slice(&self.kept);
    }

    fn train(&mut self, part: &Part<LaneBatch<T>>, share: f64, seed: u64) -> Result<(), RunError> {
        let index = (part.lane - self.seat.mine.start) as usize;
        let Some(batch) = &part.batch else {
            return Ok(self.gradients.skip(index)?);
        };
        if !self.kept.is_empty() {
            self.roll_back();
        }
        let Some(target) = &batch.target else {
            return Err(RunError::Asked(
                "the rows have no target: name the columns that should come out".into(),
            ));
        };
        let inputs: Vec<_> = batch.inputs.iter().map(|array| array.rows()).collect();
        let lane = LaneRows {
            inputs: &inputs,
            target: target.rows(),
            rows: batch.rows.len(),
        };
        let trained = self.learner.train(&mut self.gradients, index, lane, share, seed);
        let loss = trained.map_err(|error| located(error.into(), part.lane, batch, Some(self.step + 1)))?;
        // As it is summed; the mean over rows that count for nothing is not a number.
        let shared = if share == 0.0 { 0.0 } else { (loss * share) as f32 };
        if !shared.is_finite() {
            let first = self.learner.judging.network.first_not_finite();
            let layer = first.map_or(String::new(), |(name, kind)| {
                format!("; layer {name} ({kind}) is the first that is not finite")
            });
            self.odd.get_or_insert_with(|| {
                format!(
                    "the loss is {loss} at step {}, lane {}: rows {}{layer}; look at these rows, or lower the \
                     learning rate",
                    self.step + 1,
                    part.lane,
                    listed(&batch.rows)
                )
            });
        }
        if part.lane == 0 {
            self.first_kept
                .copy_from_slice(self.learner.judging.network.buffers());
        }
        self.gradients.end(shared, 0.0, (self.wants_to_stop)());
        Ok(())
    }

    fn commit(&mut self) -> Result<Option<f64>, RunError> {
        (self.ready, self.applied) = (false, None);
        let group = Arc::clone(&self.seat.group);
        let summed = self.gradients.finish(self.seat.hope())?;
        if !summed.loss.is_finite() {
            // All workers see it; the one whose rows they are says why.
            return Err(match self.odd.take() {
                Some(why) => RunError::NotFinite(why),
                None => RunError::Collective(CollectiveError::Ended {
                    why: format!("the loss of another lane is {}", summed.loss),
                }),
            });
        }
        if !self.kept.is_empty() && group.size() > 1 {
            group.broadcast(&mut self.first_kept, 0)?;
        }
        if self.learner.memory.share.is_some() {
            // Who goes on from here knows that all others have what they need to do so, too.
            self.ready = true;
            group.barrier()?;
        }
        self.midst = true;
        self.kept.copy_from_slice(&self.first_kept);
        self.roll_back();
        let rate = self.rate();
        self.learner.update_kept(&self.gradients, rate, &group)?;
        (self.ready, self.midst) = (false, false);
        self.step += 1;
        self.stops = summed.stops;
        self.applied = Some(summed.loss);
        self.learner.spread(&group)?;
        self.applied = None;
        Ok(Some(summed.loss))
    }

    fn agree(&mut self, parts: &[Part<LaneBatch<T>>]) -> Result<Total, RunError> {
        let mut sums: Vec<[f64; 2]> = parts.iter().map(|part| [part.rows as f64, part.weight]).collect();
        let mut lanes: Vec<(u32, &mut [f64])> = parts
            .iter()
            .zip(&mut sums)
            .map(|(part, sums)| (part.lane, sums.as_mut_slice()))
            .collect();
        self.seat.group.all_reduce_lanes(&mut lanes, Op::Sum)?;
        let [rows, weight] = sums.first().copied().unwrap_or_default();
        Ok(Total {
            rows: rows as u64,
            weight,
        })
    }
}

/// Says which rows they were, where the model does not like them.
pub(super) fn located<T>(error: RunError, lane: u32, batch: &LaneBatch<T>, step: Option<u64>) -> RunError {
    let RunError::Model { error, .. } = error else {
        return error;
    };
    let when = step.map_or(String::new(), |step| format!(" at step {step}"));
    let row = match &error {
        NativeError::Row { row, .. } => batch.rows.get(*row),
        _ => None,
    };
    let place = match row {
        Some(row) => format!(" (row {row} of the data, in lane {lane}{when})"),
        None => format!(" (in lane {lane}, {} rows{when})", batch.rows.len()),
    };
    RunError::Model {
        error,
        place: Some(place),
    }
}

fn listed(rows: &[u64]) -> String {
    let mut text: Vec<String> = rows.iter().take(NAMED).map(u64::to_string).collect();
    if rows.len() > NAMED {
        text.push(format!("and {} more", rows.len() - NAMED));
    }
    text.join(", ")
}

/// The same model, lent to the loop and to whoever looks on.
pub(super) struct Lent<T>(pub Rc<RefCell<Trained<T>>>);

impl<T: Real + Element> Model for Lent<T> {
    type Batch = LaneBatch<T>;
    type Error = RunError;

    fn train(&mut self, part: Part<LaneBatch<T>>, share: f64, seed: u64) -> Result<(), RunError> {
        self.0.borrow_mut().train(&part, share, seed)
    }

    fn commit(&mut self) -> Result<Option<f64>, RunError> {
        self.0.borrow_mut().commit()
    }

    fn skip(&mut self) -> Result<(), RunError> {
        self.0.borrow_mut().step += 1;
        Ok(())
    }

    fn applied(&self) -> Option<f64> {
        self.0.borrow().applied
    }

    fn agree(&mut self, parts: &[Part<LaneBatch<T>>]) -> Result<Total, RunError> {
        self.0.borrow_mut().agree(parts)
    }
}
