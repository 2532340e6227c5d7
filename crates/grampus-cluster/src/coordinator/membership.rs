//! Who comes and who goes.

use std::sync::Arc as Shared;

use grampus_core::{
    Exit, Failure, Generation, GenerationId, Join, Rank, RankFailure, Time, ToWorker, WorkerId,
};

use super::bug::{Bug, planted};
use super::state::{Failed, Member, Phase, State, Status};
use super::{Action, Arc, Transition, elastic, seconds, task};

pub(super) fn start(now: Time, state: &mut State, actions: &mut Vec<Action>) -> Arc {
    state.phase = forming(now, state);
    state.last_tick = now;
    if state.options.launches {
        for slot in 0..state.options.size {
            launch(now, state, slot, actions);
        }
    }
    (
        Transition::Started,
        format!("waiting for {} members", state.options.size),
    )
}

pub(super) fn launch(now: Time, state: &mut State, slot: u32, actions: &mut Vec<Action>) {
    let worker = WorkerId(state.next_worker);
    state.next_worker += 1;
    let status = Status::Launching {
        until: now + state.options.join_within,
    };
    state.members.insert(
        worker,
        Member {
            slot,
            fixed: false,
            status,
            leaves: false,
            rank: None,
            ranks: 1,
            node: false,
            pid: 0,
            host: String::new(),
            address: String::new(),
            ports: Vec::new(),
            card: Vec::new(),
        },
    );
    state.slots[slot as usize] = Some(worker);
    state.alive.insert(worker);
    actions.push(Action::Launch { worker, slot });
}

pub(super) fn join(now: Time, state: &mut State, join: Join, actions: &mut Vec<Action>) -> Arc {
    let worker = join.worker;
    let (slot, arc) = if state.is_over() {
        (None, (Transition::RefusedOver, "the job is over".to_owned()))
    } else if state.options.launches {
        launched_slot(state, worker)
    } else {
        free_slot(state, &join)
    };
    let Some(slot) = slot else {
        actions.push(Action::Refuse(worker, arc.1.clone()));
        return (arc.0, format!("refused {worker} from {}: {}", join.host, arc.1));
    };
    state.slots[slot as usize] = Some(worker);
    state.attempts[slot as usize] = 0;
    state.changed = true;
    state.members.insert(
        worker,
        Member {
            slot,
            fixed: !state.options.launches && join.slot.is_some(),
            status: Status::In { heard: now },
            leaves: false,
            rank: None,
            ranks: join.ranks,
            node: join.node,
            pid: join.pid,
            host: join.host,
            address: join.address,
            ports: join.ports,
            card: join.card,
        },
    );
    let arc = elastic::form_if_possible(now, state, actions)
        .or_else(|| elastic::consider_growth(now, state, actions));
    arc.unwrap_or_else(|| (Transition::Joined, missing(state)))
}

/// Where members are launched, only they may come, once each.
fn launched_slot(state: &State, worker: WorkerId) -> (Option<u32>, Arc) {
    let expected = state.members.get(&worker);
    match expected {
        Some(Member {
            slot,
            status: Status::Launching { .. },
            ..
        }) => (Some(*slot), (Transition::Joined, String::new())),
        _ => (
            None,
            (
                Transition::RefusedUnknown,
                format!("worker {worker} was not launched by this job"),
            ),
        ),
    }
}

/// Where members come by themselves, they get the place they ask for, or the lowest free one.
fn free_slot(state: &State, join: &Join) -> (Option<u32>, Arc) {
    let full = |why: String| (None, (Transition::RefusedFull, why));
    if state.members.contains_key(&join.worker) {
        return (
            None,
            (
                Transition::RefusedUnknown,
                format!("member {} is in already", join.worker),
            ),
        );
    }
    let taken = |slot: u32| state.slots.get(slot as usize).copied().flatten();
    match join.slot {
        Some(slot) if slot >= state.options.size => full(format!(
            "place {slot} does not exist: the job has {} members, counted from 0",
            state.options.size
        )),
        Some(slot) => match taken(slot).filter(|_| !planted(state, Bug::SlotTwice)) {
            Some(holder) => full(format!(
                "place {slot} is held by the process on {}: give every member its own",
                state
                    .members
                    .get(&holder)
                    .map_or("another host", |member| &member.host)
            )),
            None => (Some(slot), (Transition::Joined, String::new())),
        },
        None => match (0..state.options.size).find(|slot| taken(*slot).is_none()) {
            Some(slot) => (Some(slot), (Transition::Joined, String::new())),
            None => full(format!("all {} places are taken", state.options.size)),
        },
    }
}

/// Everybody is in, or as many as are needed: number the ranks and tell them.
pub(super) fn form(state: &mut State, actions: &mut Vec<Action>) {
    // Whoever is about to go is a member still, and has no seat.
    if state.changed || state.seated() != state.generation.members.len() {
        for member in state.members.values_mut() {
            member.rank = None;
        }
        state.changed = false;
        let number = GenerationId(state.generation.number.0 + 1);
        let (members, order) = (state.seats(), state.seat_order());
        state.generation = Shared::new(Generation { number, members });
        state.order = order;
        for seat in &state.generation.members {
            if let Some(member) = state.members.get_mut(&seat.worker) {
                member.rank = Some(seat.rank);
            }
            actions.push(Action::Send(
                seat.worker,
                ToWorker::Generation(Shared::clone(&state.generation)),
            ));
        }
    }
    state.phase = Phase::Ready;
    task::start_next(state, actions);
}

fn missing(state: &State) -> String {
    let in_now = state
        .members
        .values()
        .filter(|member| matches!(member.status, Status::In { .. }))
        .count();
    format!("{in_now} of {} members are in", state.options.size)
}

pub(super) fn heard(now: Time, state: &mut State, worker: WorkerId) -> Arc {
    match state.members.get_mut(&worker).map(|member| &mut member.status) {
        Some(Status::In { heard }) => {
            *heard = now;
            (Transition::Heard, String::new())
        }
        _ => (Transition::Ignored, format!("{worker} is not a member")),
    }
}

/// A member says that it leaves: what it works on it ends, and nothing more is given to it.
pub(super) fn leaves(now: Time, state: &mut State, worker: WorkerId) -> Arc {
    let busy = state
        .active
        .as_ref()
        .is_some_and(|active| active.pending.contains(&worker));
    let until = now + state.options.exit_report_within;
    match state.members.get_mut(&worker) {
        Some(member) if matches!(member.status, Status::In { .. }) => {
            member.leaves = true;
            let why = format!("the process of slot {} was told to go, and leaves", member.slot);
            if !busy {
                member.status = left(until);
            }
            form_again(now, state);
            (Transition::MemberLeaves, why)
        }
        _ => (Transition::Ignored, format!("{worker} is not a member")),
    }
}

/// Of a member that leaves nothing is awaited but its exit.
pub(super) fn left(until: Time) -> Status {
    Status::Unlinked {
        until,
        why: "it was told to go, and did not".to_owned(),
    }
}

pub(super) fn link_lost(
    now: Time,
    state: &mut State,
    worker: WorkerId,
    why: String,
    actions: &mut Vec<Action>,
) -> Arc {
    let until = now + state.options.exit_report_within;
    let launches = state.options.launches;
    match state.members.get_mut(&worker) {
        Some(member) if matches!(member.status, Status::In { .. }) && launches => {
            member.status = Status::Unlinked { until, why };
            let why = format!("the link of slot {} broke, waiting for its exit", member.slot);
            form_again(now, state);
            (Transition::LinkBroke, why)
        }
        Some(_) if !launches => lose(now, state, worker, Failure::LinkLost { why }, actions),
        _ => (Transition::Ignored, format!("{worker} is not a member")),
    }
}

pub(super) fn exited(
    now: Time,
    state: &mut State,
    worker: WorkerId,
    exit: Exit,
    log_tail: String,
    actions: &mut Vec<Action>,
) -> Arc {
    state.alive.remove(&worker);
    if state.is_over() {
        state.members.remove(&worker);
        return task::stopped_if_empty(state, format!("worker {worker} {exit}"));
    }
    match state
        .members
        .get(&worker)
        .map(|member| (&member.status, member.slot))
    {
        None => (
            Transition::ProcessGone,
            format!("worker {worker}, given up before, {exit}"),
        ),
        Some((Status::Launching { .. }, slot)) => {
            let failure = Failure::Exited { exit, log_tail };
            start_failed(now, state, worker, slot, failure, actions)
        }
        Some(_) => lose(now, state, worker, Failure::Exited { exit, log_tail }, actions),
    }
}

pub(super) fn launch_failed(
    now: Time,
    state: &mut State,
    worker: WorkerId,
    why: String,
    actions: &mut Vec<Action>,
) -> Arc {
    state.alive.remove(&worker);
    let failure = Failure::NotStarted { why };
    if state.is_over() {
        return task::stopped_if_empty(state, format!("worker {worker} {failure}"));
    }
    match state
        .members
        .get(&worker)
        .map(|member| (&member.status, member.slot))
    {
        None => (
            Transition::Ignored,
            format!("worker {worker} is not wanted any more"),
        ),
        Some((Status::Launching { .. }, slot)) => {
            // A launcher that cannot start a process has said why; asking again changes nothing.
            state.attempts[slot as usize] = state.options.start_attempts;
            start_failed(now, state, worker, slot, failure, actions)
        }
        Some(_) => lose(now, state, worker, failure, actions),
    }
}

/// A process ended before it joined: try again a few times, then give the job up with its reason.
fn start_failed(
    now: Time,
    state: &mut State,
    worker: WorkerId,
    slot: u32,
    failure: Failure,
    actions: &mut Vec<Action>,
) -> Arc {
    state.members.remove(&worker);
    state.slots[slot as usize] = None;
    state.attempts[slot as usize] += 1;
    let attempts = state.attempts[slot as usize];
    if attempts < state.options.start_attempts {
        launch(now, state, slot, actions);
        return (
            Transition::StartRetried,
            format!("rank {slot} {failure} before it joined; trying again"),
        );
    }
    let what = RankFailure {
        rank: Rank(slot),
        host: "this host".to_owned(),
        pid: 0,
        failure,
    };
    if elastic::leave_place(now, state, slot) {
        return go_on_without(now, state, &what.to_string(), actions);
    }
    let why = format!("the cluster could not start: {what}");
    task::give_up_after_task(now, state, why.clone(), actions);
    (Transition::StartGivenUp, why)
}

/// A place is left empty, and whoever waited for it need not any more.
fn go_on_without(now: Time, state: &mut State, why: &str, actions: &mut Vec<Action>) -> Arc {
    let after = seconds(state.options.retry_after);
    let why = format!("{why}; the others go on without it, and it is tried again in {after}");
    if elastic::form_if_possible(now, state, actions).is_none() {
        elastic::consider_growth(now, state, actions);
    }
    (Transition::PlaceLeft, why)
}

/// A process took too long to join.
pub(super) fn join_too_late(
    now: Time,
    state: &mut State,
    worker: WorkerId,
    actions: &mut Vec<Action>,
) -> Arc {
    let why = too_few(state);
    if let Some(member) = state.members.remove(&worker) {
        state.slots[member.slot as usize] = None;
        actions.push(Action::Kill(worker));
        if elastic::leave_place(now, state, member.slot) {
            return go_on_without(now, state, &why, actions);
        }
    }
    task::give_up_after_task(now, state, why.clone(), actions);
    (Transition::JoinTooLate, why)
}

/// A member is gone: record it against the running task, fill its place.
pub(super) fn lose(
    now: Time,
    state: &mut State,
    worker: WorkerId,
    failure: Failure,
    actions: &mut Vec<Action>,
) -> Arc {
    let rank = state.rank_of(worker);
    let Some(member) = state.members.remove(&worker) else {
        return (Transition::Ignored, format!("{worker} is not a member"));
    };
    state.slots[member.slot as usize] = None;
    state.changed = true;
    // Without a launcher nobody says how a process fares: closing its link ends it in any case.
    let may_live = state.alive.contains(&worker) || !state.options.launches;
    if may_live && !planted(state, Bug::LostLivesOn) {
        actions.push(Action::Kill(worker));
    }
    let what = RankFailure {
        rank,
        host: member.host,
        pid: member.pid,
        failure,
    };
    let why = what.to_string();
    let wanted = member.slot < state.options.size;
    if wanted && state.options.launches && !state.is_over() {
        launch(now, state, member.slot, actions);
    }
    elastic::drop_empty_places(state);
    let pending = state
        .active
        .as_mut()
        .is_some_and(|active| active.pending.remove(&worker));
    if pending {
        let after_cancel = matches!(state.phase, Phase::Cancelling { .. });
        task::rank_failed(now, state, Failed { what, after_cancel }, actions);
        return (Transition::MemberLost, why);
    }
    if wanted {
        form_again(now, state);
    }
    let as_told = member.leaves && matches!(member.status, Status::Unlinked { .. });
    match as_told {
        true => (Transition::MemberLeft, why),
        false => (Transition::MemberLostIdle, why),
    }
}

/// A place is empty: the next task waits until it is filled. However many come and go meanwhile, the wait
/// ends `join_within` after it began (CO-5).
pub(super) fn form_again(now: Time, state: &mut State) {
    if state.phase == Phase::Ready {
        state.phase = forming(now, state);
    }
}

pub(super) fn forming(now: Time, state: &State) -> Phase {
    Phase::Forming {
        until: forming_deadline(now, state),
        regroup: now + state.options.regroup_within,
    }
}

pub(super) fn forming_deadline(now: Time, state: &State) -> Time {
    let for_ever = seconds_of_a_century();
    now + if planted(state, Bug::FormForEver) {
        for_ever
    } else {
        state.options.join_within
    }
}

pub(super) fn seconds_of_a_century() -> std::time::Duration {
    std::time::Duration::from_secs(100 * 365 * 24 * 3600)
}

pub(super) fn too_few(state: &State) -> String {
    let within = seconds(state.options.join_within);
    let needed = match state.least {
        Some(least) => format!(", and at least {least} are needed"),
        None => String::new(),
    };
    format!(
        "only {} after {within}{needed}: raise `start_timeout`, or look at the log of the missing ones",
        missing(state)
    )
}
