//! Waiting for peers.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use grampus_core::{JobId, JobKey};
use rustix::process::{Resource, getrlimit};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use crate::arrivals::{Arrival, Arrivals, ShakingPlace};
use crate::connect::{self, COORDINATOR};
use crate::handshake::{Identity, check_name};
use crate::unix::UnixWire;
use crate::{Limits, Link, NetError, Security, Wire, greeting, hidden, private, tcp, tls, wire};

/// The most descriptors that strangers may hold, and the part of this process's limit that they may hold at most. A third of them
/// may be in their handshake at once; the others are silent (see [`crate::arrivals`]). Each is given back by
/// [`Limits::handshake`].
const STRANGERS: u64 = 768;
const PART: u64 = 4;
/// Where all of these places are taken and none becomes free for so long, whoever has had one for longer than `LONG_HANDSHAKE`
/// loses it: a handshake takes milliseconds.
const NO_PLACE_FOR: Duration = Duration::from_millis(250);
const LONG_HANDSHAKE: Duration = Duration::from_secs(1);
/// How long to wait before another attempt where this process has no descriptor left.
const PAUSE: Duration = Duration::from_millis(50);

/// Where peers connect to. Called `coordinator` unless [`Listener::named`] says otherwise.
pub struct Listener {
    socket: Socket,
    job: JobId,
    key: JobKey,
    identity: Arc<Identity>,
    name: Arc<str>,
    limits: Limits,
    slots: Arc<Semaphore>,
    /// Handshakes that began before this have to give their places back.
    cutoff: watch::Sender<Option<Instant>>,
    arrivals: Mutex<Arrivals>,
}

enum Socket {
    Unix {
        listener: UnixListener,
        path: OwnPath,
    },
    Hidden {
        listener: UnixListener,
        shown: String,
    },
    Tcp {
        listener: TcpListener,
        config: Arc<ServerConfig>,
    },
}

/// A socket's file, which goes with the process that made it; a forked child that drops its copy leaves it alone.
struct OwnPath {
    path: PathBuf,
    pid: u32,
}

impl Drop for OwnPath {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            // Gone already, or its folder is: both are what is wanted.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Listens on a Unix socket, whose folder must be private (see [`crate::private_dir`]). The socket's file is
    /// removed on drop.
    pub async fn unix(path: &Path, job: JobId, key: JobKey, limits: &Limits) -> Result<Self, NetError> {
        private::check_length(path)?;
        private::check_private(path.parent().unwrap_or(Path::new("/")))?;
        let listener = UnixListener::bind(path).map_err(|source| {
            let hint = match source.kind() {
                io::ErrorKind::AddrInUse => {
                    "another job uses this path: choose a folder of its own for every job"
                }
                _ => "check the folder and the limit of open files (`ulimit -n`)",
            };
            NetError::io(format!("cannot listen on {}", path.display()), hint)(source)
        })?;
        let path = OwnPath {
            path: path.to_owned(),
            pid: std::process::id(),
        };
        Self::new(Socket::Unix { listener, path }, job, key, limits)
    }

    /// Listens on a Unix socket that has a name (see [`grampus_core::Address::Abstract`]) and no file: nothing is left
    /// of it however this process ends. Processes of other users can reach it and are refused. Choose a name that
    /// nobody guesses: whoever takes it first can keep this listener from it, though not pose as it.
    pub async fn hidden(name: &str, job: JobId, key: JobKey, limits: &Limits) -> Result<Self, NetError> {
        let (path, shown) = (hidden::path(name)?, hidden::shown(name));
        let listener = UnixListener::bind(path).map_err(|source| {
            let hint = match source.kind() {
                io::ErrorKind::AddrInUse => "another process holds this name: choose one with random digits",
                _ => "check the limit of open files (`ulimit -n`)",
            };
            NetError::io(format!("cannot listen on unix:{shown}"), hint)(source)
        })?;
        Self::new(Socket::Hidden { listener, shown }, job, key, limits)
    }

    /// Listens on TCP under TLS, on `address` such as `10.0.0.1:4000`, `[::]:0` or `node-1:0`; port 0 takes any free
    /// one, see [`Listener::local_addr`].
    pub async fn tcp(address: &str, job: JobId, key: JobKey, limits: &Limits) -> Result<Self, NetError> {
        let what = || format!("cannot listen on {address}");
        let listener = TcpListener::bind(address).await.map_err(|source| {
            let hint = match source.kind() {
                io::ErrorKind::AddrInUse => "another program uses this port: use port 0 to take any free one",
                io::ErrorKind::AddrNotAvailable => "the address is not of this host: use one that it has",
                _ => "check the address and the limit of open files (`ulimit -n`)",
            };
            NetError::io(what(), hint)(source)
        })?;
        // What connects inherits it.
        tcp::unpace(&listener);
        let config = tls::server_config(job, &key, COORDINATOR)?;
        Self::new(Socket::Tcp { listener, config }, job, key, limits)
    }

    fn new(socket: Socket, job: JobId, key: JobKey, limits: &Limits) -> Result<Self, NetError> {
        let identity = Arc::new(Identity::new(job, &key)?);
        let (silent, shaking) = room(getrlimit(Resource::Nofile).current);
        let slots = Arc::new(Semaphore::new(shaking));
        Ok(Self {
            socket,
            job,
            key,
            identity,
            name: COORDINATOR.into(),
            limits: *limits,
            slots,
            cutoff: watch::Sender::default(),
            arrivals: Mutex::new(Arrivals::new(silent)),
        })
    }

    /// The same listener under another name, which dialers then ask for with [`crate::connect_to`].
    pub fn named(mut self, name: &str) -> Result<Self, NetError> {
        self.name = check_name(name)?.into();
        if let Socket::Tcp { config, .. } = &mut self.socket {
            *config = tls::server_config(self.job, &self.key, name)?;
        }
        Ok(self)
    }

    /// The address and port of a TCP listener.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Unix { .. } | Socket::Hidden { .. } => None,
            Socket::Tcp { listener, .. } => listener.local_addr().ok(),
        }
    }

    /// The path of a Unix listener that has one.
    pub fn path(&self) -> Option<&Path> {
        match &self.socket {
            Socket::Unix { path, .. } => Some(&path.path),
            Socket::Hidden { .. } | Socket::Tcp { .. } => None,
        }
    }

    /// The next connection whose peer has said something, or was silent for too long; not yet trusted: run its handshake in a task of
    /// its own, so that a slow or hostile peer never holds up others. Cancel-safe, for one caller at a time. An error is of the
    /// listener and not of a peer.
    pub async fn accept(&self) -> Result<Incoming, NetError> {
        let slot = self.slot().await;
        let within = self.limits.handshake;
        loop {
            let (full, deadline) = {
                let arrivals = self.arrivals();
                (arrivals.is_full(), arrivals.deadline(within))
            };
            let late = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                arrival = poll_fn(|context| self.arrivals().poll_word(context)) => {
                    return Ok(self.incoming(arrival, slot, None));
                }
                raw = self.take(), if !full => {
                    let evicted = self.arrivals().push(raw?);
                    if let Some(arrival) = evicted {
                        let after = arrival.age();
                        return Ok(self.incoming(arrival, slot, Some(after)));
                    }
                }
                () = late => {
                    let silent = self.arrivals().pop_late(within);
                    if let Some(arrival) = silent {
                        return Ok(self.incoming(arrival, slot, Some(within)));
                    }
                }
            }
        }
    }

    fn arrivals(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a handshake; those who hold one for too long make room.
    async fn slot(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            let acquiring = Arc::clone(&self.slots).acquire_owned();
            match tokio::time::timeout(NO_PLACE_FOR, acquiring).await {
                // The semaphore is never closed; were it, accepting without a place would still be right.
                Ok(slot) => return slot.ok(),
                Err(_) => drop(
                    self.cutoff
                        .send_replace(Instant::now().checked_sub(LONG_HANDSHAKE)),
                ),
            }
        }
    }

    /// The next connection, whatever it is.
    async fn take(&self) -> Result<Raw, NetError> {
        let mut full_until: Option<Instant> = None;
        loop {
            let source = match self.accept_once().await {
                Ok(raw) => return Ok(raw),
                Err(source) => source,
            };
            if source.kind() == io::ErrorKind::ConnectionAborted {
                continue;
            }
            // Out of descriptors or memory: others may give some back soon. Without the pause this would spin.
            let until = *full_until.get_or_insert_with(|| Instant::now() + self.limits.handshake);
            if Instant::now() > until {
                return Err(NetError::io(
                    "cannot accept a connection",
                    "raise the limit of open files with `ulimit -n`",
                )(source));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn accept_once(&self) -> io::Result<Raw> {
        match &self.socket {
            Socket::Unix { listener, path } => {
                let (stream, _) = listener.accept().await?;
                Ok(Raw::Unix(stream, path.path.display().to_string()))
            }
            Socket::Hidden { listener, shown } => {
                let (stream, _) = listener.accept().await?;
                Ok(Raw::Unix(stream, shown.clone()))
            }
            Socket::Tcp { listener, config } => {
                let (stream, address) = listener.accept().await?;
                Ok(Raw::Tcp(stream, address.to_string(), Arc::clone(config)))
            }
        }
    }

    fn incoming(
        &self,
        arrival: Arrival,
        slot: Option<OwnedSemaphorePermit>,
        silent: Option<Duration>,
    ) -> Incoming {
        Incoming {
            _place: self.arrivals().shake(&arrival.raw),
            raw: arrival.raw,
            silent,
            began: Instant::now(),
            cutoff: self.cutoff.subscribe(),
            identity: Arc::clone(&self.identity),
            name: Arc::clone(&self.name),
            limits: self.limits,
            _slot: slot,
        }
    }
}

pub(crate) enum Raw {
    Unix(UnixStream, String),
    Tcp(TcpStream, String, Arc<ServerConfig>),
}

/// A connection whose peer has not proved anything yet.
pub struct Incoming {
    raw: Raw,
    /// It is to be closed, since it said nothing for so long.
    silent: Option<Duration>,
    began: Instant,
    cutoff: watch::Receiver<Option<Instant>>,
    identity: Arc<Identity>,
    name: Arc<str>,
    limits: Limits,
    _slot: Option<OwnedSemaphorePermit>,
    _place: ShakingPlace,
}

impl Incoming {
    /// Where it comes from, as far as that is known.
    pub fn address(&self) -> &str {
        match &self.raw {
            Raw::Unix(_, address) | Raw::Tcp(_, address, _) => address,
        }
    }

    /// Lets the peer prove the job key, within [`Limits::handshake`]. On error the connection is closed.
    pub async fn handshake(self) -> Result<Link, NetError> {
        let label: Arc<str> = format!("a peer at {}", self.address()).into();
        check_silent(self.silent, &label)?;
        let room = make_room(self.began, self.cutoff, &label);
        let (identity, name, limits) = (self.identity, self.name, self.limits);
        let shaking = async {
            match self.raw {
                Raw::Unix(stream, address) => {
                    let credentials = connect::credentials(&stream)?;
                    let mut wire = UnixWire::new(stream);
                    let peer = greeting::answer(&mut wire, &identity, &name, &label).await?;
                    Ok(connect::unix_link(wire, peer, credentials, address, &limits))
                }
                Raw::Tcp(mut stream, address, config) => {
                    tcp::expect(&mut stream, Some(Security::Tls), &identity, &label, &limits).await?;
                    let mut stream = tcp::accept_tls(stream, config, &label).await?;
                    let peer = greeting::answer(&mut stream, &identity, &name, &label).await?;
                    tls::check_certificate(stream.get_ref().1.peer_certificates(), identity.job, &peer)?;
                    Ok(connect::tcp_link(stream, peer, address, &limits))
                }
            }
        };
        in_time(shaking, room, &label, &limits).await
    }

    /// Like [`Incoming::handshake`], for a dialer that called [`crate::connect_wire`] with the same security. Over TCP
    /// only.
    pub async fn wire(self, security: Security) -> Result<Wire, NetError> {
        self.wire_of(Some(security)).await
    }

    /// Like [`Incoming::wire`], with the security that the dialer wants: see [`Wire::security`] before the first byte.
    pub async fn any_wire(self) -> Result<Wire, NetError> {
        self.wire_of(None).await
    }

    async fn wire_of(self, only: Option<Security>) -> Result<Wire, NetError> {
        let label: Arc<str> = format!("a peer at {}", self.address()).into();
        check_silent(self.silent, &label)?;
        let room = make_room(self.began, self.cutoff, &label);
        let (identity, name, limits) = (self.identity, self.name, self.limits);
        let (mut stream, address, config) = match self.raw {
            Raw::Tcp(stream, address, config) => (stream, address, config),
            Raw::Unix(_, address) => return Err(wire::only_tcp(&format!("unix:{address}"))),
        };
        let shaking = async {
            let security = tcp::expect(&mut stream, only, &identity, &label, &limits).await?;
            let config = (security == Security::Tls).then_some(config);
            wire::answer(stream, config, &identity, &name, address, &limits).await
        };
        in_time(shaking, room, &label, &limits).await
    }
}

/// How many strangers may be silent and how many in their handshake, where a process may have so many descriptors.
pub(crate) fn room(limit: Option<u64>) -> (usize, usize) {
    let all = limit.unwrap_or(u64::MAX) / PART;
    let shaking = (all.min(STRANGERS) / 3).max(1) as usize;
    (2 * shaking, shaking)
}

fn late(label: &Arc<str>, after: Duration) -> NetError {
    NetError::Deadline {
        what: format!("the handshake with {label}"),
        after,
        hint: "check what connects to this address",
    }
}

fn check_silent(silent: Option<Duration>, label: &Arc<str>) -> Result<(), NetError> {
    silent.map_or(Ok(()), |after| Err(late(label, after)))
}

/// Ends when a handshake that began then has to give its place to others.
async fn make_room(
    began: Instant,
    mut cutoff: watch::Receiver<Option<Instant>>,
    label: &Arc<str>,
) -> NetError {
    let is_over = |cutoff: &Option<Instant>| cutoff.is_some_and(|cutoff| began <= cutoff);
    if cutoff.wait_for(is_over).await.is_err() {
        // The listener is gone, and with it those who wait.
        std::future::pending::<()>().await;
    }
    late(label, began.elapsed())
}

async fn in_time<T>(
    shaking: impl Future<Output = Result<T, NetError>>,
    room: impl Future<Output = NetError>,
    label: &Arc<str>,
    limits: &Limits,
) -> Result<T, NetError> {
    tokio::select! {
        biased;
        shaken = shaking => shaken,
        error = room => Err(error),
        () = tokio::time::sleep(limits.handshake) => Err(late(label, limits.handshake)),
    }
}
