//! What happens next.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use grampus_core::Time;

use super::process::Happening;
use super::schedule::Planned;
use super::world::Arrival;

/// Something that happens at a point in time.
pub(super) enum Event {
    /// Something reaches the driver.
    Arrival(Arrival),
    /// The driver's timer.
    Wake,
    /// The driver goes on after a pause.
    Resume,
    /// Something happens to a process.
    Process(usize, Happening),
    /// The schedule says so.
    Planned(Planned),
}

struct Entry {
    at: Time,
    order: u64,
    event: Event,
}

impl Entry {
    fn key(&self) -> (Time, u64) {
        (self.at, self.order)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// Reversed: the heap gives its greatest, and the earliest is wanted.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// Events by time; those of one moment in the order in which they were put in.
#[derive(Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Entry>,
    next: u64,
}

impl Queue {
    pub fn push(&mut self, at: Time, event: Event) {
        let order = self.next;
        self.next += 1;
        self.heap.push(Entry { at, order, event });
    }

    pub fn pop(&mut self) -> Option<(Time, Event)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}
