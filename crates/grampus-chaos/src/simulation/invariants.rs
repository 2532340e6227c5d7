//! CO-1, CO-2, CO-5, CO-6, CO-7, CO-9, CO-11 and CO-13: what holds of the state and of what it sends, after every step.

use std::time::Duration;

use grampus_cluster::coordinator::{Action, Phase, State, Step, Transition};
use grampus_core::{GenerationId, Task, Time, WorkerId};

use super::ledger::{Kind, Ledger, Seen, Stage};
use super::process::Process;
use super::report::{Violation, hold};

impl Ledger {
    /// CO-6: what comes from somebody who is no member changes nothing.
    pub(super) fn check_ignored(&self, seen: &Seen, step: &Step) -> Result<(), Violation> {
        let said = matches!(seen.kind, Kind::Word | Kind::LinkLost | Kind::Exited);
        hold(!said || seen.member || step.actions.is_empty(), "CO-6", || {
            format!(
                "{:?} is no member and brought about {:?}",
                seen.from, step.actions
            )
        })?;
        let word = matches!(seen.kind, Kind::Word | Kind::LinkLost) && !seen.member;
        let ignored = matches!(step.transition, Transition::Ignored | Transition::FinishedStale);
        hold(!word || ignored, "CO-6", || {
            format!("{:?} is no member and was listened to", seen.from)
        })
    }

    /// CO-9: where nothing breaks, nobody is given up.
    pub(super) fn check_calm(&self, step: &Step) -> Result<(), Violation> {
        use Transition::*;
        let blamed = matches!(
            step.transition,
            MemberLost
                | MemberLostIdle
                | StartRetried
                | StartGivenUp
                | Silent
                | ExitUnreported
                | JoinTooLate
                | CancelTooLate
        ) || step.transition == StopTooLate && self.away == Duration::ZERO;
        hold(!self.calm || !blamed, "CO-9", || {
            format!("nothing broke, and yet: {}", step.why)
        })
    }

    /// CO-1 of members, and CO-6 of those that were given up in this step.
    pub(super) fn check_members(&mut self, seen: &Seen, step: &Step) -> Result<(), Violation> {
        let now: Vec<(WorkerId, u32)> = step.state.seating().collect();
        if now == self.members {
            return Ok(());
        }
        let mut slots: Vec<u32> = now.iter().map(|(_, slot)| *slot).collect();
        slots.sort_unstable();
        let apart = slots.windows(2).all(|pair| pair[0] != pair[1]);
        let inside = slots.iter().all(|slot| *slot < self.most);
        hold(apart && inside, "CO-1", || {
            format!("members hold the slots {slots:?}")
        })?;
        let stays = |worker: &WorkerId| now.iter().any(|(member, _)| member == worker);
        let before = self.members.iter().map(|(worker, _)| *worker);
        let gone: Vec<WorkerId> = before.filter(|worker| !stays(worker)).collect();
        self.members = now;
        self.book_gone(&gone, seen, step.transition);
        if Ledger::is_over(step.state.phase()) {
            return Ok(());
        }
        gone.iter()
            .try_for_each(|worker| self.check_ended(*worker, seen, step))
    }

    /// CO-6: the process of a member that was given up has ended, or is ended; where nobody launched it, at
    /// least its link is closed.
    fn check_ended(&mut self, worker: WorkerId, seen: &Seen, step: &Step) -> Result<(), Violation> {
        self.linked.remove(&worker);
        let gone = match self.options.launches {
            true => self.reported.contains(&worker),
            false => seen.kind == Kind::LinkLost && seen.from == Some(worker),
        };
        let ended = step.actions.contains(&Action::Kill(worker));
        hold(gone || ended, "CO-6", || {
            format!("{worker} was given up and nobody ends it")
        })
    }

    /// CO-1 and CO-2 of the generation.
    pub(super) fn check_generation(&mut self, state: &State) -> Result<(), Violation> {
        let generation = state.generation();
        let was = std::mem::replace(&mut self.generation, generation.number);
        if generation.number == was {
            return Ok(());
        }
        hold(generation.number > was, "CO-2", || {
            format!("generation {} follows {was}", generation.number)
        })?;
        let mut rank = 0;
        for seat in &generation.members {
            hold(seat.rank.0 == rank && seat.ranks > 0, "CO-1", || {
                format!("{} holds rank {}, not {rank}", seat.worker, seat.rank)
            })?;
            rank += seat.ranks;
            hold(
                self.is_member(seat.worker) || Ledger::is_over(state.phase()),
                "CO-1",
                || format!("{} has a rank and is no member", seat.worker),
            )?;
        }
        // Where it has fewer than all members, `check_sent` finds the task that can do with them.
        let count = generation.members.len();
        hold(count > 0 && count <= self.options.size as usize, "CO-1", || {
            format!("generation {} has {count} members", generation.number)
        })
    }

    /// CO-7: nothing is launched twice, nor when all is over. CO-11: nor too often in a row.
    pub(super) fn check_launch(&mut self, worker: WorkerId, slot: u32) -> Result<(), Violation> {
        hold(self.launched.insert(worker, slot).is_none(), "CO-7", || {
            format!("{worker} is launched twice")
        })?;
        let failed = self.failed_starts.get(slot as usize).copied().unwrap_or_default();
        hold(failed < self.options.start_attempts, "CO-11", || {
            format!("slot {slot} is launched again after {failed} failures")
        })?;
        hold(
            self.stage.name != "stopping" && self.stage.name != "over",
            "CO-7",
            || format!("{worker} is launched when all is over"),
        )
    }

    /// CO-11: a place is filled again at once, and given up only after so many failures.
    pub(super) fn check_filled(&mut self, seen: &Seen, step: &Step) -> Result<(), Violation> {
        let given_up = step.transition == Transition::StartGivenUp;
        let place = seen.from.and_then(|worker| self.launched.get(&worker));
        let failed = place.and_then(|slot| self.failed_starts.get(*slot as usize).copied());
        let enough = failed.is_some_and(|failed| failed >= self.options.start_attempts);
        hold(!given_up || enough && seen.starting, "CO-11", || {
            format!("given up after {failed:?} failures: {}", step.why)
        })?;
        self.hopeless |= given_up || step.transition == Transition::JoinTooLate;
        let held = self.members.iter().filter(|(_, slot)| *slot < self.options.size);
        let filled = !self.options.launches || held.count() + self.empty.len() == self.options.size as usize;
        let over = Ledger::is_over(step.state.phase());
        hold(filled || over || self.hopeless, "CO-11", || {
            format!("only {:?} are filled", self.members)
        })
    }

    /// CO-6: messages go to members whose link holds.
    pub(super) fn check_send(&self, worker: WorkerId) -> Result<(), Violation> {
        hold(self.linked.contains(&worker), "CO-6", || {
            format!("{worker} gets a message and has no link")
        })
    }

    /// CO-2: a member hears of ever newer generations.
    pub(super) fn check_told(&mut self, worker: WorkerId, number: GenerationId) -> Result<(), Violation> {
        let was = self.generations.insert(worker, number);
        hold(was.is_none_or(|was| number > was), "CO-2", || {
            format!("{worker} is told generation {number} after {was:?}")
        })
    }

    /// CO-2: a task goes to members that were told its generation.
    pub(super) fn check_task(&self, worker: WorkerId, task: &Task) -> Result<(), Violation> {
        let told = self.generations.get(&worker).copied();
        hold(told == Some(task.generation), "CO-2", || {
            format!(
                "task {} of generation {} goes to {worker}, which was told {told:?}",
                task.id, task.generation
            )
        })
    }

    /// CO-3, CO-5: every phase that waits ends in time; CO-7 once all is over.
    pub(super) fn check_phase(&mut self, now: Time, state: &State) -> Result<(), Violation> {
        let options = &self.options;
        let (name, most, until) = match state.phase() {
            Phase::Forming { until, .. } => ("forming", options.join_within, Some(*until)),
            Phase::Ready => ("ready", Duration::ZERO, None),
            Phase::Running => ("running", Duration::ZERO, None),
            Phase::Leaving { until } => ("leaving", options.leave_within, Some(*until)),
            Phase::Cancelling { until } => (
                "cancelling",
                self.active
                    .map_or(Duration::ZERO, |task| self.cancel_within(task)),
                Some(*until),
            ),
            Phase::Stopping { until, .. } => ("stopping", options.stop_within * 3, Some(*until)),
            Phase::Over => ("over", Duration::ZERO, None),
        };
        let away = self.away;
        if name != self.stage.name {
            self.stage = Stage {
                name,
                since: now,
                away,
            };
            if name == "over" {
                self.check_over()?;
            }
        }
        if name == "stopping" {
            self.check_alive(state)?;
        }
        let failed = self.active.and_then(|task| self.tasks.get(&task)?.facts.first());
        hold(name != "running" || failed.is_none(), "CO-3", || {
            format!("{failed:?} failed, and the others go on")
        })?;
        let Some(until) = until else {
            let waits = name == "ready" && self.tasks.values().any(|record| !record.resolved);
            return hold(!waits, "CO-3", || "a task waits while nothing runs".to_owned());
        };
        // A pause moves deadlines by its length, and may be noticed a tick later.
        let pauses = (away - self.stage.away) * 2;
        let latest = self.stage.since + most + pauses + self.slack;
        hold(now <= latest && until <= latest + pauses, "CO-5", || {
            let since = self.stage.since;
            format!("{name} since {since}, until {until}: it should end by {latest}")
        })
    }

    /// CO-5: what is waited for is there. CO-7: nobody is forgotten.
    fn check_alive(&self, state: &State) -> Result<(), Violation> {
        let left = |worker: &&WorkerId| !self.reported.contains(worker);
        let left: Vec<WorkerId> = self.launched.keys().filter(left).copied().collect();
        hold(!left.is_empty(), "CO-5", || {
            "it waits for nobody to leave".to_owned()
        })?;
        let alive: Vec<WorkerId> = state.alive().collect();
        hold(alive == left, "CO-7", || {
            format!("{left:?} are left, the coordinator thinks {alive:?}")
        })
    }

    fn check_over(&self) -> Result<(), Violation> {
        let free = self
            .launched
            .keys()
            .find(|worker| !self.reported.contains(worker) && !self.killed.contains(worker));
        hold(free.is_none(), "CO-7", || {
            format!("all is over, and {free:?} neither ended nor was ended")
        })
    }

    /// CO-5 and CO-3, when the coordinator says that there is nothing to do at this moment.
    pub(super) fn idle(&self, now: Time, state: &Option<State>) -> Result<(), Violation> {
        let Some(state) = state else { return Ok(()) };
        let over = *state.phase() == Phase::Over;
        let deadline = state.deadline();
        hold(over || deadline.is_some_and(|until| until > now), "CO-5", || {
            format!("nothing to do at {now}, deadline {deadline:?}")
        })?;
        for (task, record) in &self.tasks {
            let due = record.due + (self.away - record.away) * 2;
            hold(record.resolved || now <= due, "CO-3", || {
                format!("task {task} should be resolved by {due}")
            })?;
        }
        Ok(())
    }

    /// What holds when the schedule is played to its end.
    pub(super) fn finish(&self, state: &Option<State>, processes: &[Process]) -> Result<(), Violation> {
        let phase = state.as_ref().map(State::phase);
        hold(phase == Some(&Phase::Over), "CO-5", || {
            format!("at the end the job is {phase:?}")
        })?;
        let open = self.tasks.iter().find(|(_, record)| !record.resolved);
        hold(open.is_none(), "CO-3", || {
            format!("task {:?} was never resolved", open.map(|(task, _)| task))
        })?;
        let left = processes.iter().find(|process| process.launched && process.alive);
        hold(left.is_none(), "CO-7", || {
            format!("the process of {:?} is left", left.map(|process| process.worker))
        })
    }
}
