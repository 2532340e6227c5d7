//! Ends of tasks that wait for the last output of their worker, and ends of workers that wait for their last words.
//!
//! A result comes over the worker's connection, its output over the supervisor's pipes. A result is held
//! until the supervisor says that all output before it was told, so that what a function printed is shown
//! before the call returns. The other way round, the exit of a process comes from the supervisor, and is held until
//! the process's connection has ended too: what it said before it died is heard first.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use grampus_core::{Exit, Outcome, TaskId, Time, WorkerId};

use crate::payload::Payload;

/// Nothing is held longer than this: output and last words are worth a moment, not a hang. A connection may outlive its
/// process, in a child that was forked from it.
const LONGEST: Duration = Duration::from_millis(200);

/// What a worker said at the end of a task.
pub(super) struct Finished {
    pub outcome: Outcome,
    pub ports: Vec<u16>,
    pub payload: Payload,
}

/// How a process ended.
pub(super) struct Exited {
    pub exit: Exit,
    pub log_tail: String,
}

#[derive(Default)]
pub(super) struct Held {
    waiting: HashMap<(WorkerId, TaskId), (Time, Finished)>,
    settled: HashSet<(WorkerId, TaskId)>,
    exits: HashMap<WorkerId, (Time, Exited)>,
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

    /// A process ended whose connection has not.
    pub(super) fn exited(&mut self, now: Time, worker: WorkerId, exited: Exited) {
        self.exits.insert(worker, (now + LONGEST, exited));
    }

    /// The connection of a process ended; how the process did, if that came before.
    pub(super) fn unlinked(&mut self, worker: WorkerId) -> Option<Exited> {
        self.exits.remove(&worker).map(|(_, exited)| exited)
    }

    /// Exits that have waited too long.
    pub(super) fn expired_exits(&mut self, now: Time) -> Vec<(WorkerId, Exited)> {
        let expired = self.exits.extract_if(|_, (until, _)| *until <= now);
        expired.map(|(worker, (_, exited))| (worker, exited)).collect()
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

    #[test]
    fn an_exit_waits_for_the_end_of_the_connection_but_not_for_ever() {
        let mut held = Held::default();
        let exited = || Exited {
            exit: Exit::Code(3),
            log_tail: String::new(),
        };
        assert!(held.unlinked(WORKER).is_none());
        held.exited(Time::ZERO, WORKER, exited());
        assert!(held.unlinked(WORKER).is_some());
        held.exited(Time::ZERO, WORKER, exited());
        assert!(held.expired_exits(Time::ZERO).is_empty());
        assert_eq!(held.expired_exits(Time::ZERO + LONGEST).len(), 1);
        assert!(held.unlinked(WORKER).is_none());
    }
}
