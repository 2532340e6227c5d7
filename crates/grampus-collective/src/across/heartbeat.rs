//! Shows peers on other hosts that this process lives, and hears whether they do.
//!
//! It has a thread of its own, which waits for nothing but its wires and the time: not for members of this host, not for
//! threads that drive calls, and not for a lock of the language on top. So a beat proves that the process runs and that the
//! network carries what it sends. It does not prove that the member gets on: that is for deadlines. A process that was
//! stopped sends none, and is silent. (`CL-9`)
//!
//! A beat also passes on that bytes of a call move somewhere, for those who wait for a member that waits for these bytes.
//! (`CL-14`)
//!
//! The same thread tells peers why the group ended, and ends it here when a peer tells. (`CL-7`)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use grampus_net::{Bell, Ready, Wire};

use super::control::ControlWire;
use crate::CollectiveError;
use crate::shared::{Segment, monotonic};

/// How soon to look again at a cause that another member is just writing.
const SOON: Duration = Duration::from_millis(20);

/// The thread; it ends with this.
pub(crate) struct Heartbeat {
    bell: Arc<Bell>,
    closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// Beats every so often on these wires until it is dropped.
    pub fn start(
        wires: Vec<ControlWire>,
        segment: Arc<Segment>,
        every: Duration,
    ) -> Result<Self, CollectiveError> {
        let (bell, closing) = (Arc::new(Bell::new()?), Arc::new(AtomicBool::new(false)));
        let heart = Heart {
            wires,
            segment,
            every,
            bell: Arc::clone(&bell),
            closing: Arc::clone(&closing),
            has_told: false,
        };
        let thread = std::thread::Builder::new()
            .name("grampus-beat".into())
            .spawn(move || heart.run())
            .map_err(|error| CollectiveError::System(format!("cannot start a thread: {error}")))?;
        Ok(Self {
            bell,
            closing,
            thread: Some(thread),
        })
    }

    /// Rung when the group has ended, so that peers hear of it at once.
    pub fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Heart {
    wires: Vec<ControlWire>,
    segment: Arc<Segment>,
    every: Duration,
    bell: Arc<Bell>,
    closing: Arc<AtomicBool>,
    has_told: bool,
}

impl Heart {
    fn run(mut self) {
        let mut next = Duration::ZERO;
        loop {
            let is_closing = self.closing.load(Ordering::Acquire);
            self.segment.beat();
            let now = monotonic();
            if now >= next {
                next = now + self.every;
                let block = self.segment.block(self.segment.me());
                let awaits = block.awaits.load(Ordering::Relaxed);
                let moved = self.segment.moved();
                self.wires.iter_mut().for_each(|wire| wire.beat(awaits, moved));
            }
            self.tell();
            self.hear();
            self.wires.iter_mut().for_each(ControlWire::push);
            if is_closing {
                break;
            }
            let is_ending = self.segment.fault().is_set() && !self.has_told;
            let limit = if is_ending {
                SOON
            } else {
                next.saturating_sub(monotonic())
            };
            let wanted: Vec<(&Wire, Ready)> = self.wires.iter().filter_map(ControlWire::wanted).collect();
            if self.bell.wait_ready(&wanted, limit).is_err() {
                // Without a way to wait, the time alone says when to look again.
                std::thread::park_timeout(limit);
            }
        }
        self.wires.into_iter().for_each(ControlWire::close);
    }

    /// Tells all peers why the group ended, once.
    fn tell(&mut self) {
        if self.has_told {
            return;
        }
        if let Some(cause) = self.segment.fault().get() {
            self.has_told = true;
            self.wires.iter_mut().for_each(|wire| wire.tell(&cause));
        }
    }

    fn hear(&mut self) {
        for wire in &mut self.wires {
            let news = wire.take_in();
            if let Some(moved) = news.moved {
                self.segment.hear_moved(moved);
            }
            if let Some(cause) = news.cause {
                self.segment.end(&cause);
            }
            // After the cause: a call that sees the end takes it for the cause where there is none.
            if let Some(end) = news.end {
                wire.health.set_end(end);
            }
        }
    }
}
