//! One task at a time: sent to every rank, ended everywhere when one fails, resolved once.

use std::collections::BTreeSet;
use std::sync::Arc as Shared;

use grampus_core::{Outcome, Rank, RankFailure, Task, TaskFailure, TaskId, Time, ToWorker, WorkerId};

use super::bug::{Bug, planted};
use super::state::{Active, Failed, Growth, Phase, State, Status, Submission};
use super::{Action, Arc, Transition, elastic, first_cause, membership, seconds};

pub(super) fn submit(now: Time, state: &mut State, asked: Submission, actions: &mut Vec<Action>) -> Arc {
    let Submission { id, world, .. } = asked;
    if state.is_over() {
        let why = format!("the cluster is not running: {}", state.why);
        actions.push(Action::Resolve(
            id,
            Err(TaskFailure::Cluster { why: why.clone() }),
        ));
        return (Transition::TaskRefused, why);
    }
    state.least = asked.is_elastic().then_some(asked.least);
    state.queue.push_back(asked);
    match state.phase {
        Phase::Ready => start_next(state, actions),
        _ => drop(elastic::form_if_possible(now, state, actions)),
    }
    if let Some(active) = state.active.as_ref().filter(|active| active.id == id) {
        let ranks = active.ranks;
        return (
            Transition::TaskStarted,
            format!("task {id} runs on {ranks} ranks"),
        );
    }
    match state.queue.iter().any(|waiting| waiting.id == id) {
        true => (Transition::TaskQueued, format!("task {id} waits: {}", state.why)),
        false => (
            Transition::TaskRefused,
            format!("task {id} asks for {world} ranks, which the cluster does not have"),
        ),
    }
}

/// Sends the oldest waiting task, if the job is ready for one.
pub(super) fn start_next(state: &mut State, actions: &mut Vec<Action>) {
    while state.phase == Phase::Ready
        && let Some(asked) = state.queue.pop_front()
    {
        let id = asked.id;
        let ranks: u32 = state.generation.members.iter().map(|seat| seat.ranks).sum();
        let world = match asked.is_elastic() {
            true => asked.world.min(ranks),
            false => asked.world,
        };
        let too_few = ranks < asked.least && !planted(state, Bug::TooFew);
        if world == 0 || world > ranks || too_few {
            let least = asked.least;
            let why = format!("a task on {least} ranks was asked for, the cluster has {ranks}");
            actions.push(Action::Resolve(id, Err(TaskFailure::Cluster { why })));
            continue;
        }
        let seats = state.generation.members.iter().filter(|seat| seat.rank.0 < world);
        let pending: BTreeSet<WorkerId> = seats.map(|seat| seat.worker).collect();
        let ports: Shared<[u16]> = ports_of(state, world).into();
        let task = Task {
            id,
            generation: state.generation.number,
            world,
            restarts: asked.restarts,
            ports,
        };
        actions.extend(
            pending
                .iter()
                .map(|worker| Action::Send(*worker, ToWorker::Task(task.clone()))),
        );
        state.active = Some(Active {
            id,
            patient: asked.patient,
            ranks: world,
            wanted: asked.world,
            grows: Growth::None,
            pending,
            failures: Vec::new(),
            cancelled: None,
        });
        state.phase = Phase::Running;
    }
}

/// The ports of the world's ranks, in order of rank.
fn ports_of(state: &State, world: u32) -> Vec<u16> {
    let seats = state.generation.members.iter();
    seats
        .flat_map(|seat| {
            let ports = state
                .members
                .get(&seat.worker)
                .map(|member| member.ports.as_slice())
                .unwrap_or_default();
            (0..seat.ranks as usize).map(|local| ports.get(local).copied().unwrap_or(0))
        })
        .take(world as usize)
        .collect()
}

pub(super) fn finished(
    now: Time,
    state: &mut State,
    worker: WorkerId,
    id: TaskId,
    outcome: Outcome,
    ports: Vec<u16>,
    actions: &mut Vec<Action>,
) -> Arc {
    let Some(member) = state
        .members
        .get_mut(&worker)
        .filter(|member| matches!(member.status, Status::In { .. }))
    else {
        return (
            Transition::FinishedStale,
            format!("{worker} is not a member, its end of task {id} is ignored"),
        );
    };
    member.status = Status::In { heard: now };
    member.ports = ports;
    let stale_counts = planted(state, Bug::StaleCounts);
    let active = state
        .active
        .as_mut()
        .filter(|active| active.id == id || stale_counts);
    if !active.is_some_and(|active| active.pending.remove(&worker)) {
        return (
            Transition::FinishedStale,
            format!("task {id} is over, its end on {worker} is ignored"),
        );
    }
    let until = now + state.options.exit_report_within;
    let size = state.options.size;
    match state.members.get_mut(&worker) {
        Some(member) if member.slot >= size => elastic::dismiss(now, state, worker, actions),
        Some(member) if member.leaves => member.status = membership::left(until),
        _ => {}
    }
    part_ended(now, state, worker, id, outcome, actions)
}

/// One member of the running task has no part in it any more.
fn part_ended(
    now: Time,
    state: &mut State,
    worker: WorkerId,
    id: TaskId,
    outcome: Outcome,
    actions: &mut Vec<Action>,
) -> Arc {
    let rank = state.rank_of(worker);
    match outcome {
        Outcome::Ok if settle(now, state, actions) => {
            (Transition::TaskSucceeded, format!("task {id} is done"))
        }
        Outcome::Ok => (
            Transition::RankFinished,
            format!("rank {rank} finished task {id}"),
        ),
        Outcome::Cancelled => {
            let why = ended_as_told(now, state, rank, actions);
            settle(now, state, actions);
            (Transition::RankCancelled, why)
        }
        Outcome::Failed {
            local,
            pid: own,
            failure,
        } => {
            let member = state.members.get(&worker);
            let what = RankFailure {
                rank: Rank(rank.0 + local),
                host: member.map_or_else(String::new, |member| member.host.clone()),
                pid: own.or(member.map(|member| member.pid)).unwrap_or(0),
                failure,
            };
            let why = what.to_string();
            let first = state.phase == Phase::Running;
            let after_cancel = matches!(state.phase, Phase::Cancelling { .. });
            rank_failed(now, state, Failed { what, after_cancel }, actions);
            let transition = match first {
                true if matches!(state.phase, Phase::Leaving { .. }) => Transition::RanksLeave,
                true => Transition::RankFailedFirst,
                false => Transition::RankFailedLater,
            };
            (transition, why)
        }
    }
}

/// A rank that says it was cancelled has not finished its part; where nobody told it to end, the whole task
/// ends for it (CO-4).
fn ended_as_told(now: Time, state: &mut State, rank: Rank, actions: &mut Vec<Action>) -> String {
    if !matches!(state.phase, Phase::Running | Phase::Leaving { .. }) {
        return format!("rank {rank} ended the task as told");
    }
    let why = format!("rank {rank} ended the task without being told to");
    if let Some(active) = &mut state.active
        && active.failures.is_empty()
    {
        active.cancelled = Some(why.clone());
    }
    cancel_pending(now, state, &why, actions);
    why
}

/// A rank of the running task failed: end the others, or let them end, and resolve once none is left.
pub(super) fn rank_failed(now: Time, state: &mut State, failed: Failed, actions: &mut Vec<Action>) {
    let rank = failed.what.rank;
    let is_loss = failed.what.failure.is_loss();
    let lost = is_loss || failed.what.failure.is_consequence();
    if let Some(active) = &mut state.active {
        active.failures.push(failed);
        if planted(state, Bug::ResolveTwice) {
            resolve_copy(state, actions);
        }
    }
    let patient = lost && state.active.as_ref().is_some_and(|active| active.patient);
    match state.phase {
        Phase::Running if patient && !planted(state, Bug::Impatient) => {
            state.phase = Phase::Leaving {
                until: leaving_deadline(now, state),
            };
        }
        Phase::Leaving { .. } if lost => {}
        Phase::Running | Phase::Leaving { .. } => {
            cancel_pending(now, state, &format!("rank {rank} failed"), actions);
        }
        _ => {}
    }
    // Whoever has only ended its part has done all that the others need of it.
    if is_loss && matches!(state.phase, Phase::Leaving { .. }) {
        tell_of_loss(state, rank, actions);
    }
    settle(now, state, actions);
}

/// Whoever waits for a lost rank to come, as groups that are being formed do, waits in vain.
fn tell_of_loss(state: &State, rank: Rank, actions: &mut Vec<Action>) {
    let Some(task) = state.task() else { return };
    let message = ToWorker::Lost { task, rank };
    actions.extend(linked(state).map(|worker| Action::Send(worker, message.clone())));
}

/// The members that work on the task and can be told something.
fn linked(state: &State) -> impl Iterator<Item = WorkerId> + '_ {
    let pending = state.active.iter().flat_map(|active| &active.pending);
    pending.copied().filter(|worker| {
        let member = state.members.get(worker);
        member.is_some_and(|member| matches!(member.status, Status::In { .. }))
    })
}

pub(super) fn leaving_deadline(now: Time, state: &State) -> Time {
    match planted(state, Bug::LeaveForEver) {
        true => now + membership::seconds_of_a_century(),
        false => now + state.options.leave_within,
    }
}

/// Ranks that should have noticed the loss of another are told to end.
pub(super) fn leave_too_late(now: Time, state: &mut State, actions: &mut Vec<Action>) -> Arc {
    let within = seconds(state.options.leave_within);
    let why = format!("a rank was lost, and others did not end by themselves within {within}");
    cancel_pending(now, state, &why, actions);
    (Transition::LeaveTooLate, why)
}

fn resolve_copy(state: &State, actions: &mut Vec<Action>) {
    if let Some(active) = &state.active {
        actions.push(Action::Resolve(active.id, end_of(active)));
    }
}

fn cancel_pending(now: Time, state: &mut State, why: &str, actions: &mut Vec<Action>) {
    state.phase = Phase::Cancelling {
        until: now + state.cancel_within(),
    };
    if let Some(task) = state.task() {
        let why = why.to_owned();
        let message = ToWorker::Cancel { task, why };
        actions.extend(linked(state).map(|worker| Action::Send(worker, message.clone())));
    }
}

/// Resolves the task if no rank works on it any more, and goes on; true where it succeeded.
pub(super) fn settle(now: Time, state: &mut State, actions: &mut Vec<Action>) -> bool {
    let Some(active) = state.active.take_if(|active| active.pending.is_empty()) else {
        return false;
    };
    let end = end_of(&active);
    let succeeded = end.is_ok();
    actions.push(Action::Resolve(active.id, end));
    if let Some(why) = state.hopeless.take() {
        give_up(now, state, why, actions);
    } else {
        state.phase = membership::forming(now, state);
        elastic::form_if_possible(now, state, actions);
    }
    succeeded
}

fn end_of(active: &Active) -> Result<(), TaskFailure> {
    if let Some(why) = &active.cancelled {
        return Err(TaskFailure::Cancelled { why: why.clone() });
    }
    let Some((index, _)) = first_cause(&active.failures) else {
        return Ok(());
    };
    let first = Box::new(active.failures[index].what.clone());
    let folded = active
        .failures
        .iter()
        .map(|failed| failed.what.rank)
        .filter(|rank| *rank != first.rank)
        .collect();
    Err(TaskFailure::Rank { first, folded })
}

pub(super) fn cancel(
    now: Time,
    state: &mut State,
    id: TaskId,
    why: String,
    actions: &mut Vec<Action>,
) -> Arc {
    if let Some(place) = state.queue.iter().position(|waiting| waiting.id == id) {
        state.queue.remove(place);
        actions.push(Action::Resolve(id, Err(TaskFailure::Cancelled { why })));
        return (
            Transition::CancelQueued,
            format!("task {id} was cancelled before it began"),
        );
    }
    match &mut state.active {
        Some(active) if active.id == id && matches!(state.phase, Phase::Running | Phase::Leaving { .. }) => {
            active.cancelled = Some(why.clone());
            cancel_pending(now, state, &why, actions);
            (
                Transition::CancelStarted,
                format!("task {id} is being cancelled: {why}"),
            )
        }
        _ => (Transition::CancelIgnored, format!("task {id} does not run")),
    }
}

/// Tells the ranks of a patient task to end where it can go on later; when they do, is up to them.
pub(super) fn ask_to_yield(state: &State, id: TaskId, save: bool, actions: &mut Vec<Action>) -> Arc {
    let active = state.active.as_ref();
    if !active.is_some_and(|active| active.id == id && active.patient) || state.phase != Phase::Running {
        return (
            Transition::YieldIgnored,
            format!("task {id} cannot be asked to yield"),
        );
    }
    let message = ToWorker::Yield { task: id, save };
    actions.extend(linked(state).map(|worker| Action::Send(worker, message.clone())));
    (Transition::YieldAsked, format!("task {id} is asked to yield"))
}

pub(super) fn stop(now: Time, state: &mut State, why: String, actions: &mut Vec<Action>) -> Arc {
    if state.is_over() {
        return (Transition::StopIgnored, "the job is over already".to_owned());
    }
    give_up(now, state, why.clone(), actions);
    (Transition::StopStarted, why)
}

/// A place cannot be filled: what runs may end first, whatever waits cannot begin (CO-10).
pub(super) fn give_up_after_task(now: Time, state: &mut State, why: String, actions: &mut Vec<Action>) {
    if state.active.is_some() {
        state.hopeless.get_or_insert(why);
    } else {
        give_up(now, state, why, actions);
    }
}

/// Resolves all that waits, and sends everybody home.
pub(super) fn give_up(now: Time, state: &mut State, why: String, actions: &mut Vec<Action>) {
    let over = || TaskFailure::Cluster { why: why.clone() };
    // A rank that failed before is still the cause (CO-8).
    let active = state.active.take();
    actions.extend(active.map(|active| {
        let end = end_of(&active).err().unwrap_or_else(over);
        Action::Resolve(active.id, Err(end))
    }));
    let waiting = state.queue.drain(..);
    actions.extend(waiting.map(|waiting| Action::Resolve(waiting.id, Err(over()))));
    let linked = state
        .members
        .iter()
        .filter(|(_, member)| matches!(member.status, Status::In { .. }));
    actions.extend(linked.map(|(worker, _)| Action::Send(*worker, ToWorker::Stop { why: why.clone() })));
    // A process that never joined has nobody to listen to the request.
    let deaf = state
        .members
        .iter()
        .filter(|(_, member)| !matches!(member.status, Status::In { .. }));
    actions.extend(
        deaf.filter(|(worker, _)| state.alive.contains(worker))
            .map(|(worker, _)| Action::Kill(*worker)),
    );
    state.members.clear();
    state.left.clear();
    state.slots.fill(None);
    let nothing_left = state.alive.is_empty();
    state.phase = match nothing_left {
        true => Phase::Over,
        false => Phase::Stopping {
            until: now + state.options.stop_within,
            killed: false,
        },
    };
    state.why = why;
}

/// The job is over once the last process is gone.
pub(super) fn stopped_if_empty(state: &mut State, why: String) -> Arc {
    if state.alive.is_empty() {
        state.phase = Phase::Over;
        return (Transition::Stopped, state.why.clone());
    }
    (Transition::ProcessGone, why)
}
