//! Waiting for several wires at once.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::Wire;
use crate::NetError;

/// What a wire is waited for, and what it is ready for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// [`Wire::receive`] has something: bytes, the end or an error.
    pub read: bool,
    /// [`Wire::send`] or [`Wire::flush`] gets on.
    pub write: bool,
}

impl Ready {
    /// For one that only receives.
    pub const READ: Self = Self {
        read: true,
        write: false,
    };
    /// For one that only sends.
    pub const WRITE: Self = Self {
        read: false,
        write: true,
    };
    /// For one that does both.
    pub const BOTH: Self = Self {
        read: true,
        write: true,
    };

    /// Whether it is anything at all.
    pub fn any(self) -> bool {
        self.read || self.write
    }
}

/// Waits until one of the wires is ready for what it is wanted for, at most `timeout`; the answer is in the order of
/// `wires`, and says of none that it is ready where the time is over or a signal came.
///
/// Bytes that have come and wait in a wire itself count as ready. A wire whose last bytes still wait to leave (see
/// [`Wire::flush`]) is watched for writing even if it is not wanted for it: the peer may be waiting for just these. A
/// broken wire is ready to read.
pub fn wait_ready(wires: &[(&Wire, Ready)], timeout: Duration) -> Result<Vec<Ready>, NetError> {
    wait(wires, None, timeout)
}

/// Lets one thread end the wait of another.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// A new one.
    pub fn new() -> Result<Self, NetError> {
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        made.map(Self).map_err(|errno| {
            let hint = "raise the limit of open files (`ulimit -n`)";
            NetError::io("cannot make an event descriptor", hint)(errno.into())
        })
    }

    /// Ends the present wait, or the next one.
    pub fn ring(&self) {
        // It fails where it has been rung more often than it can count, and ends the wait all the same.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Like [`wait_ready`]; ends as well when the bell was rung.
    pub fn wait_ready(&self, wires: &[(&Wire, Ready)], timeout: Duration) -> Result<Vec<Ready>, NetError> {
        let ready = wait(wires, Some(self), timeout);
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
        ready
    }
}

fn wait(wires: &[(&Wire, Ready)], bell: Option<&Bell>, timeout: Duration) -> Result<Vec<Ready>, NetError> {
    let mut fds: Vec<PollFd<'_>> = wires
        .iter()
        .map(|(wire, want)| {
            let write = want.write || wire.has_waiting();
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, want.read);
            flags.set(PollFlags::OUT, write);
            PollFd::from_borrowed_fd(wire.stream.as_fd(), flags)
        })
        .chain(bell.map(|bell| PollFd::new(&bell.0, PollFlags::IN)))
        .collect();
    let here = |(wire, want): &(&Wire, Ready)| want.read && wire.has_arrived();
    let timeout = if wires.iter().any(here) {
        Duration::ZERO
    } else {
        timeout
    };
    // A time too long for the kernel's clock is as good as its longest.
    let timeout = Timespec::try_from(timeout).unwrap_or(Timespec {
        tv_sec: i64::MAX,
        tv_nsec: 0,
    });
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(errno) => {
            let hint = "the limit of open files (`ulimit -n`) may be too low";
            return Err(NetError::io("cannot wait for the wires", hint)(errno.into()));
        }
    }
    let answer = fds.iter().zip(wires).map(|(fd, each)| {
        let found = fd.revents();
        Ready {
            read: here(each) || found.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR),
            write: found.contains(PollFlags::OUT),
        }
    });
    Ok(answer.collect())
}

impl Wire {
    /// Whether the peer has ended it, also where bytes that came before are still unread.
    pub fn is_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let asked = poll(&mut fds, Some(&Timespec::default()));
        let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        asked.is_ok() && fds[0].revents().intersects(ended)
    }

    /// Whether taken bytes wait to leave.
    fn has_waiting(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| !guard.outbox.is_empty())
    }

    /// Whether bytes that have come wait here.
    fn has_arrived(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.inbox.is_ready())
    }
}
