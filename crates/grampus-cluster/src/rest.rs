//! A supervisor whose job is over rests for a while: the next task in the process that started it gets it with all that it has
//! imported, which takes seconds.
//!
//! Invariants:
//! - **RE-1** Whoever rests has no worker, and no line to a driver.
//! - **RE-2** It ends when the process that started it ends, when it is told to, and after [`REST_FOR`].

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recv, recvmsg, send, sendmsg,
};

/// As long as a program may take from one call to the next, with rows to be read between.
pub(crate) const REST_FOR: Duration = Duration::from_secs(20);
const WORD: &[u8] = b"r";

/// The end of a supervisor that may rest.
pub struct Place(UnixStream);

impl Place {
    /// The descriptor that this process was started with.
    ///
    /// # Safety
    ///
    /// Nobody else in this process may own it.
    pub unsafe fn inherited(descriptor: i32) -> io::Result<Self> {
        // SAFETY: the caller has promised it.
        let socket = unsafe { UnixStream::from_raw_fd(descriptor) };
        fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
        Ok(Self(socket))
    }

    /// Says that this process is going to rest, before anything else tells that its job is over.
    pub(crate) fn announce(&self) -> io::Result<()> {
        send(&self.0, WORD, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Standard input, output and error for another job; nothing where there is none in time.
    pub(crate) fn wait(&self, within: Duration) -> io::Result<Option<[OwnedFd; 3]>> {
        let within = Timespec::try_from(within).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut fds, Some(&within)) {
            Ok(1..) => self.take(),
            // A signal is a request to end.
            Ok(0) | Err(Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn take(&self) -> io::Result<Option<[OwnedFd; 3]>> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let mut word = [0];
        let mut words = [IoSliceMut::new(&mut word)];
        recvmsg(&self.0, &mut words, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let mut found = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                found.extend(descriptors);
            }
        }
        // None where the other end is closed.
        Ok(found.try_into().ok())
    }
}

/// The end of whoever starts supervisors.
pub(crate) struct Waker(UnixStream);

impl Waker {
    /// Both ends, of which the second is for the process that `command` starts, which gets its number as its last argument. It must
    /// live until then.
    pub(crate) fn of(command: &mut Command) -> io::Result<(Self, UnixStream)> {
        use std::os::unix::process::CommandExt;

        let (own, other) = UnixStream::pair()?;
        let number = other.as_raw_fd();
        command.arg(number.to_string());
        // SAFETY: the closure makes one system call, on a descriptor that is open.
        unsafe {
            command.pre_exec(move || {
                let other = BorrowedFd::borrow_raw(number);
                Ok(fcntl_setfd(other, FdFlags::empty())?)
            });
        }
        Ok((Self(own), other))
    }

    /// Whether the supervisor has said that it rests.
    pub(crate) fn has_it(&self) -> bool {
        let mut word = [0];
        matches!(recv(&self.0, &mut word, RecvFlags::DONTWAIT), Ok((1, _)))
    }

    fn wake(&self, line: [BorrowedFd<'_>; 3]) -> io::Result<()> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        control.push(SendAncillaryMessage::ScmRights(&line));
        sendmsg(&self.0, &[IoSlice::new(WORD)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// A supervisor that rests.
pub(crate) struct Resting {
    /// Its process.
    pub child: Child,
    /// How it is woken.
    pub waker: Waker,
    /// With what it was started.
    pub started: Vec<String>,
}

/// The one of this process, which has one task at a time.
static RESTING: Mutex<Option<Resting>> = Mutex::new(None);

impl Resting {
    /// Keeps it for the next task.
    pub(crate) fn keep(self) {
        let before = RESTING
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace(self);
        // Of a task beside this.
        if let Some(other) = before {
            other.end();
        }
    }

    /// Wakes the one that was started in the same way, with another line, if there is one.
    pub(crate) fn wake(started: &[String], line: [BorrowedFd<'_>; 3]) -> Option<(Child, Waker)> {
        let mut resting = RESTING.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let lives = matches!(resting.child.try_wait(), Ok(None));
        if !lives || resting.started != started || resting.waker.wake(line).is_err() {
            resting.end();
            return None;
        }
        // If it ends at this very moment, its line breaks, and another is started.
        Some((resting.child, resting.waker))
    }

    fn end(mut self) {
        // It has nobody to end, and nothing to say.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write, pipe};
    use std::os::fd::AsFd;

    use super::*;

    fn ends() -> (Waker, Place) {
        let (own, other) = UnixStream::pair().unwrap();
        (Waker(own), Place(other))
    }

    #[test]
    fn whoever_is_woken_has_another_line() {
        let (waker, place) = ends();
        assert!(!waker.has_it());
        place.announce().unwrap();
        assert!(waker.has_it());
        let ((input, mut to), (mut from, output), (_, error)) =
            (pipe().unwrap(), pipe().unwrap(), pipe().unwrap());
        waker
            .wake([input.as_fd(), output.as_fd(), error.as_fd()])
            .unwrap();
        drop((input, output, error));
        let [input, output, _] = place.wait(REST_FOR).unwrap().unwrap();
        to.write_all(b"order").unwrap();
        drop(to);
        let mut words = String::new();
        std::fs::File::from(input).read_to_string(&mut words).unwrap();
        std::fs::File::from(output).write_all(b"report").unwrap();
        from.read_to_string(&mut words).unwrap();
        assert_eq!(words, "orderreport");
    }

    #[test]
    fn nobody_rests_for_ever() {
        let (_waker, place) = ends();
        assert!(place.wait(Duration::from_millis(10)).unwrap().is_none());
    }

    #[test]
    fn rest_ends_with_whoever_started_it() {
        let (waker, place) = ends();
        drop(waker);
        assert!(place.wait(REST_FOR).unwrap().is_none());
    }
}
