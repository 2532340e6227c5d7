//! All that the coordinator knows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use grampus_core::{Generation, GenerationId, Member as Seat, Rank, RankFailure, TaskId, Time, WorkerId};

/// What a user may set.
#[derive(Clone, Debug)]
pub struct Options {
    /// Members of the job.
    pub size: u32,
    /// True where the driver launches the members; false where they come by themselves.
    pub launches: bool,
    /// How long a process may take from its launch until it joins.
    pub join_within: Duration,
    /// A member of which nothing was heard for so long is given up.
    pub silent_after: Duration,
    /// After a link broke, how long to wait for the launcher to say how the process ended.
    pub exit_report_within: Duration,
    /// How long the ranks of a patient task may take to end by themselves, once one is lost.
    pub leave_within: Duration,
    /// How long a cancelled rank may take to end before its process is ended.
    pub cancel_within: Duration,
    /// The same for one of a patient task: what it trained is lost with its process.
    pub cancel_patient_within: Duration,
    /// How long members may take to leave before their processes are ended.
    pub stop_within: Duration,
    /// How often in a row a slot's process may end before it joins.
    pub start_attempts: u32,
    /// How long an elastic task waits for members that are missing, once it has enough; and a member that came later,
    /// for others that are on their way.
    pub regroup_within: Duration,
    /// After how long the place that an elastic task does without is tried again.
    pub retry_after: Duration,
    /// A mistake to make, for the simulation to find.
    #[cfg(feature = "planted-bugs")]
    pub bug: Option<super::Bug>,
}

impl Options {
    /// The defaults for a job of `size` members that the driver launches.
    pub fn launched(size: u32) -> Self {
        Self {
            size,
            launches: true,
            join_within: Duration::from_secs(60),
            silent_after: Duration::from_secs(3),
            exit_report_within: Duration::from_secs(1),
            leave_within: Duration::from_secs(60),
            cancel_within: Duration::from_millis(500),
            cancel_patient_within: Duration::from_secs(5),
            stop_within: Duration::from_millis(500),
            start_attempts: 3,
            regroup_within: Duration::from_secs(1),
            retry_after: Duration::from_secs(10),
            #[cfg(feature = "planted-bugs")]
            bug: None,
        }
    }

    /// The defaults for a job whose members come by themselves.
    pub fn awaited(size: u32) -> Self {
        Self {
            launches: false,
            ..Self::launched(size)
        }
    }
}

/// What the job is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for members.
    Forming {
        /// Given up then.
        until: Time,
        /// An elastic task begins then with those that are in.
        regroup: Time,
    },
    /// Everybody is in, nothing runs.
    Ready,
    /// A task runs.
    Running,
    /// A rank of a patient task was lost, and the others are about to notice.
    Leaving {
        /// They are told to end then.
        until: Time,
    },
    /// A task is being ended.
    Cancelling {
        /// Processes that still work on it are ended then.
        until: Time,
    },
    /// Members are leaving.
    Stopping {
        /// Processes that are left are ended then.
        until: Time,
        /// They were already ordered to be ended once.
        killed: bool,
    },
    /// Nothing runs any more and nothing will.
    Over,
}

#[derive(Clone, Debug)]
pub(super) enum Status {
    /// Its process was launched.
    Launching { until: Time },
    /// It joined.
    In { heard: Time },
    /// Its link broke; how its process ended is awaited.
    Unlinked { until: Time, why: String },
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub slot: u32,
    /// The user gave it this place, and with it its rank.
    pub fixed: bool,
    pub status: Status,
    /// It leaves once its task has ended.
    pub leaves: bool,
    /// First rank in the newest generation; none where it is not in it.
    pub rank: Option<Rank>,
    pub ranks: u32,
    pub node: bool,
    pub pid: u32,
    pub host: String,
    pub address: String,
    pub ports: Vec<u16>,
    pub card: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(super) struct Submission {
    pub id: TaskId,
    pub world: u32,
    pub least: u32,
    pub restarts: u32,
    pub patient: bool,
}

impl Submission {
    pub fn is_elastic(&self) -> bool {
        self.least < self.world
    }
}

/// One failed rank of the running task.
#[derive(Clone, Debug)]
pub struct Failed {
    /// What and where.
    pub what: RankFailure,
    /// It came after the rank had been told to end.
    pub after_cancel: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Active {
    pub id: TaskId,
    pub patient: bool,
    /// Ranks on which it runs, and those that it wants.
    pub ranks: u32,
    pub wanted: u32,
    /// Members came that it has room for: it is asked to yield then, and once.
    pub grows: Growth,
    pub pending: BTreeSet<WorkerId>,
    pub failures: Vec<Failed>,
    /// The user asked for the end before any rank failed.
    pub cancelled: Option<String>,
}

/// Whether a task takes in members that came after it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// Nobody came.
    None,
    /// It is asked to yield then.
    At(Time),
    /// It was asked.
    Asked,
}

/// The coordinator's state: a value that [`super::step`] takes and returns.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) options: Options,
    pub(super) phase: Phase,
    pub(super) members: BTreeMap<WorkerId, Member>,
    /// Holder of each slot.
    pub(super) slots: Vec<Option<WorkerId>>,
    /// Launches of each slot in a row that ended before joining.
    pub(super) attempts: Vec<u32>,
    /// Processes that were launched and not yet reported gone.
    pub(super) alive: BTreeSet<WorkerId>,
    /// Places that an elastic task does without, and when each is tried again.
    pub(super) left: BTreeMap<u32, Time>,
    /// What the newest task needs at least, where it is elastic.
    pub(super) least: Option<u32>,
    pub(super) next_worker: u64,
    pub(super) generation: Arc<Generation>,
    /// Slots of the newest generation, in order of rank.
    pub(super) order: Vec<u32>,
    /// Members changed since the generation was published.
    pub(super) changed: bool,
    pub(super) active: Option<Active>,
    pub(super) queue: VecDeque<Submission>,
    /// Why the job cannot go on once the task that runs is resolved (CO-10).
    pub(super) hopeless: Option<String>,
    pub(super) last_tick: Time,
    pub(super) why: String,
}

/// One member as `grampus status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MemberView {
    /// Its id.
    pub worker: u64,
    /// Its place; the rank where members carry one rank each.
    pub slot: u32,
    /// Its first rank in the newest generation; none where it is not in it.
    pub rank: Option<u32>,
    /// How many ranks it carries.
    pub ranks: u32,
    /// Its process.
    pub pid: u32,
    /// Its host.
    pub host: String,
    /// `starting`, `in`, or `leaving`.
    pub state: &'static str,
}

impl State {
    /// A coordinator that has not started.
    pub fn new(options: Options) -> Self {
        let size = options.size as usize;
        Self {
            options,
            phase: Phase::Forming {
                until: Time::ZERO,
                regroup: Time::ZERO,
            },
            members: BTreeMap::new(),
            slots: vec![None; size],
            attempts: vec![0; size],
            alive: BTreeSet::new(),
            left: BTreeMap::new(),
            least: None,
            next_worker: 1,
            generation: Arc::new(Generation {
                number: GenerationId(0),
                members: Vec::new(),
            }),
            order: Vec::new(),
            changed: true,
            active: None,
            queue: VecDeque::new(),
            hopeless: None,
            last_tick: Time::ZERO,
            why: "not started".to_owned(),
        }
    }

    /// What the job is doing.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The last sentence of a decision that changed something.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// The newest generation.
    pub fn generation(&self) -> &Arc<Generation> {
        &self.generation
    }

    /// The task that runs or is being ended.
    pub fn task(&self) -> Option<TaskId> {
        self.active.as_ref().map(|active| active.id)
    }

    /// Processes that were launched and have not been reported gone.
    pub fn alive(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.alive.iter().copied()
    }

    /// Every member with its slot, whatever its status; CO-1 is checked on this.
    pub fn seating(&self) -> impl Iterator<Item = (WorkerId, u32)> + '_ {
        self.members.iter().map(|(worker, member)| (*worker, member.slot))
    }

    /// How many members the job is to have.
    pub fn wanted(&self) -> u32 {
        self.options.size
    }

    /// Members as shown to people, by slot.
    pub fn members(&self) -> Vec<MemberView> {
        let mut views: Vec<MemberView> = self
            .members
            .iter()
            .map(|(worker, member)| MemberView {
                worker: worker.0,
                slot: member.slot,
                rank: member.rank.map(|rank| rank.0),
                ranks: member.ranks,
                pid: member.pid,
                host: member.host.clone(),
                state: match member.status {
                    Status::Launching { .. } => "starting",
                    Status::In { .. } => "in",
                    Status::Unlinked { .. } => "leaving",
                },
            })
            .collect();
        views.sort_by_key(|view| view.slot);
        views
    }

    /// When the next tick is due (CO-5); `None` where nothing is awaited.
    ///
    /// That is when the next wait ends, but not long after the last tick: a driver that only slept must not
    /// look like one that was away.
    pub fn deadline(&self) -> Option<Time> {
        if self.phase == Phase::Over {
            return None;
        }
        let look = self.last_tick + self.options.silent_after / 4;
        let phase = match self.phase {
            Phase::Forming { until, regroup } if self.waits_for_more() => Some(until.min(regroup)),
            Phase::Forming { until, .. }
            | Phase::Leaving { until }
            | Phase::Cancelling { until }
            | Phase::Stopping { until, .. } => Some(until),
            Phase::Running => self.active.as_ref().and_then(|active| match active.grows {
                Growth::At(then) => Some(then),
                Growth::None | Growth::Asked => None,
            }),
            Phase::Ready | Phase::Over => None,
        };
        let members = self.members.values().map(|member| match member.status {
            Status::Launching { until } | Status::Unlinked { until, .. } => until,
            Status::In { heard } => heard + self.options.silent_after,
        });
        let left = self.left.values().copied();
        phase.into_iter().chain(members).chain(left).chain([look]).min()
    }

    /// An elastic task has enough members to begin, and waits for others.
    /// How long ranks of the running task may take to end.
    pub(super) fn cancel_within(&self) -> Duration {
        match &self.active {
            Some(active) if active.patient => self.options.cancel_patient_within,
            _ => self.options.cancel_within,
        }
    }

    pub(super) fn waits_for_more(&self) -> bool {
        let next = self.queue.front().filter(|next| next.is_elastic());
        next.is_some_and(|next| self.ranks_in() >= next.least)
    }

    /// Ranks of the members that a new generation would have.
    pub(super) fn ranks_in(&self) -> u32 {
        let members = self.members.values().filter(|member| self.is_seated(member));
        members.map(|member| member.ranks).sum()
    }

    /// How many members a new generation would have.
    pub(super) fn seated(&self) -> usize {
        let members = self.members.values();
        members.filter(|member| self.is_seated(member)).count()
    }

    fn is_seated(&self, member: &Member) -> bool {
        matches!(member.status, Status::In { .. }) && !member.leaves && member.slot < self.options.size
    }

    pub(super) fn everybody_in(&self) -> bool {
        let wanted = self.slots.iter().take(self.options.size as usize);
        wanted.into_iter().all(|slot| {
            slot.and_then(|worker| self.members.get(&worker))
                .is_some_and(|member| self.is_seated(member))
        })
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Stopping { .. } | Phase::Over)
    }

    /// The members of a new generation in order of rank.
    pub(super) fn seats(&self) -> Vec<Seat> {
        let mut rank = 0;
        let holders = self.seat_order();
        let members = holders.iter().filter_map(|slot| self.seated_at(*slot));
        members
            .map(|(worker, member)| {
                let seat = Seat {
                    worker,
                    rank: Rank(rank),
                    ranks: member.ranks,
                    node: member.node,
                    host: member.host.clone(),
                    address: member.address.clone(),
                    card: member.card.clone(),
                };
                rank += member.ranks;
                seat
            })
            .collect()
    }

    /// The slots that a new generation has members in, in order of rank (CO-14).
    pub(super) fn seat_order(&self) -> Vec<u32> {
        let slots = 0..self.slots.len() as u32;
        let slots: Vec<u32> = slots.filter(|slot| self.seated_at(*slot).is_some()).collect();
        let mut before = self.order.clone();
        before.sort_unstable();
        if before == slots {
            // Whoever came has taken the place, and the rank, of a member that was lost.
            return self.order.clone();
        }
        by_host(&slots, |slot| {
            let (_, member) = self.seated_at(slot).filter(|(_, member)| !member.fixed)?;
            Some((member.host.as_str(), member.address.as_str()))
        })
    }

    fn seated_at(&self, slot: u32) -> Option<(WorkerId, &Member)> {
        let worker = self.slots.get(slot as usize).copied().flatten()?;
        let member = self.members.get(&worker)?;
        self.is_seated(member).then_some((worker, member))
    }

    /// The rank that the newest generation gave to a slot whose members carry one rank each; the slot itself where it is not in one.
    pub fn rank_at(&self, slot: u32) -> u32 {
        let rank = self.order.iter().position(|other| *other == slot);
        rank.map_or(slot, |rank| rank as u32)
    }

    /// First rank of a member in the newest generation; its slot where it is not in one.
    pub(super) fn rank_of(&self, worker: WorkerId) -> Rank {
        let member = self.members.get(&worker);
        member.map_or(Rank(0), |member| member.rank.unwrap_or(Rank(member.slot)))
    }
}

/// Slots in an order in which those of a host stand together, hosts as they come first; slots without one stay where they are.
fn by_host<H: PartialEq>(slots: &[u32], host: impl Fn(u32) -> Option<H>) -> Vec<u32> {
    let mut hosts: Vec<H> = Vec::new();
    let mut movable: Vec<(usize, u32)> = Vec::new();
    for slot in slots {
        let Some(own) = host(*slot) else { continue };
        let known = hosts.iter().position(|other| *other == own);
        let place = known.unwrap_or_else(|| {
            hosts.push(own);
            hosts.len() - 1
        });
        movable.push((place, *slot));
    }
    movable.sort_unstable();
    let mut sorted = movable.into_iter();
    let place = |slot: &u32| match host(*slot) {
        Some(_) => sorted.next().map_or(*slot, |(_, other)| other),
        None => *slot,
    };
    slots.iter().map(place).collect()
}
