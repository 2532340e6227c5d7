//! The keeper of an executor.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use grampus_core::{Address, JoinString};
use grampus_net::{
    Frame, Limits, Link, Listener, NetError, Receiver, Sender, connect_to, local_address_towards, random_job,
};
use rustix::process::{Pid, PidfdFlags, Resource, getrlimit, pidfd_open, setrlimit};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout, timeout_at};

use super::message::{Card, FromHub, FromKeeper, HUB, KEEPER, ToHub, ToKeeper, limits};
use super::store::Store;
use crate::DataError;

/// How soon to look again where no connection can be taken.
const PAUSE: Duration = Duration::from_millis(50);
/// Signs of life within the time after which silence counts.
pub(super) const BEATS: u32 = 6;

/// What a keeper is told as it starts.
pub struct Keeper {
    /// The hub, and the key of the feed.
    pub join: JoinString,
    /// Name of its socket for processes of this host; see [`super::hidden_name`].
    pub hidden: String,
    /// The process with which it ends.
    pub watched: u32,
    /// Most bytes in memory.
    pub memory: u64,
    /// Where the rest goes.
    pub folder: PathBuf,
    /// How long the hub may be silent.
    pub silent: Duration,
    /// How long others may take to read or to write.
    pub wait: Duration,
}

/// How a start went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// This process serves.
    Here,
    /// Another process does, and this one ends.
    Elsewhere,
}

/// Serves until the watched process ends, the hub is gone, or it says so; returns which. Says through `started` whether this process
/// is the keeper, and returns an error where it cannot be.
pub fn keep(keeper: Keeper, started: impl FnOnce(Started)) -> Result<String, DataError> {
    // A block is a descriptor, and there may be more of them than a process usually has.
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    let _ = setrlimit(Resource::Nofile, files);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| DataError::io("the keeper's thread", error))?;
    let ended = runtime.block_on(serve(keeper, started));
    // Files that are being written have no names, and are not waited for.
    runtime.shutdown_background();
    ended
}

async fn serve(keeper: Keeper, started: impl FnOnce(Started)) -> Result<String, DataError> {
    let limits = limits(keeper.wait);
    let JoinString { job, key, .. } = keeper.join.clone();
    // The name is taken first: of several processes one gets it, and the others know it at once.
    let hidden = match Listener::hidden(&keeper.hidden, job, key.clone(), &limits).await {
        Err(NetError::Io { source, .. }) if source.kind() == ErrorKind::AddrInUse => {
            started(Started::Elsewhere);
            return Ok("another process is the keeper here".to_owned());
        }
        bound => bound?.named(KEEPER)?,
    };
    let watched = watch(keeper.watched)?;
    let here = address_towards(&keeper.join.address)?;
    let tcp = Listener::tcp(&SocketAddr::new(here, 0).to_string(), job, key, &limits)
        .await?
        .named(KEEPER)?;
    let port = tcp.local_addr().map_or(0, |address| address.port());
    let card = Card {
        id: random_job()?.0,
        pid: std::process::id(),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        hidden: keeper.hidden,
        address: Address::Tcp {
            host: here.to_string(),
            port,
        }
        .to_string(),
    };
    let mut hub = connect_to(
        HUB,
        &keeper.join,
        &format!("keeper-{:016x}", card.id),
        &Limits::default(),
    )
    .await?;
    introduce(&mut hub, &card).await?;
    let store = Arc::new(Store::new(keeper.memory, keeper.folder));
    for listener in [hidden, tcp] {
        tokio::spawn(accept(listener, Arc::clone(&store), card.clone()));
    }
    started(Started::Here);
    Ok(tokio::select! {
        why = obey(hub, &store, keeper.silent) => why,
        _ = watched.ready(Interest::READABLE) => format!("process {} has ended", keeper.watched),
    })
}

fn watch(process: u32) -> Result<AsyncFd<OwnedFd>, DataError> {
    let gone = |error| DataError::io(format!("process {process}"), error);
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| gone(ErrorKind::InvalidInput.into()))?;
    let open = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| gone(error.into()))?;
    // SAFETY: the descriptor is owned, nobody else has it, and it is the same as long as it is registered.
    unsafe { AsyncFd::register_with_interest(open, Interest::READABLE) }.map_err(|error| gone(error.into()))
}

fn address_towards(hub: &Address) -> Result<IpAddr, NetError> {
    match hub {
        Address::Tcp { host, .. } => local_address_towards(host),
        Address::Unix(_) | Address::Abstract(_) => local_address_towards("localhost"),
    }
}

async fn introduce(hub: &mut Link, card: &Card) -> Result<(), DataError> {
    hub.sender
        .send(Frame::message(&ToHub::Hello(card.clone()))?)
        .await?;
    let welcome = timeout(Limits::default().handshake, hub.receiver.recv()).await;
    match welcome {
        Ok(Ok(Some(frame))) if matches!(frame.read(), Ok(FromHub::Welcome)) => Ok(()),
        _ => Err(DataError::option(
            "feed",
            "the driver does not answer: it may have ended",
        )),
    }
}

/// Does what the hub says until it is gone, or says that it is over.
async fn obey(hub: Link, store: &Store, silent: Duration) -> String {
    let Link {
        sender, mut receiver, ..
    } = hub;
    let beats = tokio::spawn(beat(sender, silent / BEATS));
    let why = loop {
        let frame = match timeout_at(Instant::now() + silent, receiver.recv()).await {
            Err(_) => break format!("the driver was silent for {} s", silent.as_secs_f64()),
            Ok(Ok(Some(frame))) => frame,
            Ok(Ok(None)) => break "the driver closed the feed".to_owned(),
            Ok(Err(error)) => break error.to_string(),
        };
        match frame.read() {
            Ok(FromHub::Welcome | FromHub::Alive) => {}
            Ok(FromHub::Keep { deposits }) => store.keep(&deposits.into_iter().collect::<HashSet<_>>()),
            Ok(FromHub::End) => break "the feed is over".to_owned(),
            Err(error) => break error.to_string(),
        }
    };
    beats.abort();
    why
}

async fn beat(mut sender: Sender, every: Duration) {
    let mut ticks = interval(every.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // Whoever listens to the hub notices that it is gone.
        let Ok(frame) = Frame::message(&ToHub::Alive) else {
            return;
        };
        if sender.send(frame).await.is_err() {
            return;
        }
    }
}

async fn accept(listener: Listener, store: Arc<Store>, card: Card) {
    loop {
        let Ok(incoming) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let (store, card) = (Arc::clone(&store), card.clone());
        tokio::spawn(async move {
            // A stranger, or one who is gone already.
            let Ok(link) = incoming.handshake().await else {
                return;
            };
            let mut guest = Guest {
                shares: link.peer.same_host,
                sender: link.sender,
                store,
                card,
                deposits: Vec::new(),
            };
            // Whoever cannot be answered has gone.
            let _ = guest.serve(link.receiver).await;
            for deposit in guest.deposits {
                guest.store.give_up(deposit);
            }
        });
    }
}

/// One who brings or fetches rows.
struct Guest {
    sender: Sender,
    store: Arc<Store>,
    card: Card,
    /// Whether memory can be passed to it.
    shares: bool,
    /// What it brings; forgotten where it ends before it is whole.
    deposits: Vec<u64>,
}

impl Guest {
    async fn serve(&mut self, mut receiver: Receiver) -> Result<(), DataError> {
        while let Some(frame) = receiver.recv().await? {
            match frame.read()? {
                ToKeeper::Put { deposit, layout } => {
                    let Some(memory) = frame.memory else {
                        return self.refuse("a block came without its memory".to_owned()).await;
                    };
                    self.deposits.push(deposit);
                    let store = Arc::clone(&self.store);
                    if let Err(error) = apart(move || store.put(deposit, layout, memory)).await {
                        return self.refuse(error.to_string()).await;
                    }
                }
                ToKeeper::Done { deposit } => {
                    self.store.done(deposit);
                    self.say(&FromKeeper::Stored(self.card.clone())).await?;
                }
                ToKeeper::Open { deposits } => {
                    for deposit in deposits {
                        self.open(deposit).await?;
                    }
                }
                ToKeeper::Rows { ask, picks } => {
                    let store = Arc::clone(&self.store);
                    match apart(move || store.rows(&picks)).await {
                        Ok(parts) => {
                            let answer = Frame::message(&FromKeeper::Rows { ask })?.with_parts(parts);
                            self.sender.send(answer).await?;
                        }
                        Err(error) => return self.refuse(error.to_string()).await,
                    }
                }
            }
        }
        Ok(())
    }

    async fn open(&mut self, deposit: u64) -> Result<(), DataError> {
        let Some(blocks) = self.store.blocks(deposit) else {
            return self.say(&FromKeeper::Missing { deposit }).await;
        };
        for block in blocks {
            let layout = block.layout.clone();
            let mut frame = Frame::message(&FromKeeper::Block { deposit, layout })?;
            frame.memory = block.memory().filter(|_| self.shares);
            self.sender.send(frame).await?;
        }
        self.say(&FromKeeper::Opened { deposit }).await
    }

    async fn say(&mut self, message: &FromKeeper) -> Result<(), DataError> {
        Ok(self.sender.send(Frame::message(message)?).await?)
    }

    /// Says why, and ends the link.
    async fn refuse(&mut self, why: String) -> Result<(), DataError> {
        self.say(&FromKeeper::Refused { why }).await?;
        self.sender.close().await;
        Ok(())
    }
}

/// Work that takes time, or waits for a disk, in a thread of its own: signs of life must not wait for it.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DataError> + Send + 'static,
) -> Result<T, DataError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(DataError::option("keeper", error.to_string())))
}
