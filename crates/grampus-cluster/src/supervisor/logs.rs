//! The output of one worker: read from its pipes, and its last lines remembered.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::message::Stream;

/// Enough to see a traceback, small enough for an error message.
const TAIL_BYTES: usize = 4096;
const TAIL_LINES: usize = 25;
const CHUNK: usize = 64 * 1024;

/// The two pipes of a worker, and what came last.
pub(super) struct Logs {
    pipes: Vec<(Stream, OwnedFd)>,
    tail: VecDeque<u8>,
}

/// What one read brought.
pub(super) enum Read {
    Bytes(Vec<u8>),
    Nothing,
    Closed,
}

impl Logs {
    pub(super) fn of(out: OwnedFd, err: OwnedFd) -> Self {
        Self {
            pipes: vec![(Stream::Out, out), (Stream::Err, err)],
            tail: VecDeque::new(),
        }
    }

    pub(super) fn pipes(&self) -> impl Iterator<Item = (Stream, BorrowedFd<'_>)> {
        self.pipes.iter().map(|(stream, fd)| (*stream, fd.as_fd()))
    }

    /// Reads what is there, without waiting, and remembers the end of it.
    pub(super) fn read(&mut self, stream: Stream) -> Read {
        let Some(place) = self.pipes.iter().position(|(kind, _)| *kind == stream) else {
            return Read::Closed;
        };
        let mut bytes = vec![0; CHUNK];
        match rustix::io::read(&self.pipes[place].1, &mut bytes) {
            Ok(length @ 1..) => {
                bytes.truncate(length);
                self.tail.extend(&bytes);
                let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
                self.tail.drain(..surplus);
                Read::Bytes(bytes)
            }
            Err(Errno::AGAIN | Errno::INTR) => Read::Nothing,
            Ok(0) | Err(_) => {
                self.pipes.remove(place);
                Read::Closed
            }
        }
    }

    /// The last whole lines of output.
    pub(super) fn tail(&self) -> String {
        let bytes: Vec<u8> = self.tail.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}
