//! Ends of tasks that wait for the last output of their worker.
//!
//! A result comes over the worker's connection, its output over the supervisor's pipes. A result is held
//! until the supervisor says that all output before it was told, so that what a function printed is shown
//! before the call returns.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use grampus_core::{Outcome, TaskId, Time, WorkerId};

use crate::payload::Payload;

/// A result is not held longer than this: output is worth a moment, not a hang.
const LONGEST: Duration = Duration::from_millis(200);

/// What a worker said at the end of a task.
pub(super) struct Finished {
    pub outcome: Outcome,
    pub ports: Vec<u16>,
    pub payload: Payload,
}

#[derive(Default)]
pub(super) struct Held {
    waiting: HashMap<(WorkerId, TaskId), (Time, Finished)>,
    settled: HashSet<(WorkerId, TaskId)>,
}

impl Held {
    /// The end itself if its output is complete; otherwise it is kept.
    pub(super) fn finished(
        &mut self,
        now: Time,
        worker: WorkerId,
        task: TaskId,
        finished: Finished,
    ) -> Option<Finished> {
        if self.settled.remove(&(worker, task)) {
            return Some(finished);
        }
        self.waiting.insert((worker, task), (now + LONGEST, finished));
        None
    }

    /// The output of a task is complete; its end, if that came before.
    pub(super) fn settled(&mut self, worker: WorkerId, task: TaskId) -> Option<Finished> {
        let waiting = self.waiting.remove(&(worker, task)).map(|(_, finished)| finished);
        if waiting.is_none() {
            self.settled.insert((worker, task));
        }
        waiting
    }

    /// Ends that have waited too long.
    pub(super) fn expired(&mut self, now: Time) -> Vec<(WorkerId, TaskId, Finished)> {
        let expired = self.waiting.extract_if(|_, (until, _)| *until <= now);
        expired
            .map(|((worker, task), (_, finished))| (worker, task, finished))
            .collect()
    }

    /// A worker is gone, and with it what it still had to say.
    pub(super) fn forget(&mut self, worker: WorkerId) -> Vec<(TaskId, Finished)> {
        self.settled.retain(|(known, _)| *known != worker);
        let own = self.waiting.extract_if(|(known, _), _| *known == worker);
        own.map(|((_, task), (_, finished))| (task, finished)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKER: WorkerId = WorkerId(1);
    const TASK: TaskId = TaskId(2);

    fn finished() -> Finished {
        Finished {
            outcome: Outcome::Ok,
            ports: Vec::new(),
            payload: Payload::default(),
        }
    }

    #[test]
    fn an_end_waits_for_its_output_in_either_order() {
        let mut held = Held::default();
        assert!(held.finished(Time::ZERO, WORKER, TASK, finished()).is_none());
        assert!(held.settled(WORKER, TASK).is_some());
        assert!(held.settled(WORKER, TASK).is_none());
        assert!(held.finished(Time::ZERO, WORKER, TASK, finished()).is_some());
        assert!(held.waiting.is_empty());
    }

    #[test]
    fn an_end_does_not_wait_for_ever_nor_for_a_worker_that_is_gone() {
        let mut held = Held::default();
        assert!(held.finished(Time::ZERO, WORKER, TASK, finished()).is_none());
        assert!(held.expired(Time::ZERO).is_empty());
        assert_eq!(held.expired(Time::ZERO + LONGEST).len(), 1);
        assert!(held.finished(Time::ZERO, WORKER, TASK, finished()).is_none());
        assert_eq!(held.forget(WORKER).len(), 1);
        assert!(held.waiting.is_empty());
    }
}
