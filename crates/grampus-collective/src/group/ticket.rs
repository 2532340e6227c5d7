//! The state of a call that runs on its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::CollectiveError;

/// Where the outcome of a call will lie.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    outcome: Mutex<Option<Result<(), CollectiveError>>>,
    settled: Condvar,
    given_up: AtomicBool,
}

impl Ticket {
    pub fn settle(&self, outcome: Result<(), CollectiveError>) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.settled.notify_all();
    }

    /// The outcome, if there is one by now.
    pub fn outcome(&self) -> Option<Result<(), CollectiveError>> {
        self.outcome
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits for the outcome, at most `limit`.
    pub fn wait(&self, limit: Duration) -> Option<Result<(), CollectiveError>> {
        let guard = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, _) = self
            .settled
            .wait_timeout_while(guard, limit, |outcome| outcome.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        guard.clone()
    }

    /// Whoever waited gives up; whoever drives the call ends the group.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    pub fn given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }
}
