//! Descriptors that a process hands to a child of its own, long after it has started it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recv, recvmsg, send, sendmsg,
};

const WORD: &[u8] = b"w";

/// One of two ends. It notices when the process that has the other one is gone.
pub struct Handover(UnixStream);

impl Handover {
    /// Both ends.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = UnixStream::pair()?;
        Ok((Self(one), Self(other)))
    }

    /// The end that a process was started with.
    ///
    /// # Safety
    ///
    /// Nobody else in this process may own the descriptor.
    pub unsafe fn inherited(descriptor: RawFd) -> io::Result<Self> {
        // SAFETY: the caller has promised it.
        let socket = unsafe { UnixStream::from_raw_fd(descriptor) };
        fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
        Ok(Self(socket))
    }

    /// Its descriptor, which a child inherits once [`inherit`] was called between fork and exec.
    pub fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Says that this end is ready to take descriptors.
    pub fn announce(&self) -> io::Result<()> {
        send(&self.0, WORD, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Whether the other end has said so since it was asked last.
    pub fn was_announced(&self) -> bool {
        let mut word = [0];
        matches!(recv(&self.0, &mut word, RecvFlags::DONTWAIT), Ok((1, _)))
    }

    /// Hands over three descriptors, which stay open here too.
    pub fn give(&self, descriptors: [BorrowedFd<'_>; 3]) -> io::Result<()> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(&self.0, &[IoSlice::new(WORD)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Takes three; nothing where none come in time, the other end is gone, or a signal interrupts.
    pub fn take(&self, within: Duration) -> io::Result<Option<[OwnedFd; 3]>> {
        let within = Timespec::try_from(within).map_err(io::Error::other)?;
        let mut fds = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&within)) {
            Ok(1..) => self.received(),
            Ok(0) | Err(Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn received(&self) -> io::Result<Option<[OwnedFd; 3]>> {
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
        Ok(found.try_into().ok())
    }
}

/// Lets a child keep the descriptor over exec. Safe between fork and exec: one system call, nothing is allocated.
pub fn inherit(number: RawFd) -> io::Result<()> {
    // SAFETY: it is open, since the process that forked has it open.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(fcntl_setfd(descriptor, FdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write, pipe};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn what_is_handed_over_works_there() {
        let (giver, taker) = Handover::pair().unwrap();
        assert!(!giver.was_announced());
        taker.announce().unwrap();
        assert!(giver.was_announced());
        assert!(!giver.was_announced());
        let ((input, mut to), (mut from, output), (_, error)) =
            (pipe().unwrap(), pipe().unwrap(), pipe().unwrap());
        giver
            .give([input.as_fd(), output.as_fd(), error.as_fd()])
            .unwrap();
        drop((input, output, error));
        let [input, output, _] = taker.take(SOON).unwrap().unwrap();
        to.write_all(b"order").unwrap();
        drop(to);
        let mut words = String::new();
        File::from(input).read_to_string(&mut words).unwrap();
        File::from(output).write_all(b"report").unwrap();
        from.read_to_string(&mut words).unwrap();
        assert_eq!(words, "orderreport");
    }

    #[test]
    fn nobody_waits_for_ever() {
        let (_giver, taker) = Handover::pair().unwrap();
        assert!(taker.take(Duration::from_millis(10)).unwrap().is_none());
    }

    #[test]
    fn the_end_of_the_other_one_is_noticed() {
        let (giver, taker) = Handover::pair().unwrap();
        drop(giver);
        assert!(taker.take(SOON).unwrap().is_none());
    }
}
