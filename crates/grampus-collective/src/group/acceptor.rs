//! Takes in the connections of ranks of other hosts, whichever group they are for.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use grampus_core::{JobId, JobKey};
use grampus_net::{Limits, Listener, NetError, Wire};
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use crate::CollectiveError;

/// How often wires that no group has asked for yet are looked at.
const SWEEP: Duration = Duration::from_secs(1);
/// How soon to accept again where this process has no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// Where it listens, and as whom.
pub(super) struct Door {
    pub address: IpAddr,
    pub port: u16,
    pub name: String,
    pub job: JobId,
    pub key: JobKey,
}

/// A thread that answers; who came waits until its group asks for it.
#[derive(Debug)]
pub(super) struct Acceptor {
    come: Arc<Come>,
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
struct Come {
    arrivals: Mutex<HashMap<String, Arrival>>,
    news: Condvar,
}

impl Come {
    fn arrivals(&self) -> MutexGuard<'_, HashMap<String, Arrival>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back the descriptors of those that have gone.
    fn sweep(&self) {
        for arrival in self.arrivals().values_mut() {
            if matches!(arrival, Arrival::Here(wire) if wire.is_ended()) {
                *arrival = Arrival::Gone;
            }
        }
    }
}

impl Acceptor {
    pub fn start(door: &Door) -> Result<Self, CollectiveError> {
        let runtime = super::lobby::runtime()?;
        let listener = runtime.block_on(listen(door))?;
        let come = Arc::new(Come::default());
        let (stop, stopped) = oneshot::channel();
        let theirs = Arc::clone(&come);
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
            come,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The wire of this name, once it has come; `None` after `limit`.
    pub fn take(&self, name: &str, limit: Duration) -> Option<Arrival> {
        let (mut arrivals, _) = self
            .come
            .news
            .wait_timeout_while(self.come.arrivals(), limit, |arrivals| {
                !arrivals.contains_key(name)
            })
            .unwrap_or_else(PoisonError::into_inner);
        arrivals.remove(name)
    }

    /// Gives back the descriptors of all whose names end so: nobody will ask for them.
    pub fn forget(&self, ending: &str) {
        self.come.arrivals().retain(|name, _| !name.ends_with(ending));
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

/// Never ends by itself: whatever goes wrong, another group may form later.
async fn answer(listener: &Listener, come: &Arc<Come>) {
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
            // Strangers and broken connections are not the group's concern: whoever belongs here comes again.
            Some(shaken) = shaking.join_next() => {
                if let Ok(Ok(wire)) = shaken {
                    come.arrivals().insert(wire.peer().name.clone(), Arrival::Here(wire));
                    come.news.notify_all();
                }
            }
            _ = sweep.tick(), if !come.arrivals().is_empty() => come.sweep(),
        }
    }
}
