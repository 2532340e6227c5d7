//! Runs one call after the other, in a thread that waits for one or in the group's own.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use super::pace::Patience;
use super::runner::{Runner, Running, closed};
use super::ticket::Ticket;
use crate::CollectiveError;
use crate::request::Work;
use crate::shared::{Segment, monotonic};

/// How long the thread that started a call has it for itself.
const HEAD_START: Duration = Duration::from_micros(200);
/// How long a waiting thread sleeps before it looks whether it can drive.
const LOOK: Duration = Duration::from_millis(5);

/// A call in the queue, with what keeps its memory alive.
pub(crate) struct Entry {
    pub running: Running<Work>,
    pub ticket: Arc<Ticket>,
    pub keep: Box<dyn Any + Send>,
}

/// The thread that holds this drives.
struct Seat {
    runner: Runner,
    current: Option<Entry>,
}

pub(crate) struct Engine {
    seat: Mutex<Seat>,
    queue: Mutex<VecDeque<Entry>>,
    /// Calls that are queued or on their way.
    pending: AtomicUsize,
    bell: Mutex<bool>,
    rung: Condvar,
    closing: AtomicBool,
    /// Waiting threads that have given up. The call on its way then ends the group, even if it is one before theirs.
    giving_up: AtomicUsize,
}

impl Engine {
    pub fn new(runner: Runner) -> Self {
        Self {
            seat: Mutex::new(Seat {
                runner,
                current: None,
            }),
            queue: Mutex::default(),
            pending: AtomicUsize::new(0),
            bell: Mutex::new(false),
            rung: Condvar::new(),
            closing: AtomicBool::new(false),
            giving_up: AtomicUsize::new(0),
        }
    }

    /// Makes a call in this thread, after those that were started before.
    pub fn call(
        &self,
        mut running: Running<Work>,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<(), CollectiveError> {
        // In this order: while this thread has the seat, no other can drive a call half way.
        if let Some(mut seat) = self.try_seat()
            && self.pending.load(Ordering::Acquire) == 0
        {
            let gives_up = || self.is_closed() || gives_up();
            let driven = seat.runner.drive(&mut running, Patience::Until(&gives_up));
            drop(seat);
            self.pass_on();
            return driven.map(drop);
        }
        let ticket = self.enqueue(running, Box::new(()));
        self.wait(&ticket, gives_up)
    }

    /// Starts a call. It goes as far as it can at once; the group's thread does the rest.
    pub fn start(&self, running: Running<Work>, keep: Box<dyn Any + Send>) -> Arc<Ticket> {
        let ticket = self.enqueue(running, keep);
        if let Some(mut seat) = self.try_seat() {
            self.drive(&mut seat, Patience::Brief, None);
        }
        self.pass_on();
        ticket
    }

    /// Waits for a call, driving it where no other thread does.
    pub fn wait(&self, ticket: &Ticket, gives_up: &dyn Fn() -> bool) -> Result<(), CollectiveError> {
        let mut told = false;
        let outcome = loop {
            if let Some(outcome) = ticket.outcome() {
                break outcome;
            }
            if let Some(mut seat) = self.try_seat() {
                self.drive(&mut seat, Patience::Until(gives_up), Some(ticket));
            } else if let Some(outcome) = ticket.wait(LOOK) {
                break outcome;
            } else if !told && gives_up() {
                self.giving_up.fetch_add(1, Ordering::AcqRel);
                told = true;
            }
        };
        if told {
            self.giving_up.fetch_sub(1, Ordering::AcqRel);
        }
        self.pass_on();
        outcome
    }

    /// Drives a call for a while; true when it is through.
    pub fn linger(&self, ticket: &Ticket, limit: Duration) -> bool {
        let end = monotonic() + limit;
        while ticket.outcome().is_none() && monotonic() < end {
            if let Some(mut seat) = self.try_seat() {
                self.drive(&mut seat, Patience::For(end), Some(ticket));
            } else {
                ticket.wait(LOOK.min(limit));
            }
        }
        self.pass_on();
        ticket.outcome().is_some()
    }

    /// The group's own thread: drives what was started, and shows that the process lives.
    pub fn serve(&self, segment: &Segment, beat: Duration) {
        while !self.is_closed() {
            segment.beat();
            let bell = self.bell.lock().unwrap_or_else(PoisonError::into_inner);
            let (mut bell, _) = self
                .rung
                .wait_timeout_while(bell, beat, |rung| !*rung)
                .unwrap_or_else(PoisonError::into_inner);
            let rung = std::mem::take(&mut *bell);
            drop(bell);
            if rung {
                // The thread that started a call often sees it through at once, and sooner than two threads would.
                std::thread::park_timeout(HEAD_START);
            }
            // Never waits for the seat, which may take long: a thread that leaves it with calls pending rings.
            if self.pending.load(Ordering::Acquire) > 0
                && let Some(mut seat) = self.try_seat()
            {
                self.drive(&mut seat, Patience::Aside(&|| false), None);
            }
        }
        // What is left will never be driven.
        let mut guard = self.seat.lock().unwrap_or_else(PoisonError::into_inner);
        let seat = &mut *guard;
        seat.runner
            .leave(seat.current.as_ref().map(|entry| &entry.running));
        while self.next(seat) {
            self.settle(seat, Err(closed()));
        }
    }

    /// Ends the group's own thread; calls on their way are given up, in all threads.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.ring();
    }

    /// Whether this member has left, or is about to.
    pub fn is_closed(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn enqueue(&self, running: Running<Work>, keep: Box<dyn Any + Send>) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket::default());
        let entry = Entry {
            running,
            ticket: Arc::clone(&ticket),
            keep,
        };
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: the group's own thread empties the queue only after it has seen that the group is closed.
        if self.is_closed() {
            drop(queue);
            drop(entry.keep);
            ticket.settle(Err(closed()));
            return ticket;
        }
        queue.push_back(entry);
        self.pending.fetch_add(1, Ordering::AcqRel);
        ticket
    }

    /// Calls the group's own thread where others left calls behind.
    fn pass_on(&self) {
        if self.pending.load(Ordering::Acquire) > 0 {
            self.ring();
        }
    }

    fn ring(&self) {
        *self.bell.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.rung.notify_one();
    }

    fn try_seat(&self) -> Option<MutexGuard<'_, Seat>> {
        match self.seat.try_lock() {
            Ok(seat) => Some(seat),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Drives calls in their order until `last` is through, or one must wait longer than `patience`, or none is left.
    fn drive(&self, seat: &mut Seat, patience: Patience<'_>, last: Option<&Ticket>) {
        while last.is_none_or(|ticket| ticket.outcome().is_none()) && self.next(seat) {
            let Seat { runner, current } = &mut *seat;
            let Some(entry) = current else { return };
            let gives_up =
                || self.is_closed() || self.giving_up.load(Ordering::Acquire) > 0 || patience.gives_up();
            let patience = match patience {
                Patience::Until(_) => Patience::Until(&gives_up),
                Patience::Aside(_) => Patience::Aside(&gives_up),
                short => short,
            };
            let driven = runner.drive(&mut entry.running, patience);
            match driven {
                Ok(false) => return,
                Ok(true) => self.settle(seat, Ok(())),
                Err(error) => self.settle(seat, Err(error)),
            }
        }
    }

    /// Whether there is a current call, taken from the queue where there was none.
    fn next(&self, seat: &mut Seat) -> bool {
        if seat.current.is_none() {
            seat.current = self
                .queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front();
        }
        seat.current.is_some()
    }

    fn settle(&self, seat: &mut Seat, outcome: Result<(), CollectiveError>) {
        if let Some(entry) = seat.current.take() {
            // The memory is free to go before a waiting thread learns of the end.
            drop(entry.keep);
            self.pending.fetch_sub(1, Ordering::AcqRel);
            entry.ticket.settle(outcome);
        }
    }
}
