//! Connecting to a listener.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use grampus_core::{Address, JoinString};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::handshake::{Identity, check_name};
use crate::link::{Inlet, Outlet};
use crate::stream::Inbound;
use crate::tcp;
use crate::unix::{UnixOutlet, UnixSource, UnixWire};
use crate::{Limits, Link, NetError, Peer, Receiver, Sender, TransportKind, greeting, hidden, private, tls};

/// What a listener is called unless it says otherwise.
pub(crate) const COORDINATOR: &str = "coordinator";

/// How soon to try again where a Unix listener's queue is full: the kernel does not let such a connect wait.
const QUEUE_FULL: Duration = Duration::from_millis(5);

/// Connects to the coordinator that a join string names. `name` is what this side calls itself, such as `worker-3`.
pub async fn connect(join: &JoinString, name: &str, limits: &Limits) -> Result<Link, NetError> {
    connect_to(COORDINATOR, join, name, limits).await
}

/// Connects to a listener called `peer`.
pub async fn connect_to(
    peer: &str,
    join: &JoinString,
    name: &str,
    limits: &Limits,
) -> Result<Link, NetError> {
    check_name(peer)?;
    check_name(name)?;
    let label: Arc<str> = format!("{peer} ({})", join.address).into();
    let identity = Identity::new(join.job, &join.key)?;
    let link = match &join.address {
        Address::Unix(path) => {
            private::check_length(path)?;
            let shown = path.display().to_string();
            dial_unix(path, shown, &identity, name, &label, limits).await?
        }
        Address::Abstract(hidden) => {
            let path = hidden::path(hidden)?;
            dial_unix(&path, hidden::shown(hidden), &identity, name, &label, limits).await?
        }
        Address::Tcp { host, port } => {
            let stream = in_time(reach_tcp(host, *port, limits), "connecting to", &label, limits).await?;
            let address = stream
                .peer_addr()
                .map_or_else(|_| join.address.to_string(), |address| address.to_string());
            let shaking = async {
                let connector = TlsConnector::from(tls::client_config(join.job, &join.key, name)?);
                let connected = connector.connect(tls::server_name(join.job, peer)?, stream).await;
                let mut stream: tcp::Stream =
                    connected.map_err(|source| tls::explain(source, &label))?.into();
                let found = greeting::dial(&mut stream, &identity, name, &label).await?;
                Ok(tcp_link(stream, found, address, limits))
            };
            in_time(shaking, "the handshake with", &label, limits).await?
        }
    };
    if link.peer.name != peer {
        return Err(NetError::WrongName {
            expected: peer.to_owned(),
            found: link.peer.name,
        });
    }
    Ok(link)
}

async fn dial_unix(
    path: &Path,
    shown: String,
    identity: &Identity,
    name: &str,
    label: &Arc<str>,
    limits: &Limits,
) -> Result<Link, NetError> {
    let stream = in_time(reach_unix(path, &shown), "connecting to", label, limits).await?;
    let shaking = async {
        let credentials = credentials(&stream)?;
        let mut wire = UnixWire::new(stream);
        let found = greeting::dial(&mut wire, identity, name, label).await?;
        Ok(unix_link(wire, found, credentials, shown, limits))
    };
    in_time(shaking, "the handshake with", label, limits).await
}

pub(crate) async fn in_time<T>(
    future: impl Future<Output = Result<T, NetError>>,
    what: &str,
    label: &Arc<str>,
    limits: &Limits,
) -> Result<T, NetError> {
    let after = limits.handshake;
    let late = |_| NetError::Deadline {
        what: format!("{what} {label}"),
        after,
        hint: "check that the driver still runs and that no firewall stands between",
    };
    tokio::time::timeout(after, future).await.map_err(late)?
}

async fn reach_unix(path: &Path, shown: &str) -> Result<UnixStream, NetError> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(QUEUE_FULL).await,
            connected => {
                return connected.map_err(|source| unreachable(format!("unix:{shown}"), source));
            }
        }
    }
}

pub(crate) async fn reach_tcp(host: &str, port: u16, limits: &Limits) -> Result<TcpStream, NetError> {
    let reach = async {
        let stream = tcp::reach(host, port).await?;
        tcp::tune(&stream, limits)?;
        Ok(stream)
    };
    reach
        .await
        .map_err(|source| unreachable(format!("tcp:{host}:{port}"), source))
}

fn unreachable(address: String, source: io::Error) -> NetError {
    let hint = match source.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound | io::ErrorKind::ConnectionReset => {
            "nothing listens there: check that the driver still runs"
        }
        io::ErrorKind::PermissionDenied => "start this process as the driver's user",
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::TimedOut => {
            "check the routes and firewalls between the hosts"
        }
        _ => "check the address and that the host's name can be resolved here",
    };
    NetError::io(format!("cannot connect to {address}"), hint)(source)
}

/// Process and user at the other end, as the kernel knows them. Another user is refused.
pub(crate) fn credentials(stream: &UnixStream) -> Result<(Option<u32>, u32), NetError> {
    let found = stream.peer_cred().map_err(NetError::io(
        "cannot tell who is at the other end",
        "connect again",
    ))?;
    let ours = rustix::process::geteuid().as_raw();
    let theirs = found.uid();
    if theirs != ours {
        return Err(NetError::WrongUser { ours, theirs });
    }
    // 0 is a process of another namespace, which has no number here.
    Ok((
        found
            .pid()
            .and_then(|pid| u32::try_from(pid).ok())
            .filter(|pid| *pid != 0),
        theirs,
    ))
}

pub(crate) fn unix_link(
    wire: UnixWire,
    name: String,
    (pid, uid): (Option<u32>, u32),
    address: String,
    limits: &Limits,
) -> Link {
    let (read, write) = wire.stream.into_split();
    let outlet = Outlet::Unix(UnixOutlet::new(write));
    let inlet = Inlet::Unix(Box::new(Inbound::new(UnixSource::new(read), limits)));
    let transport = TransportKind::Unix;
    // The greeting of a Unix socket fails where no descriptor went across.
    link(
        Peer {
            name,
            transport,
            pid,
            uid: Some(uid),
            address,
            same_host: true,
        },
        outlet,
        inlet,
        limits,
    )
}

pub(crate) fn tcp_link(stream: tcp::Stream, name: String, address: String, limits: &Limits) -> Link {
    let (source, outlet) = tcp::split(stream);
    let outlet = Outlet::Tcp(Box::new(outlet));
    let inlet = Inlet::Tcp(Box::new(Inbound::new(source, limits)));
    let transport = TransportKind::Tcp;
    link(
        Peer {
            name,
            transport,
            pid: None,
            uid: None,
            address,
            same_host: false,
        },
        outlet,
        inlet,
        limits,
    )
}

fn link(peer: Peer, outlet: Outlet, inlet: Inlet, limits: &Limits) -> Link {
    let label: Arc<str> = format!("{} ({}:{})", peer.name, peer.transport, peer.address).into();
    let sender = Sender::new(outlet, Arc::clone(&label), limits);
    Link {
        peer,
        sender,
        receiver: Receiver::new(inlet, label, limits),
    }
}
