//! A frame and its header.
//!
//! On the wire, little endian: magic (2 bytes), how memory travels (1), zero (1), length of the body (4), number of
//! parts (4), length of the memory (8); then the length of each part (4 each), the body, the parts, and, over TCP, the
//! bytes of the memory.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Limits, Memory, NetError};

/// One message on the wire.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// A postcard-encoded control message.
    pub body: Vec<u8>,
    /// Small byte strings, raw.
    pub parts: Vec<Bytes>,
    /// A large region.
    pub memory: Option<Memory>,
}

impl Frame {
    /// A frame with a control message and nothing else.
    pub fn message<T: Serialize>(message: &T) -> Result<Self, NetError> {
        let body = postcard::to_stdvec(message).map_err(|source| NetError::Message {
            what: "written",
            source,
        })?;
        Ok(Self {
            body,
            parts: Vec::new(),
            memory: None,
        })
    }

    /// The control message. Bytes after it are an error.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, NetError> {
        let wrong = |source| NetError::Message { what: "read", source };
        let (message, rest) = postcard::take_from_bytes(&self.body).map_err(wrong)?;
        if rest.is_empty() {
            Ok(message)
        } else {
            Err(wrong(postcard::Error::DeserializeBadEncoding))
        }
    }

    /// The same with these parts.
    pub fn with_parts(mut self, parts: Vec<Bytes>) -> Self {
        self.parts = parts;
        self
    }

    /// The same with this memory.
    pub fn with_memory(mut self, memory: Memory) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Header and list of parts, checked against the limits.
    pub(crate) fn head(&self, way: Way, limits: &Limits) -> Result<Vec<u8>, NetError> {
        let size: usize = self.parts.iter().map(Bytes::len).sum();
        let memory = self.memory.as_ref().map(|memory| (way, memory.len()));
        let head = Head {
            body: self.body.len(),
            parts: self.parts.len(),
            memory,
        };
        head.check(limits)?;
        check_parts(size, limits)?;
        let mut bytes = Vec::with_capacity(HEADER + 4 * self.parts.len());
        bytes.extend_from_slice(&head.encode());
        for part in &self.parts {
            bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
        }
        Ok(bytes)
    }
}

pub(crate) const HEADER: usize = 20;
pub(crate) const MAGIC: [u8; 2] = *b"gF";

/// How the memory of a frame travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Descriptor = 1,
    Stream = 2,
}

/// The fixed part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub body: usize,
    pub parts: usize,
    pub memory: Option<(Way, u64)>,
}

impl Head {
    pub fn encode(&self) -> [u8; HEADER] {
        let (way, length) = self.memory.map_or((0, 0), |(way, length)| (way as u8, length));
        let mut bytes = [0; HEADER];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2] = way;
        bytes[4..8].copy_from_slice(&(self.body as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&(self.parts as u32).to_le_bytes());
        bytes[12..].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; HEADER], limits: &Limits) -> Result<Self, NetError> {
        let [m0, m1, way, zero, b0, b1, b2, b3, p0, p1, p2, p3, length @ ..] = *bytes;
        let length = u64::from_le_bytes(length);
        let memory = match way {
            0 if length == 0 => None,
            1 => Some((Way::Descriptor, length)),
            2 => Some((Way::Stream, length)),
            _ => return Err(not_a_frame(bytes)),
        };
        if [m0, m1] != MAGIC || zero != 0 {
            return Err(not_a_frame(bytes));
        }
        let body = u32::from_le_bytes([b0, b1, b2, b3]) as usize;
        let parts = u32::from_le_bytes([p0, p1, p2, p3]) as usize;
        let head = Self { body, parts, memory };
        head.check(limits)?;
        Ok(head)
    }

    fn check(&self, limits: &Limits) -> Result<(), NetError> {
        // The header holds 32 bits, whatever the limits say.
        at_most(
            "a body",
            self.body as u64,
            limits.body.min(u32::MAX as usize) as u64,
        )?;
        at_most("the list of parts", self.parts as u64, Limits::PART_COUNT as u64)?;
        at_most(
            "memory",
            self.memory.map_or(0, |(_, length)| length),
            limits.memory,
        )
    }
}

pub(crate) fn check_parts(size: usize, limits: &Limits) -> Result<(), NetError> {
    at_most(
        "the parts",
        size as u64,
        limits.parts.min(u32::MAX as usize) as u64,
    )
}

pub(crate) fn not_a_frame(bytes: &[u8]) -> NetError {
    NetError::garbage("what came is not a frame", bytes)
}

fn at_most(what: &'static str, size: u64, limit: u64) -> Result<(), NetError> {
    if size > limit {
        Err(NetError::TooLarge { what, size, limit })
    } else {
        Ok(())
    }
}
