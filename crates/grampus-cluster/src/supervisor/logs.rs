//! The output of one worker: read from its pipes, kept in a file, forwarded, and its last lines remembered.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::message::Stream;
use crate::rankfile;

/// Enough to see a traceback, small enough for an error message.
const TAIL_BYTES: usize = 4096;
const TAIL_LINES: usize = 25;
const CHUNK: usize = 64 * 1024;

/// The two pipes of a worker and where their bytes go.
pub(super) struct Logs {
    pipes: Vec<(Stream, OwnedFd)>,
    file: Option<(PathBuf, File)>,
    tail: VecDeque<u8>,
}

/// What one read brought.
pub(super) enum Read {
    Bytes(Vec<u8>),
    Nothing,
    Closed,
}

impl Logs {
    pub(super) fn open(
        out: OwnedFd,
        err: OwnedFd,
        dir: Option<&Path>,
        rank: u32,
    ) -> Result<Self, (PathBuf, String)> {
        let file = dir.map(|dir| rankfile::open(dir, rank)).transpose();
        let file = file.map_err(|(path, error)| (path, error.to_string()))?;
        Ok(Self {
            pipes: vec![(Stream::Out, out), (Stream::Err, err)],
            file,
            tail: VecDeque::new(),
        })
    }

    pub(super) fn pipes(&self) -> impl Iterator<Item = (Stream, BorrowedFd<'_>)> {
        self.pipes.iter().map(|(stream, fd)| (*stream, fd.as_fd()))
    }

    /// Reads what is there, without waiting; remembers and writes it.
    pub(super) fn read(&mut self, stream: Stream) -> (Read, Option<(PathBuf, String)>) {
        let Some(place) = self.pipes.iter().position(|(kind, _)| *kind == stream) else {
            return (Read::Closed, None);
        };
        let mut bytes = vec![0; CHUNK];
        match rustix::io::read(&self.pipes[place].1, &mut bytes) {
            Ok(0) => {
                self.pipes.remove(place);
                (Read::Closed, None)
            }
            Ok(length) => {
                bytes.truncate(length);
                let broken = self.keep(&bytes);
                (Read::Bytes(bytes), broken)
            }
            Err(Errno::AGAIN | Errno::INTR) => (Read::Nothing, None),
            Err(_) => {
                self.pipes.remove(place);
                (Read::Closed, None)
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Option<(PathBuf, String)> {
        self.tail.extend(bytes);
        let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..surplus);
        let (path, file) = self.file.as_mut()?;
        let error = file.write_all(bytes).err()?;
        let broken = (path.clone(), error.to_string());
        self.file = None;
        Some(broken)
    }

    /// The last whole lines of output.
    pub(super) fn tail(&self) -> String {
        let bytes: Vec<u8> = self.tail.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}
