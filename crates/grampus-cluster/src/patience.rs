//! How long a peer may take that is slow and lives.

use std::time::Duration;

use grampus_net::Limits;

/// A handshake takes milliseconds; on machines that are busy with other things, as they are when workers start, it may take long.
/// How long a worker may take in all, the coordinator says.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// The limits of links between members, where a peer may be silent for so long: it may as well not read for so long.
pub(crate) fn limits(silent_after: Duration) -> Limits {
    let usual = Limits::default();
    Limits {
        io: usual.io.max(silent_after),
        handshake: HANDSHAKE,
        ..usual
    }
}

/// How long a peer has been silent, counted in beats of this process. Whoever was stopped himself, or got no processor, has not
/// listened meanwhile, and finds at his next beat what the peer had said.
#[derive(Default)]
pub(crate) struct Silence {
    beats: u32,
    received: u64,
}

impl Silence {
    /// Beats of silence after which a peer is lost.
    const BEATS: u32 = 6;

    /// How long a beat is.
    pub(crate) fn beat(silent_after: Duration) -> Duration {
        (silent_after / Self::BEATS).max(Duration::from_millis(1))
    }

    /// At each beat, with the bytes that have come so far: whether the peer is lost.
    pub(crate) fn is_over(&mut self, received: u64) -> bool {
        let before = std::mem::replace(&mut self.received, received);
        self.beats = if before == received { self.beats + 1 } else { 0 };
        self.beats >= Self::BEATS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_counted_in_beats_and_ends_with_every_byte() {
        let mut silence = Silence::default();
        assert!((0..5).all(|_| !silence.is_over(0)));
        assert!((1..20).all(|bytes| !silence.is_over(bytes)));
        assert!((0..5).all(|_| !silence.is_over(19)));
        assert!(silence.is_over(19));
    }

    #[test]
    fn a_peer_that_may_be_silent_for_long_may_leave_things_unread_for_as_long() {
        assert_eq!(limits(Duration::from_secs(60)).io, Duration::from_secs(60));
        assert_eq!(limits(Duration::from_secs(3)).io, Limits::default().io);
    }
}
