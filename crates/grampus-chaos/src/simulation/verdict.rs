//! CO-3, CO-4, CO-8 and CO-10: how tasks end.

use std::collections::BTreeSet;

use grampus_cluster::coordinator::{Step, Transition};
use grampus_core::{Rank, RankFailure, TaskFailure, TaskId, WorkerId};

use super::ledger::{Ledger, Record};
use super::report::{Violation, hold};

impl Ledger {
    /// CO-4: a task is sent to every rank of its world.
    pub(super) fn check_sent(&self, step: &Step) -> Result<(), Violation> {
        let Some((task, record)) = self.active.and_then(|task| Some((task, self.tasks.get(&task)?))) else {
            return Ok(());
        };
        hold(step.state.task() == Some(task), "CO-3", || {
            format!("task {task} was not resolved and does not run")
        })?;
        let ranks: u32 = record.seats.iter().map(|seat| seat.ranks).sum();
        hold(record.sent > 0 && ranks >= record.sent, "CO-4", || {
            format!("task {task} of {} ranks was sent to {ranks}", record.sent)
        })?;
        let enough = record.sent >= record.least && record.sent <= record.world;
        hold(enough, "CO-13", || {
            let (least, most, sent) = (record.least, record.world, record.sent);
            format!("task {task}, which needs {least} ranks and wants {most}, was sent to {sent}")
        })
    }

    pub(super) fn check_end(
        &mut self,
        task: TaskId,
        end: &Result<(), TaskFailure>,
        step: &Step,
    ) -> Result<(), Violation> {
        self.active.take_if(|active| *active == task);
        let Some(record) = self.tasks.get_mut(&task) else {
            return Err(Violation::new("CO-3", format!("task {task} was never submitted")));
        };
        hold(!record.resolved, "CO-3", || {
            format!("task {task} is resolved a second time")
        })?;
        record.resolved = true;
        match end {
            Ok(()) => succeeded(task, record),
            Err(TaskFailure::Rank { first, folded }) => failed(task, record, first, folded),
            Err(TaskFailure::Cancelled { .. }) => hold(record.cancelled || record.unasked, "CO-8", || {
                format!("task {task} ends as cancelled, and nobody wanted that")
            }),
            Err(TaskFailure::Cluster { why }) => {
                let started = record.generation.is_some();
                let over = Ledger::is_over(step.state.phase());
                hold(!started || over, "CO-8", || {
                    format!("task {task} is the cluster's fault, which goes on: {why}")
                })?;
                let stopped = step.transition == Transition::StopStarted;
                hold(!started || stopped, "CO-10", || {
                    format!("task {task} ends for another place: {why}")
                })?;
                let first = record.facts.first();
                hold(first.is_none() && !record.cancelled, "CO-8", || {
                    format!("task {task} forgets its first cause, {first:?}, for: {why}")
                })
            }
        }
    }
}

fn succeeded(task: TaskId, record: &Record) -> Result<(), Violation> {
    let all = record
        .seats
        .iter()
        .all(|seat| record.finished.contains(&seat.worker));
    hold(all && record.generation.is_some(), "CO-4", || {
        let seats: Vec<u64> = record.seats.iter().map(|seat| seat.worker.0).collect();
        let finished: Vec<u64> = record.finished.iter().map(|worker| worker.0).collect();
        format!("task {task} succeeds, finished by {finished:?} of {seats:?}")
    })?;
    hold(!record.cancelled && record.facts.is_empty(), "CO-4", || {
        format!("task {task} succeeds after {:?}", record.facts)
    })
}

fn failed(task: TaskId, record: &Record, first: &RankFailure, folded: &[Rank]) -> Result<(), Violation> {
    hold(!record.cancelled, "CO-8", || {
        format!("task {task} was cancelled by the user, and {first} is blamed")
    })?;
    let blamed = holder(record, first.rank);
    let fact = record.facts.iter().find(|fact| Some(fact.worker) == blamed);
    hold(fact.is_some(), "CO-8", || {
        format!("task {task} blames {first}, which did not fail")
    })?;
    let own = record.facts.iter().find(|fact| fact.own);
    hold(own.is_none() || fact.is_some_and(|fact| fact.own), "CO-8", || {
        format!("task {task} blames {first}, which followed from {own:?}")
    })?;
    let failed: BTreeSet<WorkerId> = record.facts.iter().map(|fact| fact.worker).collect();
    let others: BTreeSet<WorkerId> = folded.iter().filter_map(|rank| holder(record, *rank)).collect();
    let all = others.len() == folded.len() && others.len() + 1 == failed.len();
    hold(all && others.is_subset(&failed), "CO-8", || {
        format!("task {task} folds {folded:?}, failed were {:?}", record.facts)
    })
}

/// Who carries a rank of the task.
fn holder(record: &Record, rank: Rank) -> Option<WorkerId> {
    let seat = record
        .seats
        .iter()
        .find(|seat| (seat.rank.0..seat.rank.0 + seat.ranks).contains(&rank.0));
    seat.map(|seat| seat.worker)
}
