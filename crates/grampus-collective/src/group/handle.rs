//! A call that runs on its own.

use std::sync::Arc;
use std::time::Duration;

use super::Group;
use super::ticket::Ticket;
use crate::CollectiveError;

/// How often a thread that waits asks whether to go on.
const LOOK: Duration = Duration::from_millis(20);

/// A call that was started; see [`Group::start_call`].
pub struct RawHandle {
    /// `None` where a thread of its own drives the call.
    pub(crate) group: Option<Arc<super::Inner>>,
    pub(crate) ticket: Arc<Ticket>,
}

impl RawHandle {
    /// Whether the call is through, well or not.
    pub fn is_done(&self) -> bool {
        self.ticket.outcome().is_some()
    }

    /// Waits for the end of the call. Where `gives_up` says so, the call is given up and the group ends.
    pub fn wait(&self, gives_up: &dyn Fn() -> bool) -> Result<(), CollectiveError> {
        match &self.group {
            Some(group) => group.engine.wait(&self.ticket, gives_up),
            None => loop {
                if let Some(outcome) = self.ticket.wait(LOOK) {
                    return outcome;
                }
                if gives_up() {
                    self.ticket.give_up();
                }
            },
        }
    }

    /// Drives the call in this thread for at most `limit`, before leaving it to the group's own; whether it is through.
    pub fn linger(&self, limit: Duration) -> bool {
        match &self.group {
            Some(group) => group.engine.linger(&self.ticket, limit),
            None => self.ticket.wait(limit).is_some(),
        }
    }

    /// Waits at most `limit`, leaving the driving to others; `None` where the call is not through.
    pub fn wait_for(&self, limit: Duration) -> Option<Result<(), CollectiveError>> {
        self.ticket.wait(limit)
    }
}

/// A call that was started, with the buffer that it works on.
pub struct Handle<B> {
    pub(crate) raw: RawHandle,
    /// `None` once it was given back.
    pub(crate) buffer: Option<Box<B>>,
}

impl<B> Handle<B> {
    /// Whether the call is through, well or not.
    pub fn is_done(&self) -> bool {
        self.raw.is_done()
    }

    /// Waits for the end of the call and gives the buffer back.
    pub fn wait(mut self) -> Result<B, CollectiveError> {
        self.raw.wait(&|| false)?;
        match self.buffer.take() {
            Some(buffer) => Ok(*buffer),
            None => Err(CollectiveError::Argument(
                "the buffer was already given back".into(),
            )),
        }
    }
}

impl<B> Drop for Handle<B> {
    /// The buffer must outlive the call: waits for its end.
    fn drop(&mut self) {
        let group = self.raw.group.as_ref();
        if group.is_some_and(|group| group.segment.is_inherited()) {
            // The call runs on in the parent.
            std::mem::forget(self.buffer.take());
        } else if self.buffer.is_some() {
            let _ = self.raw.wait(&|| false);
        }
    }
}

impl Group {
    pub(crate) fn raw_handle(&self, ticket: Arc<Ticket>) -> RawHandle {
        RawHandle {
            group: Some(Arc::clone(&self.inner)),
            ticket,
        }
    }
}
