//! How much and how long.

use std::time::Duration;

/// The limits of a link. Both sides should have equal ones: each checks what it sends and what it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a frame's body.
    pub body: usize,
    /// Most bytes of all parts of a frame together.
    pub parts: usize,
    /// Most bytes of a frame's memory.
    pub memory: u64,
    /// How long a frame that has begun may make no progress: no byte of it moves. On a Unix socket, how long sending one may
    /// take, since only a peer that does not read holds it up.
    pub io: Duration,
    /// How long making a connection may take, and then once more the handshake on it.
    pub handshake: Duration,
}

impl Limits {
    /// Most parts of one frame.
    pub const PART_COUNT: usize = 65_536;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 4 << 20,
            parts: 1 << 20,
            memory: 1 << 40,
            io: Duration::from_secs(10),
            handshake: Duration::from_secs(5),
        }
    }
}
