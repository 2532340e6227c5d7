//! Connections that a listener has taken and whose peers have not said anything yet: whoever connects and is silent must not keep
//! others out.
//!
//! A peer of ours speaks first, as soon as it is connected. So silent ones wait here, where they cost a descriptor and nothing else,
//! until their first byte comes. Where there are too many, the one that has been silent longest is given up.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::time::Instant;

use crate::listen::Raw;

/// Of the silent connections that are kept, the part that one address may have, beside those that have just come.
const FROM_ONE: usize = 4;
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

/// The silent connections of a listener.
pub(crate) struct Arrivals {
    /// Oldest first.
    waiting: Vec<Arrival>,
    /// How many are kept.
    most: usize,
    /// Whether the oldest that has said something is next, and not the newest.
    oldest_next: bool,
    shaking: Shaking,
}

/// How many handshakes each address has; those of Unix sockets, which have none, count as one.
#[derive(Clone, Default)]
struct Shaking(Arc<Mutex<HashMap<Option<IpAddr>, usize>>>);

/// One handshake.
pub(crate) struct ShakingPlace {
    shaking: Shaking,
    from: Option<IpAddr>,
}

impl Shaking {
    fn counts(&self) -> MutexGuard<'_, HashMap<Option<IpAddr>, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ShakingPlace {
    fn drop(&mut self) {
        let mut counts = self.shaking.counts();
        if let Some(count) = counts.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.from);
            }
        }
    }
}

impl Arrivals {
    pub fn new(most: usize) -> Self {
        Self {
            waiting: Vec::new(),
            most,
            oldest_next: false,
            shaking: Shaking::default(),
        }
    }

    /// Counts the handshake of a connection for as long as this is kept.
    pub fn shake(&self, raw: &Raw) -> ShakingPlace {
        let from = raw.from();
        *self.shaking.counts().entry(from).or_default() += 1;
        ShakingPlace {
            shaking: self.shaking.clone(),
            from,
        }
    }

    /// Takes one more; returns one that has to go for it.
    pub fn push(&mut self, raw: Raw) -> Option<Arrival> {
        let from = raw.from();
        self.waiting.push(Arrival {
            raw,
            since: Instant::now(),
        });
        let alike = self.waiting.iter().filter(|arrival| arrival.raw.from() == from);
        let is_crowd = from.is_some() && alike.count() > self.most / FROM_ONE;
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
        let oldest = self.waiting.iter().position(has_to_go)?;
        Some(self.waiting.remove(oldest))
    }

    /// Whether no more may be taken before some are heard.
    pub fn is_full(&self) -> bool {
        self.waiting.len() > self.most
    }

    /// One that has said something, of the address that has the fewest handshakes, so that a crowd from one host keeps out no
    /// other. Of these by turns the newest, which is most likely to still wait for an answer, and the oldest, so that none waits
    /// for ever while others come.
    pub fn poll_word(&mut self, context: &mut Context<'_>) -> Poll<Arrival> {
        let counts = self.shaking.counts();
        let busy = |arrival: &Arrival| counts.get(&arrival.raw.from()).copied().unwrap_or(0);
        let arrivals = self.waiting.iter().enumerate();
        let ready = arrivals.filter(|(_, arrival)| arrival.raw.poll_word(context).is_ready());
        let ranked = ready.map(|(place, arrival)| (busy(arrival), place));
        let (oldest, newest) = ranked.fold((None, None), |(oldest, newest), (busy, place)| {
            let oldest = oldest.filter(|(least, _)| *least <= busy).or(Some((busy, place)));
            let newest = newest.filter(|(least, _)| *least < busy).or(Some((busy, place)));
            (oldest, newest)
        });
        drop(counts);
        let Some((_, place)) = (if self.oldest_next { oldest } else { newest }) else {
            return Poll::Pending;
        };
        self.oldest_next = !self.oldest_next;
        Poll::Ready(self.waiting.remove(place))
    }

    /// When the oldest has been silent for so long.
    pub fn deadline(&self, within: Duration) -> Option<Instant> {
        self.waiting.first().map(|arrival| arrival.since + within)
    }

    /// The oldest, if it has been silent for so long.
    pub fn pop_late(&mut self, within: Duration) -> Option<Arrival> {
        let oldest = self.waiting.first();
        let is_late = oldest.is_some_and(|arrival| arrival.age() >= within);
        is_late.then(|| self.waiting.remove(0))
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
