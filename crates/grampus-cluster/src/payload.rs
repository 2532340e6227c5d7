//! What travels beside a message: the user's function, its arguments, what it returned or raised.

use bytes::Bytes;
use grampus_net::{Frame, Memory};

/// Opaque bytes: small ones inline, large ones in shared memory. Cloning copies no bytes.
#[derive(Clone, Default)]
pub struct Payload {
    /// Small parts.
    pub parts: Vec<Bytes>,
    /// One large region.
    pub memory: Option<Memory>,
}

impl Payload {
    pub(crate) fn onto(self, frame: Frame) -> Frame {
        Frame {
            parts: self.parts,
            memory: self.memory,
            ..frame
        }
    }

    pub(crate) fn of(frame: Frame) -> Self {
        Self {
            parts: frame.parts,
            memory: frame.memory,
        }
    }
}
