//! CO-13: tasks that can do with fewer ranks, and jobs whose size changes.

use std::time::Duration;

use grampus_cluster::coordinator::{Action, Phase, State, Step, Transition};
use grampus_core::Time;

use super::ledger::{Ledger, Seen};
use super::report::{Violation, hold};

impl Ledger {
    /// Books how many places there are, and which of them stay empty for a while.
    pub(super) fn book_size(&mut self, now: Time, seen: &Seen, step: &Step) {
        let size = step.state.wanted();
        self.options.size = size;
        self.most = self.most.max(size);
        self.failed_starts.resize(self.most as usize, 0);
        self.empty.retain(|slot| *slot < size);
        match step.transition {
            Transition::WaitsOn => {
                self.stage.since = now;
                self.stage.away = self.away;
            }
            Transition::Grew => {
                self.stage.since = now;
                self.stage.away = self.away;
                self.waits = None;
                for slot in launched(step) {
                    self.failed_starts[slot as usize] = 0;
                }
            }
            // Those that are left to hear of it may be about to go themselves.
            Transition::GrowthAsked => {
                let running = self.active.and_then(|task| self.tasks.get_mut(&task));
                if let Some(record) = running {
                    record.yields = true;
                }
            }
            Transition::PlaceLeft => {
                let slot = seen.from.and_then(|worker| self.launched.get(&worker).copied());
                let late = self
                    .members
                    .iter()
                    .find(|(worker, _)| !step.state.seating().any(|(member, _)| member == *worker));
                self.empty.extend(slot.or(late.map(|(_, slot)| *slot)));
            }
            Transition::PlaceTried => {
                for slot in launched(step) {
                    self.empty.remove(&slot);
                    self.failed_starts[slot as usize] = self.options.start_attempts - 1;
                }
            }
            _ => {}
        }
    }

    /// Ranks of the members that can take part in the next task.
    fn ranks_there(&self) -> u32 {
        let wanted = self.members.iter().filter(|(_, slot)| *slot < self.options.size);
        let there =
            wanted.filter(|(worker, _)| self.linked.contains(worker) && !self.leaving.contains(worker));
        there.filter_map(|(worker, _)| self.ranks.get(worker)).sum()
    }

    /// An elastic task that has enough does not wait for more, and one that could have more is asked to yield.
    pub(super) fn check_elastic(&mut self, now: Time, state: &State) -> Result<(), Violation> {
        let there = self.ranks_there();
        let open = self.tasks.values().filter(|record| !record.resolved);
        let first = open.min_by_key(|record| record.number);
        let waiting = first.filter(|record| record.generation.is_none() && record.least < record.world);
        let could_begin = matches!(state.phase(), Phase::Forming { .. })
            && waiting.is_some_and(|record| there >= record.least);
        let running = self.active.and_then(|task| self.tasks.get(&task));
        let could_grow = *state.phase() == Phase::Running
            && running.is_some_and(|record| {
                record.patient && !record.yields && record.sent < record.world.min(there)
            });
        self.waits = since(self.waits, could_begin, now, self.away);
        self.grows = since(self.grows, could_grow, now, self.away);
        let most = self.options.regroup_within + self.slack;
        for (what, since) in [("begins", self.waits), ("grows", self.grows)] {
            let late = since.filter(|(since, away)| now > *since + most + (self.away - *away) * 2);
            hold(late.is_none(), "CO-13", || {
                format!("since {late:?} nothing {what}, {there} ranks are in")
            })?;
        }
        Ok(())
    }
}

fn launched(step: &Step) -> impl Iterator<Item = u32> + '_ {
    step.actions.iter().filter_map(|action| match action {
        Action::Launch { slot, .. } => Some(*slot),
        _ => None,
    })
}

fn since(
    before: Option<(Time, Duration)>,
    holds: bool,
    now: Time,
    away: Duration,
) -> Option<(Time, Duration)> {
    holds.then(|| before.unwrap_or((now, away)))
}
