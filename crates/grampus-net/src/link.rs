//! A link: two halves and who is at the other end.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::mpsc;

use crate::local::LocalOutlet;
use crate::stream::Inbound;
use crate::tcp::{TcpOutlet, TcpSource};
use crate::unix::{UnixOutlet, UnixSource};
use crate::{Frame, Limits, NetError};

/// A connection to one named peer.
#[derive(Debug)]
pub struct Link {
    /// Who is at the other end.
    pub peer: Peer,
    /// Where frames go.
    pub sender: Sender,
    /// Where frames come from.
    pub receiver: Receiver,
}

/// Who is at the other end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// What it calls itself, such as `worker-3`; it proved the job key over this name.
    pub name: String,
    /// How frames travel.
    pub transport: TransportKind,
    /// Its process id, where the kernel vouches for it.
    pub pid: Option<u32>,
    /// Its user id, where the kernel vouches for it.
    pub uid: Option<u32>,
    /// Where it is: a socket's path, or an address with port.
    pub address: String,
    /// Proven by a descriptor that it passed.
    pub same_host: bool,
}

/// How frames travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportKind {
    /// Inside this process.
    Memory,
    /// Over a Unix socket.
    Unix,
    /// Over TCP, with TLS unless both sides asked for a plain wire.
    Tcp,
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Unix => "unix",
            Self::Tcp => "tcp",
        })
    }
}

/// The seam between links and transports: one variant here and in [`Inlet`], and one small file, per transport.
pub(crate) enum Outlet {
    Memory(LocalOutlet),
    Unix(UnixOutlet),
    Tcp(Box<TcpOutlet>),
}

/// See [`Outlet`].
pub(crate) enum Inlet {
    Memory(mpsc::Receiver<Frame>),
    Unix(Box<Inbound<UnixSource>>),
    Tcp(Box<Inbound<TcpSource>>),
}

/// The sending half of a link.
pub struct Sender {
    outlet: Outlet,
    label: Arc<str>,
    limits: Limits,
    /// Set while a frame is on its way: still set at the next call, it tells that the last one was cut short.
    busy: bool,
}

impl Sender {
    pub(crate) fn new(outlet: Outlet, label: Arc<str>, limits: &Limits) -> Self {
        Self {
            outlet,
            label,
            limits: *limits,
            busy: false,
        }
    }

    /// Sends a frame; memory in it is frozen first. A frame over the limits is refused and leaves the link usable;
    /// after any other error, and after dropping this future half way, the link cannot be written any more.
    pub async fn send(&mut self, frame: Frame) -> Result<(), NetError> {
        if self.busy {
            return Err(NetError::Torn {
                peer: self.label.to_string(),
            });
        }
        if let Some(memory) = &frame.memory {
            memory.freeze()?;
        }
        self.busy = true;
        let (label, limits) = (&self.label, &self.limits);
        let sent = match &mut self.outlet {
            // A frame over TCP takes as long as it takes, while bytes move.
            Outlet::Tcp(outlet) => outlet.send(frame, label, limits).await,
            Outlet::Memory(outlet) => in_time(outlet.send(frame, label, limits), label, limits).await,
            Outlet::Unix(outlet) => in_time(outlet.send(frame, label, limits), label, limits).await,
        };
        self.busy = !matches!(sent, Ok(()) | Err(NetError::TooLarge { .. }));
        sent
    }

    /// Says farewell: the peer's [`Receiver::recv`] gives `None` after the frames sent before. Takes at most
    /// [`Limits::io`]. Dropping both halves ends the link as well, over TCP without the farewell; see also
    /// [`Link::close`].
    pub async fn close(&mut self) {
        // A farewell is a courtesy; where it fails, the peer notices the end all the same.
        let closing = async {
            match &mut self.outlet {
                Outlet::Memory(outlet) => outlet.close(),
                Outlet::Unix(outlet) => outlet.close().await,
                Outlet::Tcp(outlet) => outlet.close().await,
            }
        };
        let _ = tokio::time::timeout(self.limits.io, closing).await;
    }
}

pub(crate) async fn in_time(
    sending: impl Future<Output = Result<(), NetError>>,
    label: &Arc<str>,
    limits: &Limits,
) -> Result<(), NetError> {
    tokio::time::timeout(limits.io, sending)
        .await
        .unwrap_or_else(|_| Err(unread(label, limits)))
}

/// What was sent does not get on.
pub(crate) fn unread(label: &Arc<str>, limits: &Limits) -> NetError {
    NetError::Deadline {
        what: format!("sending to {label}"),
        after: limits.io,
        hint: "the process there does not read: it may be stopped or the network cut",
    }
}

/// The receiving half of a link.
pub struct Receiver {
    inlet: Inlet,
    label: Arc<str>,
    limits: Limits,
}

impl Receiver {
    pub(crate) fn new(inlet: Inlet, label: Arc<str>, limits: &Limits) -> Self {
        Self {
            inlet,
            label,
            limits: *limits,
        }
    }

    /// A count that grows with every byte that comes, for whoever takes silence for death: a large frame is on its way for
    /// longer than a peer may be silent. So it does, while somebody receives, with what the kernel holds back behind a lost
    /// packet. In memory frames come whole, and nothing is counted.
    pub fn received(&self) -> Arc<AtomicU64> {
        match &self.inlet {
            Inlet::Memory(_) => Arc::default(),
            Inlet::Unix(inbound) => inbound.received(),
            Inlet::Tcp(inbound) => inbound.received(),
        }
    }

    /// The next frame; `None` where the peer closed the link between frames.
    ///
    /// Waits for the first byte without a deadline of its own: how long a peer may be silent is the caller's to
    /// decide. Once a frame has begun, [`Limits::io`] applies to the rest of it.
    ///
    /// Cancel-safe: what has arrived of a frame is kept here, so that a call in `select!` or under a timeout can be
    /// dropped at any moment and the next call goes on where it was. After an error nothing more can be received.
    pub async fn recv(&mut self) -> Result<Option<Frame>, NetError> {
        match &mut self.inlet {
            Inlet::Memory(channel) => Ok(channel.recv().await),
            Inlet::Unix(inbound) => inbound.recv(&self.label, &self.limits).await,
            Inlet::Tcp(inbound) => inbound.recv(&self.label, &self.limits).await,
        }
    }
}

impl Link {
    /// Ends the link in order: says farewell, then waits, at most [`Limits::io`], for the peer to do the same. Dropping
    /// a link while frames of the peer lie unread can destroy what was sent last; after this it has arrived.
    pub async fn close(mut self) {
        self.sender.close().await;
        let limit = self.receiver.limits.io;
        let drain = async { while let Ok(Some(_)) = self.receiver.recv().await {} };
        let _ = tokio::time::timeout(limit, drain).await;
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender(to {})", self.label)
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver(from {})", self.label)
    }
}
