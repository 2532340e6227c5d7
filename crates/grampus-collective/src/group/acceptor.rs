//! Takes in the connections of ranks of other hosts, whichever group they are for.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use grampus_core::{JobId, JobKey};
use grampus_net::{Limits, Listener, NetError, Security, Wire};
use tokio::sync::oneshot;

use crate::CollectiveError;

/// Where it listens, as whom, and how.
pub(super) struct Door {
    pub port: u16,
    pub name: String,
    pub job: JobId,
    pub key: JobKey,
    pub security: Security,
}

/// A thread that answers; who came waits until its group asks for it.
#[derive(Debug)]
pub(super) struct Acceptor {
    come: Arc<Come>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Come {
    wires: Mutex<HashMap<String, Wire>>,
    news: Condvar,
}

impl Come {
    fn wires(&self) -> MutexGuard<'_, HashMap<String, Wire>> {
        self.wires.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Acceptor {
    pub fn start(door: Door) -> Result<Self, CollectiveError> {
        let runtime = super::lobby::runtime()?;
        let listener = runtime.block_on(listen(&door))?;
        let come = Arc::new(Come::default());
        let (stop, stopped) = oneshot::channel();
        let theirs = Arc::clone(&come);
        let security = door.security;
        let thread = std::thread::Builder::new()
            .name("grampus-lobby".into())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = answer(&listener, security, &theirs) => {}
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
    pub fn take(&self, name: &str, limit: Duration) -> Option<Wire> {
        let (mut wires, _) = self
            .come
            .news
            .wait_timeout_while(self.come.wires(), limit, |wires| !wires.contains_key(name))
            .unwrap_or_else(PoisonError::into_inner);
        wires.remove(name)
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
    let limits = Limits::default();
    let any = |address: &'static str| {
        let address = format!("{address}:{}", door.port);
        let (job, key) = (door.job, door.key.clone());
        async move { Listener::tcp(&address, job, key, &limits).await }
    };
    // Hosts without version 6 of the protocol have no such address.
    let listener = match any("[::]").await {
        Ok(listener) => listener,
        Err(_) => any("0.0.0.0").await?,
    };
    listener.named(&door.name)
}

async fn answer(listener: &Listener, security: Security, come: &Arc<Come>) {
    let mut shaking = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            // Strangers and broken connections are not the group's concern: whoever belongs here comes again.
            Ok(incoming) = listener.accept() => { shaking.spawn(incoming.wire(security)); }
            Some(shaken) = shaking.join_next() => {
                if let Ok(Ok(wire)) = shaken {
                    come.wires().insert(wire.peer().name.clone(), wire);
                    come.news.notify_all();
                }
            }
            else => return,
        }
    }
}
