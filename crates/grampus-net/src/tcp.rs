//! The TCP transport: bytes under TLS.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::{TlsAcceptor, TlsStream};

use crate::error::SHOWN;
use crate::frame::Way;
use crate::greeting::Fresh;
use crate::handshake::{Hello, Identity, MAGIC, Verdict};
use crate::link::unread;
use crate::stream::{CHUNK, Source, link_error};
use crate::traffic::{LOOK, Traffic};
use crate::{Frame, Limits, Memory, NetError, Security, tls};

pub(crate) type Stream = TlsStream<TcpStream>;

/// Small frames leave at once, and a peer that is gone is noticed by the deadline even where nothing is written.
pub(crate) fn tune(stream: &TcpStream, limits: &Limits) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let second = Duration::from_secs(1);
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, (limits.io / 2).max(second))?;
    sockopt::set_tcp_keepintvl(stream, (limits.io / 4).max(second))?;
    let millis = u32::try_from(limits.io.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, millis.max(1))?;
    Ok(())
}

/// Takes back the deadline of [`tune`] for what is sent: to the kernel, a peer that does not read for long looks like one that
/// is gone. Keepalive stays: the kernel of a peer that does not read answers it, and a host that is gone does not.
pub(crate) fn untime(stream: impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_user_timeout(&stream, 0)?;
    Ok(())
}

/// Limits how long the kernel tries to deliver what is left when a socket without deadlines is closed.
pub(crate) fn limit_last_words(stream: impl AsFd, limits: &Limits) {
    let millis = u32::try_from(limits.io.as_millis()).unwrap_or(u32::MAX);
    // Without the limit it takes longer, and that is all.
    let _ = sockopt::set_tcp_user_timeout(&stream, millis.max(1));
}

/// Takes the timer off a socket that is not connected yet, or listens. BBR, the default of many cloud images, paces every
/// packet: right on the public internet, and twice the processor time per byte between the hosts of a job. A socket
/// that was once paced stays so, hence before the connection. Where the kernel has nothing else, or does not let this
/// user choose, BBR stays.
pub(crate) fn unpace(socket: impl AsFd) {
    if sockopt::tcp_congestion(&socket).is_ok_and(|name| name.starts_with("bbr")) {
        let _ = sockopt::set_tcp_congestion(&socket, "cubic");
    }
}

/// Connects to the first address of the host that answers.
pub(crate) async fn reach(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::ErrorKind::NotFound.into();
    for address in tokio::net::lookup_host((host, port)).await? {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        unpace(&socket);
        match socket.connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A plain text alert of TLS, `insufficient_security`: what a listener of plain wires says to a dialer that wants TLS.
const NO_TLS_HERE: [u8; 7] = [21, 3, 3, 0, 2, 2, 71];

/// Looks at the first bytes of a fresh connection, and says which security the dialer wants: TLS cannot tell what a
/// stranger said instead. Where only one security will do, a dialer of the other is told so in its own language, and so
/// is this side's caller.
pub(crate) async fn expect(
    stream: &mut TcpStream,
    only: Option<Security>,
    identity: &Identity,
    label: &Arc<str>,
    limits: &Limits,
) -> Result<Security, NetError> {
    let mut first = [0; SHOWN];
    let peek = async {
        tune(stream, limits)?;
        stream.peek(&mut first).await
    };
    let count = peek.await.map_err(|source| tls::explain(source, label))?;
    let first = &first[..count];
    let theirs = match first {
        // Whoever reads on will find the end.
        [] => return Ok(only.unwrap_or_default()),
        // Every TLS connection begins with 22.
        [22, ..] => Security::Tls,
        _ if MAGIC.starts_with(first) => Security::Plain,
        _ if only != Some(Security::Tls) => {
            return Err(NetError::garbage("what came is no greeting of grampus", first));
        }
        _ => return Err(NetError::garbage("what came is not the TLS of grampus", first)),
    };
    match only {
        Some(ours) if ours != theirs => {
            refuse(stream, theirs, identity, limits).await;
            Err(NetError::WrongSecurity { ours, theirs })
        }
        _ => Ok(theirs),
    }
}

/// Tells a dialer that this side wants the other security.
async fn refuse(stream: &mut TcpStream, theirs: Security, identity: &Identity, limits: &Limits) {
    let refusal = match theirs {
        Security::Tls => NO_TLS_HERE.to_vec(),
        Security::Plain => match Hello::new(identity.job, Verdict::Security) {
            Ok(hello) => hello.encode().to_vec(),
            Err(_) => return,
        },
    };
    let telling = async {
        stream.write_all(&refusal).await?;
        stream.shutdown().await?;
        // Closing with bytes unread would take the refusal back. The dialer goes as soon as it has read it.
        let mut rest = [0; 4096];
        while AsyncReadExt::read(stream, &mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    // The reason matters more than whether the peer still hears it.
    let _ = tokio::time::timeout(limits.handshake / 2, telling).await;
}

pub(crate) async fn accept_tls(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    label: &Arc<str>,
) -> Result<Stream, NetError> {
    let accepted = TlsAcceptor::from(config).accept(stream).await;
    Ok(accepted.map_err(|source| tls::explain(source, label))?.into())
}

/// The two halves of a connection.
pub(crate) fn split(stream: Stream) -> (TcpSource, TcpOutlet) {
    let socket = Socket(stream.get_ref().0.as_raw_fd());
    let (read, write) = tokio::io::split(stream);
    let source = TcpSource {
        half: read,
        socket,
        traffic: Traffic::default(),
    };
    let outlet = TcpOutlet {
        half: write,
        socket,
        traffic: Traffic::default(),
    };
    (source, outlet)
}

/// The descriptor of a connection, kept beside a half of it: it is open as long as one of them is there.
#[derive(Clone, Copy)]
struct Socket(RawFd);

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: its owner, a half of the connection, lives as long as this borrow.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

pub(crate) struct TcpOutlet {
    half: WriteHalf<Stream>,
    socket: Socket,
    traffic: Traffic,
}

impl TcpOutlet {
    pub async fn send(&mut self, frame: Frame, label: &Arc<str>, limits: &Limits) -> Result<(), NetError> {
        let head = frame.head(Way::Stream, limits)?;
        let mut slices = Vec::with_capacity(2 + frame.parts.len());
        slices.extend([IoSlice::new(&head), IoSlice::new(&frame.body)]);
        slices.extend(frame.parts.iter().map(|part| IoSlice::new(part)));
        self.write(&mut slices, label, limits).await?;
        match &frame.memory {
            Some(memory) => self.stream(memory, label, limits).await,
            None => Ok(()),
        }
    }

    async fn stream(&mut self, memory: &Memory, label: &Arc<str>, limits: &Limits) -> Result<(), NetError> {
        let mut buffer = vec![0; CHUNK.min(usize::try_from(memory.len()).unwrap_or(CHUNK))];
        let mut offset = 0;
        while offset < memory.len() {
            let count = (memory.len() - offset).min(CHUNK as u64);
            let chunk = &mut buffer[..count as usize];
            memory.read_at(chunk, offset)?;
            self.write(&mut [IoSlice::new(chunk)], label, limits).await?;
            offset += count;
        }
        Ok(())
    }

    async fn write(
        &mut self,
        slices: &mut [IoSlice<'_>],
        label: &Arc<str>,
        limits: &Limits,
    ) -> Result<(), NetError> {
        let mut slices = slices;
        // Empty pieces at the front would make a write of nothing look like the end.
        IoSlice::advance_slices(&mut slices, 0);
        let mut deadline = Instant::now() + limits.io;
        loop {
            let writing = async {
                if slices.is_empty() {
                    return self.half.flush().await.map(|()| 0);
                }
                match self.half.write_vectored(slices).await? {
                    0 => Err(io::ErrorKind::WriteZero.into()),
                    count => Ok(count),
                }
            };
            // Dropped before it is through, it has written nothing.
            let written = timeout_at(deadline.min(Instant::now() + LOOK), writing).await;
            match written {
                Ok(Ok(_)) if slices.is_empty() => return Ok(()),
                Ok(Ok(count)) => IoSlice::advance_slices(&mut slices, count),
                Ok(Err(source)) => return Err(link_error(source, "cannot write to", label, limits)),
                Err(_) if self.traffic.went(self.socket) => {}
                Err(_) if Instant::now() < deadline => continue,
                Err(_) => return Err(unread(label, limits)),
            }
            deadline = Instant::now() + limits.io;
        }
    }

    pub async fn close(&mut self) {
        let _ = self.half.shutdown().await;
    }
}

async fn write_all(half: &mut (impl AsyncWrite + Unpin), mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    // Empty pieces at the front would make a write of nothing look like the end.
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match half.write_vectored(slices).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => IoSlice::advance_slices(&mut slices, count),
        }
    }
    half.flush().await
}

pub(crate) struct TcpSource {
    half: ReadHalf<Stream>,
    socket: Socket,
    traffic: Traffic,
}

impl Source for TcpSource {
    const HOLDS_BACK: bool = true;

    fn held_back(&mut self) -> u32 {
        self.traffic.came(self.socket)
    }

    async fn fill(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.half.read(space).await
    }

    fn descriptor(&mut self) -> Option<OwnedFd> {
        None
    }

    fn descriptors(&self) -> usize {
        0
    }
}

impl Fresh for Stream {
    const LOCAL: bool = false;

    async fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        AsyncReadExt::read(self, space).await
    }

    async fn write(&mut self, bytes: &[u8], _fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        write_all(self, &mut [IoSlice::new(bytes)]).await
    }

    fn descriptor(&mut self) -> Option<OwnedFd> {
        None
    }
}

impl Fresh for TcpStream {
    const LOCAL: bool = false;

    async fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        AsyncReadExt::read(self, space).await
    }

    async fn write(&mut self, bytes: &[u8], _fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.write_all(bytes).await
    }

    fn descriptor(&mut self) -> Option<OwnedFd> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_wire_whose_peer_does_not_read_lives_and_one_whose_host_is_gone_does_not() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        tune(&stream, &Limits::default()).unwrap();
        untime(&stream).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 0);
    }
}
