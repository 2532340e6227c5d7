//! Whole jobs, as each worker does them.

use std::cell::RefCell;
use std::rc::Rc;

use grampus_collective::Element;
use grampus_core::SystemClock;
use grampus_core::platform::{self, Platform, Population};
use grampus_native::Real;

use super::error::RunError;
use super::feed::RowsFeed;
use super::job::{Event, FitJob, PassJob, Spec};
use super::kept::{Has, Kept, Start, gone_on};
use super::learner::Judging;
use super::model::{Lent, Trained};
use super::pass::{Evaluation, Prediction, answer, judge};
use super::saving::{RunStore, resumed};
use super::seat::Seat;
use super::state::State;
use super::watch::Watch;
use crate::fit::{self, Feed, Position, Record, Settings};
use crate::whereabouts::Whereabouts;

/// How a run is heard of, and how it is told to stop.
pub struct Hooks<'a> {
    /// Called on the first worker.
    pub tell: &'a dyn Fn(&Event),
    /// Whether this worker wants the run to end after the step under way.
    pub wants_to_stop: Box<dyn Fn() -> bool>,
    /// Where it says what it is at.
    pub here: &'a Whereabouts,
}

/// What came out of training.
pub struct Fitted {
    /// Weights and memories.
    pub state: State,
    /// Where the run stands.
    pub at: Position,
    /// What came out of each epoch.
    pub records: Vec<Record>,
    /// Why it ended.
    pub reason: String,
    /// Why its last checkpoint could not be written, where none was before.
    pub unsaved: Option<String>,
}

/// Trains, from a state or from the first weights. What this worker has of the run when it is cut off is left in `kept`; where the
/// run was cut off before, it goes on from what all workers have kept together, or from its last checkpoint. Until the first step
/// is done, that stays in `kept`: another worker may be lost while it travels.
pub fn fit<T: Real + Element>(
    mut job: FitJob,
    state: Option<State>,
    seat: &Seat,
    hooks: Hooks<'_>,
    kept: &mut Option<Kept>,
) -> Result<Fitted, RunError> {
    let known = std::mem::take(&mut job.platforms);
    job.platforms = compare_platforms(here(), known, job.losses > 0, seat, hooks.tell)?;
    let mut trained = begun::<T>(&mut job, state, seat, kept, hooks.tell)?;
    if job.spec.sharded {
        trained.divide();
    }
    let loss = job.spec.loss.as_ref();
    let mut feed: RowsFeed<T> = RowsFeed::open(job.data.clone(), seat, loss, true)?;
    trained.step = job.at.step;
    trained.wants_to_stop = hooks.wants_to_stop;
    let trained = Rc::new(RefCell::new(trained));
    let mut watch = watch(&job, &trained, feed.total(), hooks.tell, kept)?;
    if seat.leads() {
        (hooks.tell)(&begin(&job, &mut feed, seat)?);
    }
    let mut at = job.at;
    let ended = fit::fit(
        &mut Lent(Rc::clone(&trained)),
        &mut feed,
        &mut watch,
        &settings(&job),
        &mut at,
        &SystemClock::start(),
        hooks.here,
    );
    let (records, store) = (watch.records, watch.store);
    let mut trained = trained.borrow_mut();
    // Also where all went well: the first worker may be lost before its answer has arrived.
    if ended.as_ref().map_or_else(RunError::is_consequence, |_| true) {
        trained.roll_back();
        if let Some(has) = has(&trained)? {
            *kept = Some(Kept {
                run: job.id.clone(),
                at,
                records: records.clone(),
                has,
            });
        }
    }
    let outcome = ended?;
    // What was trained goes home, whatever became of the file.
    let unsaved = store.and_then(|mut store| store.settle().err());
    Ok(Fitted {
        unsaved: unsaved.map(|error| error.to_string()),
        state: trained.state()?,
        at,
        records,
        reason: outcome.reason,
    })
}

/// On what this worker computes. The engine calls no library that a variable could limit.
fn here() -> Platform {
    let mut found = platform::processor();
    found.insert("grampus".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    found
}

/// All platforms of a run. Withdraws the promise of equal bits, aloud, where workers compute on machines that differ.
fn compare_platforms(
    mine: Platform,
    known: Vec<Population>,
    goes_on: bool,
    seat: &Seat,
    tell: &dyn Fn(&Event),
) -> Result<Vec<Population>, RunError> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let unreadable = |error: postcard::Error| RunError::Asked(error.to_string());
    let told = seat.gather(&postcard::to_stdvec(&(host, mine)).map_err(unreadable)?)?;
    let members: Result<Vec<(String, Platform)>, _> =
        told.iter().map(|each| postcard::from_bytes(each)).collect();
    let (all, why) = platform::compare(known, &members.map_err(unreadable)?, goes_on);
    if let Some(text) = why.filter(|_| seat.leads()) {
        tell(&Event::Note { text });
    }
    Ok(all)
}

/// The model as the run begins, or as it goes on after workers were lost.
fn begun<T: Real + Element>(
    job: &mut FitJob,
    state: Option<State>,
    seat: &Seat,
    kept: &mut Option<Kept>,
    tell: &dyn Fn(&Event),
) -> Result<Trained<T>, RunError> {
    if job.losses == 0 {
        *kept = None;
        return Trained::new(&job.spec, seat, state.as_ref());
    }
    let why = match gone_on::<T>(job, kept, seat)? {
        Some(Start::State(state)) => return Trained::new(&job.spec, seat, state.as_deref()),
        Some(Start::Parts(parts, plain)) => {
            let mut trained = Trained::new(&job.spec, seat, None)?;
            match trained.heal(parts, &plain) {
                Ok(()) => return Ok(trained),
                Err(why) => why,
            }
        }
        None => "no worker is left that has the run".to_owned(),
    };
    *kept = None;
    let state = from_checkpoint(job, seat)?;
    if seat.leads() {
        let text = format!(
            "{why}: the run goes on from its last checkpoint, at step {}",
            job.at.step
        );
        tell(&Event::Note { text });
    }
    Trained::new(&job.spec, seat, state.as_ref())
}

/// What this worker keeps of a run that was cut off; nothing of a step that is being applied.
fn has<T: Real + Element>(trained: &Trained<T>) -> Result<Option<Has>, RunError> {
    if trained.learner.memory.share.is_none() {
        return Ok(Some(Has::Whole(trained.state()?.to_bytes()?)));
    }
    let plain =
        serde_json::to_string(&trained.plain()).map_err(|error| RunError::Asked(error.to_string()))?;
    match trained.held()? {
        Some(held) => Ok(Some(Has::Parts(
            vec![held.to_bytes().map_err(RunError::Asked)?],
            plain,
        ))),
        None => Ok(None),
    }
}

/// Looks on; only the first worker saves.
fn watch<'a, T: Real + Element>(
    job: &'a FitJob,
    trained: &Rc<RefCell<Trained<T>>>,
    samples: u64,
    tell: &'a dyn Fn(&Event),
    kept: &'a mut Option<Kept>,
) -> Result<Watch<'a, T>, RunError> {
    let seat = trained.borrow().seat.clone();
    let validation = job.validation.clone();
    let validation = validation.map(|data| RowsFeed::open(data, &seat, None, false));
    let store = match &job.saving {
        Some(saving) if seat.leads() => Some(RunStore::open(saving, job.losses > 0)?),
        _ => None,
    };
    Ok(Watch {
        job,
        trained: Rc::clone(trained),
        validation: validation.transpose()?,
        store,
        samples,
        records: job.records.clone(),
        tell,
        kept,
    })
}

fn settings(job: &FitJob) -> Settings {
    Settings {
        seed: job.layout.seed,
        first: job.first,
        epochs: job.epochs,
        max_steps: job.max_steps,
        end: job.end.clone(),
        save: job.saving.as_ref().map(|saving| saving.every.clone()),
        goes_on: job.losses > 0,
        // Native losses are means.
        sums: false,
    }
}

fn begin<T: Real + Element>(job: &FitJob, feed: &mut RowsFeed<T>, seat: &Seat) -> Result<Event, RunError> {
    Ok(Event::Begin {
        epochs: job.epochs.map(|epochs| job.first.epoch + epochs),
        steps: feed.steps(job.at.epoch)?,
        samples: Some(feed.total()),
        workers: seat.group.size(),
        at: job.at,
        losses: job.losses,
    })
}

/// Where nobody is left that has the run: from what was saved of it last.
fn from_checkpoint(job: &mut FitJob, seat: &Seat) -> Result<Option<State>, RunError> {
    let Some(saving) = &job.saving else {
        return Err(RunError::NothingKept);
    };
    let found = resumed(&saving.url)?.filter(|found| found.first == job.first);
    // All must have seen the same one, and it may have been written a moment ago.
    let step = found.as_ref().map(|found| found.at.step);
    let told = seat.gather(step.map_or(String::new(), |step| step.to_string()).as_bytes())?;
    let Some(found) = found.filter(|_| told.windows(2).all(|pair| pair[0] == pair[1])) else {
        return Err(RunError::NothingKept);
    };
    job.at = found.at;
    job.records = found.records;
    Ok(Some(found.state))
}

/// Loss and metrics over all rows: the same on every worker.
pub fn evaluate<T: Real + Element>(
    job: PassJob,
    state: Option<&State>,
    seat: &Seat,
) -> Result<Evaluation, RunError> {
    let Some(loss) = job.spec.loss.clone() else {
        return Err(RunError::Asked(
            "a model is evaluated with a loss: give it one".into(),
        ));
    };
    let mut feed: RowsFeed<T> = RowsFeed::open(job.data, seat, None, false)?;
    let mut judging = Judging::new(with_weights(&job.spec, state, seat)?, loss)?;
    judge(&mut judging, &mut feed, &job.spec.metrics, seat)
}

/// The answers of this worker's lanes.
pub fn predict<T: Real + Element>(
    job: PassJob,
    state: Option<&State>,
    seat: &Seat,
) -> Result<Vec<Prediction<T>>, RunError> {
    let mut feed: RowsFeed<T> = RowsFeed::open(job.data, seat, None, false)?;
    let mut network = with_weights(&job.spec, state, seat)?;
    answer(&mut network, &mut feed, seat)
}

fn with_weights<T: Real + Element>(
    spec: &Spec,
    state: Option<&State>,
    seat: &Seat,
) -> Result<grampus_native::Network<T>, RunError> {
    let mut network = spec.network(seat.layout.seed, seat.layout.threads)?;
    if let Some(state) = state {
        state.load_weights(&mut network)?;
    }
    Ok(network)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::{Arc, Mutex};

    use grampus_collective::{Card, GroupId, Lobby};
    use grampus_core::{JobId, JobKey};

    use super::*;
    use crate::native::job::Layout;

    /// What each of two workers hears and finds, which say that they are on these platforms.
    fn compared(platforms: [Platform; 2], known: &[Population]) -> Vec<(Vec<String>, Vec<Population>)> {
        let key = JobKey::from_bytes([3; 32]);
        let lobbies =
            [0, 1].map(|_| Lobby::open(JobId(1), key.clone(), "here", Ipv4Addr::LOCALHOST.into()).unwrap());
        let cards: Vec<Card> = lobbies.iter().map(|lobby| lobby.card().clone()).collect();
        let id = GroupId {
            name: "platforms".into(),
            generation: 1,
        };
        let one = |rank: usize, mine: Platform| {
            let settings = grampus_collective::Settings::default();
            let group = lobbies[rank].form(&id, rank, &cards, &settings).unwrap();
            let layout = Layout {
                lanes: 2,
                seed: 0,
                threads: 1,
            };
            let seat = Seat::new(Arc::new(group), layout, Arc::new(|| false));
            let heard = Mutex::new(Vec::new());
            let tell = |event: &Event| {
                if let Event::Note { text } = event {
                    heard.lock().unwrap().push(text.clone());
                }
            };
            let all = compare_platforms(mine, known.to_vec(), false, &seat, &tell).unwrap();
            (heard.into_inner().unwrap(), all)
        };
        std::thread::scope(|scope| {
            let one = &one;
            let members: Vec<_> = platforms
                .into_iter()
                .enumerate()
                .map(|(rank, mine)| scope.spawn(move || one(rank, mine)))
                .collect();
            members.into_iter().map(|member| member.join().unwrap()).collect()
        })
    }

    #[test]
    fn workers_on_one_platform_hear_nothing() {
        let found = compared([here(), here()], &[]);
        assert!(
            found
                .iter()
                .all(|(heard, all)| heard.is_empty() && all.len() == 1)
        );
    }

    #[test]
    fn the_first_worker_tells_of_a_difference_once() {
        let mut other = here();
        other.insert("cpu features".to_owned(), "none".to_owned());
        let found = compared([here(), other], &[]);
        assert_eq!(found[0].0.len(), 1);
        let told = &found[0].0[0];
        assert!(told.contains("equal bits are not promised"), "{told}");
        assert!(told.contains("\"none\" (rank 1 on "), "{told}");
        assert!(found[1].0.is_empty());
        assert!(found.iter().all(|(_, all)| all.len() == 2));
    }

    #[test]
    fn a_run_of_another_machine_is_told_of() {
        let mut before = here();
        before.insert("cpu features".to_owned(), "none".to_owned());
        let known = platform::populations(&[("there".to_owned(), before)]);
        let found = compared([here(), here()], &known);
        assert!(
            found[0].0[0].contains("\"none\" (rank 0 on there before)"),
            "{:?}",
            found[0].0
        );
    }
}
