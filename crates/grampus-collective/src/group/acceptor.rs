//! Takes in the connections of ranks of other hosts, for all groups of this process.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use grampus_core::{JobId, JobKey};
use grampus_net::{Limits, Listener, NetError, Wire};
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use super::lobby::wire_ending_of;
use crate::CollectiveError;
use crate::shared::monotonic;

/// How often wires that no group has asked for yet are looked at.
const SWEEP: Duration = Duration::from_secs(1);
/// How soon to accept again where this process has no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// Where it listens, and under which name.
pub(super) struct Door {
    pub address: IpAddr,
    pub port: u16,
    pub name: String,
    pub job: JobId,
    pub key: JobKey,
}

/// A thread that answers; a connection waits until its group asks for it.
#[derive(Debug)]
pub(super) struct Acceptor {
    visits: Arc<Visits>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What became of a rank that came.
#[derive(Debug)]
pub(super) enum Arrival {
    Here(Wire),
    /// It went before its group asked for it.
    Gone,
}

#[derive(Debug, Default)]
struct Visits {
    book: Mutex<VisitBook>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct VisitBook {
    /// Wires that no group has asked for yet, by name.
    here: HashMap<String, Wire>,
    /// Names of wires that ended before that, and the endings of the names of all wires of groups that were given up.
    over: RecentNames,
}

impl Visits {
    fn book(&self) -> MutexGuard<'_, VisitBook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, wire: Wire) {
        let mut book = self.book();
        let name = wire.peer().name.clone();
        if book.over.knows(wire_ending_of(&name), monotonic()) {
            // The rank that dialled sees the end, and does not wait for this one.
            return drop(wire);
        }
        book.over.forget(&name);
        book.here.insert(name, wire);
        self.news.notify_all();
    }
}

impl VisitBook {
    fn take(&mut self, name: &str) -> Option<Arrival> {
        if let Some(wire) = self.here.remove(name) {
            return Some(Arrival::Here(wire));
        }
        self.over.knows(name, monotonic()).then(|| {
            self.over.forget(name);
            Arrival::Gone
        })
    }

    /// Gives back the descriptors of wires that have ended.
    fn sweep(&mut self) {
        let now = monotonic();
        for (name, _) in self.here.extract_if(|_, wire| wire.is_ended()) {
            self.over.note(name, now);
        }
    }
}

/// Names, each for a while; the oldest make room where there are many.
#[derive(Debug, Default)]
struct RecentNames(HashMap<String, Duration>);

impl RecentNames {
    const MOST: usize = 1024;
    /// Twice as long as a group forms by default: a rank may come that late.
    const KEPT_FOR: Duration = Duration::from_secs(3600);

    fn note(&mut self, name: String, now: Duration) {
        self.0
            .retain(|_, noted| now.saturating_sub(*noted) < Self::KEPT_FOR);
        if self.0.len() >= Self::MOST {
            let oldest = self.0.iter().min_by_key(|(_, noted)| **noted);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.0.remove(&oldest);
            }
        }
        self.0.insert(name, now);
    }

    fn knows(&self, name: &str, now: Duration) -> bool {
        let noted = self.0.get(name);
        noted.is_some_and(|noted| now.saturating_sub(*noted) < Self::KEPT_FOR)
    }

    fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }
}

impl Acceptor {
    pub fn start(door: &Door) -> Result<Self, CollectiveError> {
        let runtime = super::lobby::runtime()?;
        let listener = runtime.block_on(listen(door))?;
        let visits = Arc::new(Visits::default());
        let (stop, stopped) = oneshot::channel();
        let theirs = Arc::clone(&visits);
        let thread = std::thread::Builder::new()
            .name("grampus-lobby".into())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = answer(&listener, &theirs) => {}
                        _ = stopped => {}
                    }
                });
            })
            .map_err(|error| CollectiveError::System(format!("cannot start a thread: {error}")))?;
        Ok(Self {
            visits,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The wire of this name, once it has come; `None` after `limit`.
    pub fn take(&self, name: &str, limit: Duration) -> Option<Arrival> {
        let mut taken = None;
        let visits = &self.visits;
        let waited = visits.news.wait_timeout_while(visits.book(), limit, |book| {
            taken = book.take(name);
            taken.is_none()
        });
        drop(waited);
        taken
    }

    /// A group was given up: its wires are closed, those that are here and those that come later.
    pub fn give_up(&self, ending: String) {
        let mut book = self.visits.book();
        book.here.retain(|name, _| !name.ends_with(&ending));
        book.over.note(ending, monotonic());
    }

    /// A group forms that may have been given up before.
    pub fn welcome(&self, ending: &str) {
        self.visits.book().over.forget(ending);
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn listen(door: &Door) -> Result<Listener, NetError> {
    let at = |address: IpAddr| {
        let address = SocketAddr::new(address, door.port).to_string();
        let (job, key) = (door.job, door.key.clone());
        async move { Listener::tcp(&address, job, key, &Limits::default()).await }
    };
    at(door.address).await?.named(&door.name)
}

/// Never ends by itself: after any error another group may form.
async fn answer(listener: &Listener, visits: &Visits) {
    let mut shaking = tokio::task::JoinSet::new();
    let mut sweep = tokio::time::interval(SWEEP);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(incoming) => drop(shaking.spawn(incoming.any_wire())),
                // Out of descriptors: groups that end give some back.
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            // A broken connection is dropped: a rank dials again, and a stranger does not matter.
            Some(shaken) = shaking.join_next() => {
                if let Ok(Ok(wire)) = shaken {
                    visits.add(wire);
                }
            }
            _ = sweep.tick(), if !visits.book().here.is_empty() => visits.book().sweep(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_names_are_bounded_in_number_and_time() {
        let second = Duration::from_secs(1);
        let mut names = RecentNames::default();
        let many = 3 * RecentNames::MOST as u32;
        for number in 0..many {
            names.note(number.to_string(), second / 100 * number);
        }
        let now = second / 100 * many;
        assert_eq!(names.0.len(), RecentNames::MOST);
        assert!(names.knows(&(many - 1).to_string(), now));
        assert!(!names.knows("0", now));
        let later = now + RecentNames::KEPT_FOR;
        assert!(!names.knows(&(many - 1).to_string(), later));
        names.note("last".into(), later);
        assert_eq!(names.0.len(), 1);
        names.forget("last");
        assert!(!names.knows("last", later));
    }
}
