//! What can go wrong between two peers.

use std::fmt::{self, Write as _};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use grampus_core::JobId;
use thiserror::Error;

use crate::Security;

/// Why a link could not be made, or ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetError {
    /// The operating system refused.
    #[error("{what}: {source}: {hint}")]
    Io {
        /// What was tried, with the address or peer.
        what: String,
        /// What the system said.
        source: io::Error,
        /// What to do.
        hint: &'static str,
    },
    /// A wait ended.
    #[error("{what} took longer than {}: {hint}", Seconds(*after))]
    Deadline {
        /// What was waited for, with the address or peer.
        what: String,
        /// The deadline.
        after: Duration,
        /// What to do.
        hint: &'static str,
    },
    /// A part of a frame exceeds [`crate::Limits`].
    #[error(
        "{what} of {size} bytes is over the limit of {limit}: {}",
        too_large_hint(what)
    )]
    TooLarge {
        /// Which part.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The most that is allowed.
        limit: u64,
    },
    /// The peer does not speak this protocol.
    #[error(
        "{what}{}: check that the address belongs to a grampus job and no other program",
        FirstBytes(first)
    )]
    Garbage {
        /// What was wrong.
        what: &'static str,
        /// The first bytes that came, where they are known.
        first: Vec<u8>,
    },
    /// The peer is of another build.
    #[error(
        "this side speaks protocol version {ours} and the other {theirs}: install the same version of grampus on both"
    )]
    Version {
        /// Version of this side.
        ours: u32,
        /// Version of the peer.
        theirs: u32,
    },
    /// The peer holds another key.
    #[error("the job key does not match: start this process with the join string of the job it belongs to")]
    WrongKey,
    /// The peer belongs to another job.
    #[error(
        "this side belongs to job {ours} and the other to job {theirs}: use the join string of the job itself"
    )]
    WrongJob {
        /// Job of this side.
        ours: JobId,
        /// Job of the peer.
        theirs: JobId,
    },
    /// A name that cannot stand in a certificate.
    #[error("`{0}` cannot name a peer: use 1 to 63 letters, digits, `-` or `_`, with no `-` at the ends")]
    BadName(String),
    /// The peer is not the one that was asked for.
    #[error(
        "the peer is not `{expected}`{}: use the join string of the job it belongs to",
        found_instead(found)
    )]
    WrongName {
        /// Who was expected.
        expected: String,
        /// Who it is, where it can be told.
        found: String,
    },
    /// The peer looked for someone else.
    #[error(
        "{peer} did not accept this side's certificate: it belongs to another job or looks for another peer"
    )]
    Unwanted {
        /// The peer.
        peer: String,
    },
    /// The process at the other end of a Unix socket runs as another user.
    #[error(
        "the process at the other end runs as user {theirs} and this one as {ours}: start both as one user"
    )]
    WrongUser {
        /// User id of this side.
        ours: u32,
        /// User id of the peer.
        theirs: u32,
    },
    /// A Unix socket that leads to another host.
    #[error(
        "the Unix socket is forwarded from another host, so memory cannot be shared over it: join over TCP"
    )]
    OtherHost,
    /// One side wants TLS and the other none.
    #[error(
        "this side wants the wire {ours} and the other {theirs}: ask for the same security on both sides"
    )]
    WrongSecurity {
        /// What this side wants.
        ours: Security,
        /// What the other wants.
        theirs: Security,
    },
    /// Bytes that are not what the peer sent.
    #[error("what came from {peer} was changed on the way: check what stands between the hosts")]
    Tampered {
        /// The peer.
        peer: String,
    },
    /// The peer ended the link.
    #[error("{peer} closed the link {when}: look into its log for the reason")]
    Closed {
        /// The peer.
        peer: String,
        /// At which moment.
        when: &'static str,
    },
    /// A `send` was dropped half way, so that nothing more can be sent.
    #[error("a frame to {peer} was cut short when its sending was cancelled: open a new link")]
    Torn {
        /// The peer.
        peer: String,
    },
    /// A folder that other users can reach.
    #[error("{} {why}: use a folder of your own with mode 0700", path.display())]
    NotPrivate {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A path that does not fit a Unix socket's address.
    #[error(
        "the socket path {} has {length} bytes and only {limit} are possible: set TMPDIR to a shorter folder",
        path.display()
    )]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        length: usize,
        /// The longest possible.
        limit: usize,
    },
    /// A control message that cannot be written or read.
    #[error(
        "a control message cannot be {what}: {source}: install the same version of grampus on both sides"
    )]
    Message {
        /// `written` or `read`.
        what: &'static str,
        /// What the codec said.
        source: postcard::Error,
    },
    /// A memory region that cannot be used.
    #[error("{0}")]
    Memory(&'static str),
    /// TLS failed in a way that has no better name here.
    #[error("TLS with {peer} failed: {why}: install the same version of grampus on both sides")]
    Tls {
        /// The peer.
        peer: String,
        /// What the library said.
        why: String,
    },
}

/// What a [`NetError`] asks of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The connection failed or ended; a new one may work.
    Link,
    /// The other end is not who it should be; trying again will not help.
    Refused,
    /// The caller asked for something that cannot be done.
    Misuse,
}

impl NetError {
    /// Decides what to do: connect again, give up, or correct the call.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } if is_misuse(source.kind()) => ErrorKind::Misuse,
            Self::Io { .. }
            | Self::Deadline { .. }
            | Self::Closed { .. }
            | Self::Torn { .. }
            | Self::Tampered { .. } => ErrorKind::Link,
            Self::Garbage { .. }
            | Self::Version { .. }
            | Self::WrongKey
            | Self::WrongJob { .. }
            | Self::WrongName { .. }
            | Self::Unwanted { .. }
            | Self::WrongUser { .. }
            | Self::OtherHost
            | Self::WrongSecurity { .. }
            | Self::Message { what: "read", .. }
            | Self::Tls { .. } => ErrorKind::Refused,
            Self::TooLarge { .. }
            | Self::BadName(_)
            | Self::NotPrivate { .. }
            | Self::PathTooLong { .. }
            | Self::Message { .. }
            | Self::Memory(_) => ErrorKind::Misuse,
        }
    }

    /// True where a new connection may work.
    pub fn is_transient(&self) -> bool {
        self.kind() == ErrorKind::Link
    }

    pub(crate) fn io(what: impl Into<String>, hint: &'static str) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source, hint }
    }

    pub(crate) fn garbage(what: &'static str, first: &[u8]) -> Self {
        Self::Garbage {
            what,
            first: first[..first.len().min(SHOWN)].to_vec(),
        }
    }
}

/// Enough to recognise the protocol of a stranger, such as `GET / HT`.
pub(crate) const SHOWN: usize = 8;

fn is_misuse(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{AddrInUse, AddrNotAvailable, InvalidInput, PermissionDenied, Unsupported};
    matches!(
        kind,
        AddrInUse | AddrNotAvailable | InvalidInput | PermissionDenied | Unsupported
    )
}

fn too_large_hint(what: &str) -> &'static str {
    match what {
        "a body" => "send large values as memory",
        "the parts" | "the list of parts" => "send large values as memory, or fewer at a time",
        _ => "send less at a time, or raise the limit on both sides",
    }
}

fn found_instead(found: &str) -> String {
    if found.is_empty() {
        String::new()
    } else {
        format!(" but `{found}`")
    }
}

struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0.as_secs_f64())
    }
}

struct FirstBytes<'a>(&'a [u8]);

impl fmt::Display for FirstBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        f.write_str(" (it begins with")?;
        self.0.iter().try_for_each(|byte| write!(f, " {byte:02x}"))?;
        f.write_str(", `")?;
        for byte in self.0 {
            f.write_char(if byte.is_ascii_graphic() || *byte == b' ' {
                *byte as char
            } else {
                '.'
            })?;
        }
        f.write_str("`)")
    }
}
