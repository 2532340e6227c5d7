//! What was sealed and is on its way to the kernel.

use std::io::{self, Write};
use std::net::TcpStream;

use ring::error::Unspecified;

use super::WINDOW;
use super::record::{HEAD, Kind, RECORD, Sealer, TAG};

pub(super) struct Outbox {
    sealer: Sealer,
    /// Sealed records. Refilled only when all of it has left, so that it stays in the processor's cache.
    bytes: Vec<u8>,
    /// How much of it the kernel has.
    sent: usize,
}

impl Outbox {
    pub fn new(sealer: Sealer) -> Self {
        let room = WINDOW.div_ceil(RECORD) * (HEAD + RECORD + TAG);
        Self {
            sealer,
            bytes: Vec::with_capacity(room),
            sent: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Seals the front of `bytes`, where all that was sealed before has left; returns how much.
    pub fn fill(&mut self, bytes: &[u8]) -> Result<usize, Unspecified> {
        if !self.is_empty() {
            return Ok(0);
        }
        let bytes = &bytes[..bytes.len().min(WINDOW)];
        self.clear();
        for content in bytes.chunks(RECORD) {
            self.sealer.seal(Kind::Data, content, &mut self.bytes)?;
        }
        Ok(bytes.len())
    }

    /// Adds one record without regard to what waits; for the first and the last.
    pub fn add(&mut self, kind: Kind) -> Result<(), Unspecified> {
        self.sealer.seal(kind, &[], &mut self.bytes)
    }

    /// What waits.
    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
    }

    /// Hands to the kernel what it takes; true when nothing is left.
    pub fn push(&mut self, mut stream: &TcpStream) -> io::Result<bool> {
        while !self.is_empty() {
            match stream.write(self.waiting()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
