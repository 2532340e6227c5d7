//! The driver's side: which keepers live, and what they are to keep.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use grampus_core::{Address, JoinString};
use grampus_net::{Frame, Limits, Link, Listener, Receiver, Sender, random_job, random_key};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::message::{Card, FromHub, HUB, ToHub};
use super::server::BEATS;
use crate::DataError;

/// How soon to look again where no connection can be taken.
const PAUSE: Duration = Duration::from_millis(50);
/// How long keepers may take to end when they are told to.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Where keepers report.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The address to listen on.
    pub bind: String,
    /// The address under which executors reach it.
    pub address: String,
    /// 0 for any free one.
    pub port: u16,
    /// How long a keeper may be silent.
    pub silent: Duration,
}

/// A keeper as the hub knows it.
#[derive(Clone, Debug)]
pub struct KeeperState {
    /// Who it is.
    pub card: Card,
    /// Why it is gone, where it is.
    pub lost: Option<String>,
}

/// Where keepers report. Dropping it ends them.
pub struct Hub {
    shared: Arc<Shared>,
    join: JoinString,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    keepers: Mutex<BTreeMap<u64, Member>>,
    /// One is gone.
    changed: Condvar,
}

struct Member {
    card: Card,
    outbox: UnboundedSender<Frame>,
    lost: Option<String>,
}

impl Hub {
    /// Begins to listen, with a key of its own.
    pub fn open(setting: Setting) -> Result<Self, DataError> {
        let broken = |error| DataError::io("the feed's thread", error);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(broken)?;
        let (job, key) = (random_job()?, random_key()?);
        let bind = Address::Tcp {
            host: setting.bind,
            port: setting.port,
        };
        let bind = bind.to_string();
        let place = bind.strip_prefix("tcp:").unwrap_or(&bind);
        let listener = runtime.block_on(Listener::tcp(place, job, key.clone(), &Limits::default()))?;
        let listener = listener.named(HUB)?;
        let port = listener.local_addr().map_or(0, |address| address.port());
        let host = setting.address;
        let join = JoinString {
            job,
            key,
            address: Address::Tcp { host, port },
        };
        let shared = Arc::new(Shared::default());
        let (end, ended) = oneshot::channel();
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("grampus-feed".to_owned());
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, served, setting.silent) => {}
                    _ = ended => {}
                }
            });
        };
        Ok(Self {
            shared,
            join,
            end: Some(end),
            thread: Some(thread.spawn(run).map_err(broken)?),
        })
    }

    /// What keepers, and those who bring and fetch rows, need to take part. It holds the key.
    pub fn join(&self) -> &JoinString {
        &self.join
    }

    /// All keepers that ever reported.
    pub fn keepers(&self) -> Vec<KeeperState> {
        let keepers = self.shared.lock();
        let states = keepers.values().map(|member| KeeperState {
            card: member.card.clone(),
            lost: member.lost.clone(),
        });
        states.collect()
    }

    /// Tells all keepers which of the deposits that are whole count; they drop the others.
    pub fn keep(&self, deposits: &[u64]) -> Result<(), DataError> {
        let deposits = deposits.to_vec();
        let frame = Frame::message(&FromHub::Keep { deposits })?;
        for member in self.shared.lock().values() {
            // Who is gone has nothing to drop.
            let _ = member.outbox.send(frame.clone());
        }
        Ok(())
    }

    /// Ends all keepers, and waits a while until they have.
    pub fn close(&mut self) {
        let Some(end) = self.end.take() else { return };
        let keepers = self.shared.lock();
        for member in keepers.values() {
            if let Ok(frame) = Frame::message(&FromHub::End) {
                // Who is gone has ended.
                let _ = member.outbox.send(frame);
            }
        }
        let lives = |keepers: &mut BTreeMap<u64, Member>| keepers.values().any(|one| one.lost.is_none());
        let waited = self.shared.changed.wait_timeout_while(keepers, END_WITHIN, lives);
        drop(waited);
        // Those that have not heard it notice that their link ends; so does a thread that has ended by itself.
        let _ = end.send(());
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Member>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self, keeper: u64, why: String) {
        if let Some(member) = self.lock().get_mut(&keeper) {
            member.lost = Some(why);
        }
        self.changed.notify_all();
    }
}

async fn serve(listener: Listener, shared: Arc<Shared>, silent: Duration) {
    loop {
        let Ok(incoming) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            // A stranger, or one who is gone already.
            let Ok(link) = incoming.handshake().await else {
                return;
            };
            attend(link, &shared, silent).await;
        });
    }
}

/// One keeper, from its introduction to its end.
async fn attend(link: Link, shared: &Shared, silent: Duration) {
    let Link {
        sender, mut receiver, ..
    } = link;
    let first = timeout(silent, receiver.recv()).await;
    let Ok(Ok(Some(frame))) = first else { return };
    let Ok(ToHub::Hello(card)) = frame.read() else {
        return;
    };
    let keeper = card.id;
    let (outbox, frames) = unbounded_channel();
    let Ok(welcome) = Frame::message(&FromHub::Welcome) else {
        return;
    };
    // The other end is here.
    let _ = outbox.send(welcome);
    let member = Member {
        card,
        outbox,
        lost: None,
    };
    shared.lock().insert(keeper, member);
    let writer = tokio::spawn(write(sender, frames, silent / BEATS));
    let why = listen(&mut receiver, silent).await;
    writer.abort();
    shared.lost(keeper, why);
}

async fn listen(receiver: &mut Receiver, silent: Duration) -> String {
    loop {
        match timeout(silent, receiver.recv()).await {
            Err(_) => return format!("it was silent for {} s", silent.as_secs_f64()),
            Ok(Ok(Some(_))) => {}
            Ok(Ok(None)) => return "its process has ended".to_owned(),
            Ok(Err(error)) => return error.to_string(),
        }
    }
}

async fn write(mut sender: Sender, mut frames: UnboundedReceiver<Frame>, every: Duration) {
    let mut ticks = interval(every.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let frame = tokio::select! {
            // What waits goes first: the welcome before any sign of life.
            biased;
            Some(frame) = frames.recv() => frame,
            _ = ticks.tick() => match Frame::message(&FromHub::Alive) {
                Ok(frame) => frame,
                Err(_) => return,
            },
        };
        // Whoever listens to the keeper notices that it is gone.
        if sender.send(frame).await.is_err() {
            return;
        }
    }
}
