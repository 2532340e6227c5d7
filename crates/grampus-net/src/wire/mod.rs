//! A byte stream to one named peer for bulk data, driven by the thread that has the data.
//!
//! A [`crate::Link`] serves control: frames, tasks, any thread. Gradients need the opposite: one thread that sends and
//! receives at once, without a runtime between it and the socket. So a wire is made like a link, by the same
//! handshakes, and then leaves the runtime: no call on it waits, [`wait_ready`] waits for several at once.
//!
//! How long a peer may be silent or not read is for heartbeats to decide, so a wire has no deadline in the kernel either:
//! `TCP_USER_TIMEOUT` would end one whose peer lives and has not read for ten seconds.
//!
//! Sizes of socket buffers are left to the kernel: its own choice was faster than every fixed one that was tried.

mod inbox;
mod make;
mod outbox;
mod ready;
mod record;

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

pub use make::connect_wire;
pub(crate) use make::{answer, only_tcp};
pub use ready::{Bell, Ready, wait_ready};
use ring::error::Unspecified;

use self::inbox::{End, Inbox};
use self::outbox::Outbox;
use self::record::{Broken, Kind};
use crate::stream::{closed, link_error};
use crate::{Limits, NetError, Peer, tcp};

/// Most bytes that one call moves: so few that they are still in the processor's cache when they are sealed and handed
/// on, and that a caller comes back to the other direction soon.
const WINDOW: usize = 256 << 10;

/// What protects the bytes of a wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Security {
    /// The peers prove the job key, and everything is sealed: nobody between them can read or change it.
    #[default]
    Tls,
    /// The peers prove the job key, and that is all: whoever is between them can read and change what follows. For
    /// networks that only the job's own hosts can reach.
    Plain,
}

impl fmt::Display for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls => "tls",
            Self::Plain => "plain",
        })
    }
}

/// A byte stream to one named peer. No call waits; see [`wait_ready`]. After an error of any call but misuse, the
/// wire is of no use any more. Dropping it ends it without a farewell, which the peer is told; see [`Wire::close`].
pub struct Wire {
    stream: TcpStream,
    peer: Peer,
    label: Arc<str>,
    limits: Limits,
    guard: Option<Box<Guard>>,
}

/// Both directions of a sealed wire.
struct Guard {
    outbox: Outbox,
    inbox: Inbox,
}

impl Wire {
    /// Who is at the other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// What protects the bytes.
    pub fn security(&self) -> Security {
        match self.guard {
            Some(_) => Security::Tls,
            None => Security::Plain,
        }
    }

    /// Takes the front of `bytes`, as much as fits now, and returns how much; 0 means that nothing fits now. What was
    /// taken may still wait in this process: see [`Wire::flush`].
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, NetError> {
        let sent = match &mut self.guard {
            None => write_once(&self.stream, &bytes[..bytes.len().min(WINDOW)]),
            Some(guard) => send_sealed(&self.stream, &mut guard.outbox, bytes),
        };
        sent.map_err(|source| link_error(source, "cannot write to", &self.label, &self.limits))
    }

    /// Hands to the kernel what was taken before; true when nothing is left.
    pub fn flush(&mut self) -> Result<bool, NetError> {
        let pushed = match &mut self.guard {
            None => Ok(true),
            Some(guard) => guard.outbox.push(&self.stream),
        };
        pushed.map_err(|source| link_error(source, "cannot write to", &self.label, &self.limits))
    }

    /// Fills the front of `into` with what has come and returns how much; 0 means that nothing is there now. The end
    /// is an error. After an error, what `into` holds means nothing.
    pub fn receive(&mut self, into: &mut [u8]) -> Result<usize, NetError> {
        let received = match &mut self.guard {
            None => read_plain(&self.stream, into),
            Some(guard) => guard.inbox.receive(&self.stream, into),
        };
        received.map_err(|end| match end {
            End::Farewell => closed(&self.label, "in order"),
            End::Cut => closed(&self.label, "without a farewell"),
            End::Broken(Broken::Seal) => NetError::Tampered {
                peer: self.label.to_string(),
            },
            End::Broken(Broken::Head) => NetError::garbage("what came is no record of a wire", &[]),
            End::Io(source) => link_error(source, "cannot read from", &self.label, &self.limits),
        })
    }

    /// Ends the wire with a farewell, after all that was sent, as far as it goes out without waiting. Agree with the
    /// peer on the last byte before: what it sent and this side did not receive makes the kernel cut the wire short.
    pub fn close(mut self) {
        // The peer notices the end all the same where this fails.
        if let Some(guard) = &mut self.guard {
            let _ = guard.outbox.add(Kind::Farewell);
            let _ = guard.outbox.push(&self.stream);
        }
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        tcp::limit_last_words(&self.stream, &self.limits);
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire(to {}, {})", self.label, self.security())
    }
}

fn send_sealed(stream: &TcpStream, outbox: &mut Outbox, bytes: &[u8]) -> io::Result<usize> {
    if !outbox.push(stream)? {
        return Ok(0);
    }
    let taken = outbox.fill(bytes).map_err(cannot_seal)?;
    outbox.push(stream)?;
    Ok(taken)
}

/// Only a mistake in this crate can cause it.
fn cannot_seal(_: Unspecified) -> io::Error {
    io::Error::other("a record cannot be sealed")
}

fn write_once(mut stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match stream.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            written => return written,
        }
    }
}

fn read_plain(mut stream: &TcpStream, into: &mut [u8]) -> Result<usize, End> {
    let most = into.len().min(WINDOW);
    if most == 0 {
        return Ok(0);
    }
    loop {
        match stream.read(&mut into[..most]) {
            Ok(0) => return Err(End::Cut),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(End::Io(error)),
        }
    }
}
