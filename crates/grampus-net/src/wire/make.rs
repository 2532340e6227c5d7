//! Making wires: the handshakes of links, and then the way out of the runtime.
//!
//! The dialer speaks last: once it has found the listener to be right it sends one empty record (one byte where the
//! wire is plain), and the listener sends nothing before that. So rustls never reads into a buffer of its own what is
//! meant for the wire, and a listener's wire is one that the dialer has accepted.

use std::io;
use std::sync::Arc;

use grampus_core::{Address, JoinString};
use ring::aead::{AES_128_GCM, Algorithm, CHACHA20_POLY1305};
use rustls::{CipherSuite, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, TlsStream};

use super::inbox::Inbox;
use super::outbox::Outbox;
use super::record::{HEAD, Kind, Opener, Sealer, TAG, parse_head};
use super::{Guard, Security, Wire};
use crate::connect::{in_time, reach_tcp};
use crate::handshake::{Identity, Role, check_name};
use crate::{Limits, NetError, Peer, TransportKind, greeting, tcp, tls};

/// What a dialer sends over a plain wire when it has accepted the listener.
const ACCEPTED: u8 = 1;

/// Connects to a listener called `peer` and makes the connection a wire; the other side calls
/// [`crate::Incoming::wire`] with the same security. Over TCP only.
pub async fn connect_wire(
    peer: &str,
    join: &JoinString,
    name: &str,
    security: Security,
    limits: &Limits,
) -> Result<Wire, NetError> {
    check_name(peer)?;
    check_name(name)?;
    let Address::Tcp { host, port } = &join.address else {
        return Err(only_tcp(&join.address.to_string()));
    };
    let label: Arc<str> = format!("{peer} ({})", join.address).into();
    let identity = Identity::new(join.job, &join.key)?;
    let stream = in_time(reach_tcp(host, *port, limits), "connecting to", &label, limits).await?;
    let address = stream
        .peer_addr()
        .map_or_else(|_| join.address.to_string(), |address| address.to_string());
    let shaking = async {
        let (stream, found, guard) = match security {
            Security::Tls => {
                let connector = TlsConnector::from(tls::client_config(join.job, &join.key, name)?);
                let connected = connector.connect(tls::server_name(join.job, peer)?, stream).await;
                let mut stream: tcp::Stream =
                    connected.map_err(|source| tls::explain(source, &label))?.into();
                let found = greeting::dial(&mut stream, &identity, name, &label).await?;
                let (stream, guard) = leave_tls(stream)?;
                (stream, found, Some(guard))
            }
            Security::Plain => {
                let mut stream = stream;
                let found = greeting::dial(&mut stream, &identity, name, &label).await?;
                (stream, found, None)
            }
        };
        if found != peer {
            let expected = peer.to_owned();
            return Err(NetError::WrongName { expected, found });
        }
        accept_listener(stream, found, address, guard, limits).await
    };
    in_time(shaking, "the handshake with", &label, limits).await
}

async fn accept_listener(
    mut stream: TcpStream,
    name: String,
    address: String,
    mut guard: Option<Box<Guard>>,
    limits: &Limits,
) -> Result<Wire, NetError> {
    let sent = match &mut guard {
        None => stream.write_all(&[ACCEPTED]).await,
        Some(guard) => {
            guard.outbox.add(Kind::Data).map_err(tls::internal)?;
            let sent = stream.write_all(guard.outbox.waiting()).await;
            guard.outbox.clear();
            sent
        }
    };
    let label: Arc<str> = name.as_str().into();
    sent.map_err(|source| tls::explain(source, &label))?;
    wire(stream, name, address, guard, limits)
}

/// The listener's side, on a connection whose first bytes fit the security.
pub(crate) async fn answer(
    stream: TcpStream,
    config: Option<Arc<ServerConfig>>,
    identity: &Identity,
    name: &str,
    address: String,
    limits: &Limits,
) -> Result<Wire, NetError> {
    let label: Arc<str> = format!("a peer at {address}").into();
    let broken = |source| tls::explain(source, &label);
    let (mut stream, peer, mut guard) = match config {
        Some(config) => {
            let mut stream = tcp::accept_tls(stream, config, &label).await?;
            let peer = greeting::answer(&mut stream, identity, name, &label).await?;
            tls::check_certificate(stream.get_ref().1.peer_certificates(), identity.job, &peer)?;
            let (stream, guard) = leave_tls(stream)?;
            (stream, peer, Some(guard))
        }
        None => {
            let mut stream = stream;
            let peer = greeting::answer(&mut stream, identity, name, &label).await?;
            (stream, peer, None)
        }
    };
    let accepted = match &mut guard {
        None => stream.read_u8().await.map_err(broken)? == ACCEPTED,
        Some(guard) => {
            let mut record = [0; HEAD + TAG];
            stream.read_exact(&mut record).await.map_err(broken)?;
            guard.inbox.open_empty(record)
        }
    };
    if !accepted {
        return Err(NetError::garbage("what came is no record of a wire", &[]));
    }
    wire(stream, peer, address, guard, limits)
}

pub(crate) fn only_tcp(address: &str) -> NetError {
    NetError::io(
        format!("cannot make a wire over {address}"),
        "listen on TCP for wires, or share memory inside a host",
    )(io::ErrorKind::Unsupported.into())
}

/// Takes the connection from rustls, with keys that only these two peers know.
fn leave_tls(stream: tcp::Stream) -> Result<(TcpStream, Box<Guard>), NetError> {
    let mut secrets = [[0; 32]; 2];
    let contexts = [b"dialer".as_slice(), b"listener"];
    let label = b"EXPORTER-grampus-wire";
    let (stream, suite, role) = match stream {
        TlsStream::Client(stream) => {
            let (stream, tls) = stream.into_inner();
            for (secret, context) in secrets.iter_mut().zip(contexts) {
                tls.export_keying_material(secret, label, Some(context))
                    .map_err(tls::internal)?;
            }
            (stream, tls.negotiated_cipher_suite(), Role::Dialer)
        }
        TlsStream::Server(stream) => {
            let (stream, tls) = stream.into_inner();
            for (secret, context) in secrets.iter_mut().zip(contexts) {
                tls.export_keying_material(secret, label, Some(context))
                    .map_err(tls::internal)?;
            }
            (stream, tls.negotiated_cipher_suite(), Role::Listener)
        }
    };
    let algorithm: &'static Algorithm = match suite.map(|suite| suite.suite()) {
        Some(CipherSuite::TLS13_AES_128_GCM_SHA256) => &AES_128_GCM,
        Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256) => &CHACHA20_POLY1305,
        other => return Err(tls::internal(format!("no wire knows the cipher {other:?}"))),
    };
    let [dialer, listener] = secrets;
    let (mine, theirs) = match role {
        Role::Dialer => (dialer, listener),
        Role::Listener => (listener, dialer),
    };
    let guard = Guard {
        outbox: Outbox::new(Sealer::new(algorithm, mine).map_err(tls::internal)?),
        inbox: Inbox::new(Opener::new(algorithm, theirs).map_err(tls::internal)?),
    };
    Ok((stream, Box::new(guard)))
}

fn wire(
    stream: TcpStream,
    name: String,
    address: String,
    guard: Option<Box<Guard>>,
    limits: &Limits,
) -> Result<Wire, NetError> {
    // It stays non-blocking.
    let stream = stream.into_std().map_err(NetError::io(
        "cannot take a connection out of the runtime",
        "connect again",
    ))?;
    tcp::untime(&stream).map_err(NetError::io("cannot set up a connection", "connect again"))?;
    let label = format!("{name} ({}:{address})", TransportKind::Tcp).into();
    Ok(Wire {
        stream,
        peer: Peer {
            name,
            transport: TransportKind::Tcp,
            pid: None,
            uid: None,
            address,
            same_host: false,
        },
        label,
        limits: *limits,
        guard,
    })
}

impl Inbox {
    /// Opens the first record, which must be empty.
    fn open_empty(&mut self, record: [u8; HEAD + TAG]) -> bool {
        let (Some(head), Some(tag)) = (record.first_chunk(), record.last_chunk()) else {
            return false;
        };
        parse_head(*head) == Ok((Kind::Data, 0)) && self.opener.open(*head, &mut [], *tag).is_ok()
    }
}
