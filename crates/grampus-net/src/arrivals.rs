//! Connections that a listener has taken and whose peers have not said anything yet: whoever connects and is silent must not keep
//! others out.
//!
//! A peer of ours speaks first, as soon as it is connected. So silent ones wait here, where they cost a descriptor and nothing else,
//! until their first byte comes. Where there are too many, the one that has been silent longest is given up.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::time::Instant;

use crate::listen::Raw;

/// Silent connections that are kept.
const SILENT: usize = 512;
/// The same from one address, beside those that have just come.
const SILENT_FROM_ONE: usize = 128;
/// How long a peer of ours may take to say the first word: hundreds may come from one busy host at once.
const FIRST_WORD: Duration = Duration::from_secs(1);

/// One connection.
pub(crate) struct Arrival {
    pub raw: Raw,
    pub since: Instant,
}

impl Arrival {
    /// How long it has been there.
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }
}

/// The silent connections of a listener, oldest first.
#[derive(Default)]
pub(crate) struct Arrivals(Vec<Arrival>);

impl Arrivals {
    /// Takes one more; returns one that has to go for it.
    pub fn push(&mut self, raw: Raw) -> Option<Arrival> {
        let from = raw.from();
        self.0.push(Arrival {
            raw,
            since: Instant::now(),
        });
        let alike = self.0.iter().filter(|arrival| arrival.raw.from() == from).count();
        let is_crowd = from.is_some() && alike > SILENT_FROM_ONE;
        let is_full = self.is_full();
        let has_to_go = |arrival: &Arrival| {
            let of_crowd = is_crowd && arrival.raw.from() == from;
            let goes = if is_full {
                of_crowd || !is_crowd
            } else {
                of_crowd && arrival.age() > FIRST_WORD
            };
            // Its first word may have come and was not looked at yet.
            goes && !has_word(arrival.raw.descriptor())
        };
        let oldest = self.0.iter().position(has_to_go)?;
        Some(self.0.remove(oldest))
    }

    /// Whether no more may be taken before some are heard.
    pub fn is_full(&self) -> bool {
        self.0.len() > SILENT
    }

    /// The newest one that has said something: whoever came just now is most likely to still wait for an answer.
    pub fn poll_word(&mut self, context: &mut Context<'_>) -> Poll<Arrival> {
        let ready = |arrival: &Arrival| arrival.raw.poll_word(context).is_ready();
        match self.0.iter().rposition(ready) {
            Some(place) => Poll::Ready(self.0.remove(place)),
            None => Poll::Pending,
        }
    }

    /// When the oldest has been silent for so long.
    pub fn deadline(&self, within: Duration) -> Option<Instant> {
        self.0.first().map(|arrival| arrival.since + within)
    }

    /// The oldest, if it has been silent for so long.
    pub fn pop_late(&mut self, within: Duration) -> Option<Arrival> {
        let late = self.0.first().is_some_and(|arrival| arrival.age() >= within);
        late.then(|| self.0.remove(0))
    }
}

fn has_word(socket: BorrowedFd<'_>) -> bool {
    let mut looked = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut looked, Some(&at_once)).is_ok() && !looked[0].revents().is_empty()
}

impl Raw {
    /// The address that it comes from.
    fn from(&self) -> Option<IpAddr> {
        match self {
            Self::Unix(..) => None,
            Self::Tcp(stream, ..) => stream.peer_addr().ok().map(|address| address.ip().to_canonical()),
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream, _) => stream.as_fd(),
            Self::Tcp(stream, ..) => stream.as_fd(),
        }
    }

    /// Ready when something came, or the end.
    fn poll_word(&self, context: &mut Context<'_>) -> Poll<()> {
        let Self::Tcp(stream, ..) = self else {
            // The system says which user is behind a Unix socket: such a peer is judged before it says anything.
            return Poll::Ready(());
        };
        loop {
            // An error is found again by whoever reads.
            if ready!(stream.poll_read_ready(context)).is_err() {
                return Poll::Ready(());
            }
            // The runtime takes a new connection for readable until that is tried.
            let looked = stream.try_io(Interest::READABLE, || {
                has_word(stream.as_fd())
                    .then_some(())
                    .ok_or(ErrorKind::WouldBlock.into())
            });
            if !looked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                return Poll::Ready(());
            }
        }
    }
}
