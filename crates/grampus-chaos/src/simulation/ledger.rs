//! The simulator's own books: what was asked, sent, said and ended, kept apart from the coordinator's state.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use grampus_cluster::coordinator::{Action, Input, Options, Phase, Step, Transition};
use grampus_core::{GenerationId, Member, Outcome, TaskId, Time, ToWorker, WorkerId};

use super::report::{Violation, hold};
use super::schedule::Schedule;

/// A rank that failed, as far as the coordinator could know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fact {
    pub worker: WorkerId,
    /// It failed by itself: it died, was lost, or raised without blaming another.
    pub own: bool,
}

/// One task as the simulator saw it.
#[derive(Debug)]
pub(super) struct Record {
    /// Its place in the order of submissions.
    pub number: usize,
    pub due: Time,
    /// How long the driver had been away when it was submitted.
    pub away: Duration,
    pub world: u32,
    /// It can do with so many ranks.
    pub least: u32,
    /// Ranks to which it was sent.
    pub sent: u32,
    /// It was asked to yield.
    pub yields: bool,
    /// Its ranks find out by themselves that one is lost.
    pub patient: bool,
    pub generation: Option<GenerationId>,
    /// Where it was sent.
    pub seats: Vec<Member>,
    pub pending: BTreeSet<WorkerId>,
    pub finished: BTreeSet<WorkerId>,
    /// Who was told to end it.
    pub told: BTreeSet<WorkerId>,
    pub facts: Vec<Fact>,
    /// The user's wish to end it was heard.
    pub cancelled: bool,
    /// A member ended it without being told.
    pub unasked: bool,
    /// A member failed by itself, and lives.
    pub raised: bool,
    pub resolved: bool,
}

/// Where an input came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Join,
    Word,
    LinkLost,
    Exited,
    LaunchFailed,
    Call,
    Tick,
}

/// What the ledger remembers of an input while the coordinator decides.
pub(super) struct Seen {
    pub kind: Kind,
    pub from: Option<WorkerId>,
    /// The sender was a member.
    pub member: bool,
    /// The sender was launched and had not joined yet.
    pub starting: bool,
    pub task: Option<TaskId>,
}

/// A phase that has to end, since when, and how long the driver had been away then.
pub(super) struct Stage {
    pub name: &'static str,
    pub since: Time,
    pub away: Duration,
}

pub(super) struct Ledger {
    pub options: Options,
    pub calm: bool,
    pub slack: Duration,
    /// The longest that one task may hold up the next.
    pub round: Duration,
    pub tasks: BTreeMap<TaskId, Record>,
    pub active: Option<TaskId>,
    /// How many ranks the process carries that asked to join last.
    newcomer: u32,
    /// The task that was sent in the last step.
    news: Option<TaskId>,
    /// Members and their slots after the last step.
    pub members: Vec<(WorkerId, u32)>,
    /// Members whose link is not known to be broken.
    pub linked: BTreeSet<WorkerId>,
    pub unlinked: BTreeSet<WorkerId>,
    /// Members that said that they leave, or were sent home.
    pub leaving: BTreeSet<WorkerId>,
    /// How many ranks each member carries.
    pub ranks: BTreeMap<WorkerId, u32>,
    /// The last generation that each member was told.
    pub generations: BTreeMap<WorkerId, GenerationId>,
    pub generation: GenerationId,
    /// Processes that were launched, and for which slot.
    pub launched: BTreeMap<WorkerId, u32>,
    /// Launches of each slot in a row that ended before they joined.
    pub failed_starts: Vec<u32>,
    /// A place was given up while a task ran.
    pub hopeless: bool,
    /// Places that an elastic task does without.
    pub empty: BTreeSet<u32>,
    /// The most places that the job has had: those that are not wanted any more may be held for a while.
    pub most: u32,
    /// Since when an elastic task could begin, or could have more ranks, and how long the driver had been away then.
    pub waits: Option<(Time, Duration)>,
    pub grows: Option<(Time, Duration)>,
    /// Exits and failed launches that the launcher reported.
    pub reported: BTreeSet<WorkerId>,
    pub killed: BTreeSet<WorkerId>,
    pub away: Duration,
    pub stage: Stage,
}

impl Ledger {
    pub fn new(schedule: &Schedule) -> Self {
        let options = schedule.options.clone();
        let slack = schedule.slack();
        let cancel = options.cancel_within.max(options.cancel_patient_within);
        let wait = options.join_within + options.silent_after + options.exit_report_within;
        Self {
            calm: schedule.calm,
            slack,
            round: wait + schedule.patience + options.leave_within + cancel + slack * 4,
            tasks: BTreeMap::new(),
            active: None,
            newcomer: 0,
            news: None,
            members: Vec::new(),
            linked: BTreeSet::new(),
            unlinked: BTreeSet::new(),
            leaving: BTreeSet::new(),
            ranks: BTreeMap::new(),
            generations: BTreeMap::new(),
            generation: GenerationId(0),
            launched: BTreeMap::new(),
            failed_starts: vec![0; options.size as usize],
            hopeless: false,
            empty: BTreeSet::new(),
            most: options.size,
            waits: None,
            grows: None,
            reported: BTreeSet::new(),
            killed: BTreeSet::new(),
            away: Duration::ZERO,
            stage: Stage {
                name: "forming",
                since: Time::ZERO,
                away: Duration::ZERO,
            },
            options,
        }
    }

    /// The driver will not look at anything for so long.
    pub fn away(&mut self, length: Duration) {
        self.away += length;
    }

    /// True where the task was sent in the last step for the first time; asking ends that.
    pub fn is_news(&mut self, task: TaskId) -> bool {
        self.news.take_if(|news| *news == task).is_some()
    }

    /// Books an input before the coordinator sees it.
    pub fn note(&mut self, now: Time, input: &Input) -> Seen {
        let (kind, from, task) = self.note_words(now, input);
        if let Some(worker) = from {
            match kind {
                Kind::LinkLost if self.linked.remove(&worker) => {
                    self.unlinked.insert(worker);
                }
                Kind::Exited | Kind::LaunchFailed => {
                    if self.linked.remove(&worker) {
                        self.unlinked.insert(worker);
                    }
                    self.reported.insert(worker);
                }
                _ => {}
            }
        }
        let member = from.is_some_and(|worker| self.is_member(worker));
        let starting = from.is_some_and(|worker| self.is_starting(worker));
        if let Some(worker) = from
            && starting
        {
            self.note_start(worker, kind);
        }
        Seen {
            kind,
            from,
            member,
            starting,
            task,
        }
    }

    /// What an input is, who it is from, and the task that it is about; what it says of itself is booked.
    fn note_words(&mut self, now: Time, input: &Input) -> (Kind, Option<WorkerId>, Option<TaskId>) {
        match input {
            Input::Joined(join) => {
                self.newcomer = join.ranks;
                (Kind::Join, Some(join.worker), None)
            }
            Input::Heard(worker) => (Kind::Word, Some(*worker), None),
            Input::Finished {
                worker,
                task,
                outcome,
                ..
            } => {
                self.note_finished(*worker, *task, outcome);
                (Kind::Word, Some(*worker), Some(*task))
            }
            Input::Leaves(worker) => {
                self.leaving.insert(*worker);
                (Kind::Word, Some(*worker), None)
            }
            Input::LinkLost { worker, .. } => (Kind::LinkLost, Some(*worker), None),
            Input::Exited { worker, .. } => (Kind::Exited, Some(*worker), None),
            Input::LaunchFailed { worker, .. } => (Kind::LaunchFailed, Some(*worker), None),
            Input::Submit {
                task,
                world,
                least,
                patient,
                ..
            } => {
                self.note_submit(now, *task, *world, *least, *patient);
                (Kind::Call, None, Some(*task))
            }
            Input::Cancel { task, .. } | Input::Yield { task, .. } => (Kind::Call, None, Some(*task)),
            Input::Start | Input::Stop { .. } | Input::Resize { .. } => (Kind::Call, None, None),
            Input::Tick => (Kind::Tick, None, None),
        }
    }

    /// Launched, and neither joined nor ended.
    fn is_starting(&self, worker: WorkerId) -> bool {
        let joined = self.linked.contains(&worker) || self.unlinked.contains(&worker);
        self.launched.contains_key(&worker) && self.is_member(worker) && !joined
    }

    fn note_start(&mut self, worker: WorkerId, kind: Kind) {
        let slot = self.launched.get(&worker).copied().unwrap_or_default();
        let Some(count) = self.failed_starts.get_mut(slot as usize) else {
            return;
        };
        match kind {
            Kind::Join => *count = 0,
            Kind::Exited => *count += 1,
            // The launcher said why; asking again changes nothing.
            Kind::LaunchFailed => *count = self.options.start_attempts,
            _ => {}
        }
    }

    pub fn is_member(&self, worker: WorkerId) -> bool {
        self.members.iter().any(|(member, _)| *member == worker)
    }

    /// How long ranks of a task may take to end once they are told to.
    pub(super) fn cancel_within(&self, task: TaskId) -> Duration {
        match self.tasks.get(&task) {
            Some(record) if record.patient => self.options.cancel_patient_within,
            _ => self.options.cancel_within,
        }
    }

    fn note_submit(&mut self, now: Time, task: TaskId, world: u32, least: u32, patient: bool) {
        let ahead = self.tasks.values().filter(|record| !record.resolved).count();
        let record = Record {
            number: self.tasks.len(),
            due: now + self.round * (ahead as u32 + 2),
            away: self.away,
            world,
            least,
            sent: 0,
            yields: false,
            patient,
            generation: None,
            seats: Vec::new(),
            pending: BTreeSet::new(),
            finished: BTreeSet::new(),
            told: BTreeSet::new(),
            facts: Vec::new(),
            cancelled: false,
            unasked: false,
            raised: false,
            resolved: false,
        };
        self.tasks.insert(task, record);
    }

    fn note_finished(&mut self, worker: WorkerId, task: TaskId, outcome: &Outcome) {
        let linked = self.linked.contains(&worker) && self.active == Some(task);
        let Some(record) = self.tasks.get_mut(&task).filter(|_| linked) else {
            return;
        };
        if !record.pending.remove(&worker) {
            return;
        }
        match outcome {
            Outcome::Ok => {
                record.finished.insert(worker);
            }
            Outcome::Cancelled => record.unasked |= !record.told.contains(&worker),
            Outcome::Failed { failure, .. } => {
                record.raised |= !failure.is_consequence();
                record.facts.push(Fact {
                    worker,
                    own: !failure.is_consequence(),
                });
            }
        }
    }

    /// Books what a step did, and checks it.
    pub fn check(&mut self, now: Time, seen: &Seen, step: &Step) -> Result<(), Violation> {
        self.check_ignored(seen, step)?;
        self.check_calm(step)?;
        if let (Kind::Join, Some(worker)) = (seen.kind, seen.from)
            && !step
                .actions
                .iter()
                .any(|action| matches!(action, Action::Refuse(..)))
        {
            self.linked.insert(worker);
            self.unlinked.remove(&worker);
            self.leaving.remove(&worker);
            self.ranks.insert(worker, self.newcomer);
            self.generations.remove(&worker);
        }
        if let Transition::CancelStarted | Transition::CancelQueued = step.transition
            && let Some(record) = seen.task.and_then(|task| self.tasks.get_mut(&task))
        {
            record.cancelled = true;
        }
        self.book_size(now, seen, step);
        self.check_members(seen, step)?;
        self.check_generation(&step.state)?;
        for action in &step.actions {
            self.check_action(action, step)?;
        }
        self.check_sent(step)?;
        self.check_filled(seen, step)?;
        self.check_elastic(now, &step.state)?;
        self.check_phase(now, &step.state)
    }

    fn check_action(&mut self, action: &Action, step: &Step) -> Result<(), Violation> {
        match action {
            Action::Launch { worker, slot } => self.check_launch(*worker, *slot),
            Action::Kill(worker) => {
                self.killed.insert(*worker);
                self.linked.remove(worker);
                Ok(())
            }
            Action::Send(worker, message) => {
                self.check_send(*worker)?;
                self.book_send(*worker, message, step)
            }
            Action::Refuse(..) => Ok(()),
            Action::Resolve(task, end) => self.check_end(*task, end, step),
        }
    }

    fn book_send(&mut self, worker: WorkerId, message: &ToWorker, step: &Step) -> Result<(), Violation> {
        match message {
            ToWorker::Generation(generation) => self.check_told(worker, generation.number),
            ToWorker::Task(task) => {
                let seats = &step.state.generation().members;
                if let Some(record) = self.tasks.get_mut(&task.id) {
                    if record.generation.is_none() {
                        record.generation = Some(task.generation);
                        record.sent = task.world;
                        let within = seats.iter().filter(|seat| seat.rank.0 < task.world);
                        record.seats = within.cloned().collect();
                        self.active = Some(task.id);
                        self.news = Some(task.id);
                    }
                    record.pending.insert(worker);
                }
                self.check_task(worker, task)
            }
            ToWorker::Cancel { task, .. } => {
                let Some(record) = self.tasks.get_mut(task) else {
                    return Ok(());
                };
                record.told.insert(worker);
                let may = !record.patient
                    || record.cancelled
                    || record.unasked
                    || record.raised
                    || step.transition == Transition::LeaveTooLate;
                hold(may, "CO-12", || {
                    format!("{worker} is told to end task {task}, whose ranks find out by themselves")
                })
            }
            ToWorker::Yield { task, .. } => {
                let record = self.tasks.get_mut(task);
                let patient = record.is_some_and(|record| {
                    record.yields = true;
                    record.patient
                });
                hold(patient, "CO-12", || {
                    format!("{worker} is asked to yield task {task}, which is not patient")
                })
            }
            ToWorker::Stop { .. } => {
                self.leaving.insert(worker);
                Ok(())
            }
            ToWorker::Lost { .. } | ToWorker::Inspect { .. } | ToWorker::Heartbeat => Ok(()),
        }
    }

    /// Books who is not a member any more, and which of them failed the running task by that.
    pub fn book_gone(&mut self, gone: &[WorkerId], seen: &Seen, transition: Transition) {
        let Some(record) = self.active.and_then(|task| self.tasks.get_mut(&task)) else {
            return;
        };
        for worker in gone {
            if !record.pending.contains(worker) {
                continue;
            }
            let reported = matches!(seen.kind, Kind::Exited | Kind::LinkLost) && seen.from == Some(*worker);
            let lost = match transition {
                Transition::Silent | Transition::ExitUnreported => true,
                // Who only did not obey has not failed.
                Transition::CancelTooLate => {
                    record.pending.remove(worker);
                    self.unlinked.contains(worker)
                }
                _ => reported,
            };
            if lost {
                record.pending.remove(worker);
                record.facts.push(Fact {
                    worker: *worker,
                    own: true,
                });
            }
        }
    }

    pub fn is_over(phase: &Phase) -> bool {
        matches!(phase, Phase::Stopping { .. } | Phase::Over)
    }
}
