//! Tasks that can do with fewer ranks than they want, and jobs whose size changes (CO-13).

use grampus_core::{Time, ToWorker};

use super::bug::{Bug, planted};
use super::state::{Growth, Phase, State, Status};
use super::{Action, Arc, Transition, membership, task};

/// Whether a generation can be formed now, and why.
pub(super) fn may_form(now: Time, state: &State) -> Option<String> {
    if state.everybody_in() {
        return Some(format!("all {} members are in", state.options.size));
    }
    let next = state.queue.front().filter(|next| next.is_elastic())?;
    let ranks = state.ranks_in();
    if ranks < next.least && !(planted(state, Bug::TooFew) && ranks > 0) {
        return None;
    }
    let Phase::Forming { regroup, .. } = state.phase else {
        return None;
    };
    (now >= regroup || !others_come(state)).then(|| {
        let (least, size) = (next.least, state.options.size);
        format!("{ranks} ranks are in, where {least} are enough and {size} members would be better")
    })
}

/// True where places are about to be filled, as far as that is known.
fn others_come(state: &State) -> bool {
    let coming = |status: &Status| !matches!(status, Status::In { .. });
    let mut members = state.members.values();
    !state.options.launches
        || members.any(|member| coming(&member.status) && member.slot < state.options.size)
}

/// Forms a generation if that is possible, and says so.
pub(super) fn form_if_possible(now: Time, state: &mut State, actions: &mut Vec<Action>) -> Option<Arc> {
    let forming = state.active.is_none() && matches!(state.phase, Phase::Forming { .. });
    let why = may_form(now, state).filter(|_| forming)?;
    membership::form(state, actions);
    Some((Transition::Formed, why))
}

/// A member came, or will not come: a task that has room for those who are there takes them in, at once where nobody
/// else is on the way.
pub(super) fn consider_growth(now: Time, state: &mut State, actions: &mut Vec<Action>) -> Option<Arc> {
    let (ranks, alone) = (state.ranks_in(), !others_come(state) || !state.options.launches);
    let within = state.options.regroup_within;
    let never = planted(state, Bug::NeverGrows);
    let running = state.phase == Phase::Running && !never;
    let active = state.active.as_mut().filter(|active| running && active.patient)?;
    if active.grows == Growth::Asked {
        return None;
    }
    if active.ranks >= active.wanted.min(ranks) {
        // Whoever came may be gone again.
        active.grows = Growth::None;
        return None;
    }
    if let (Growth::None, false) = (active.grows, alone) {
        active.grows = Growth::At(now + within);
    }
    let due = alone || matches!(active.grows, Growth::At(then) if now >= then);
    due.then(|| {
        ask_to_regroup(state, actions);
        (
            Transition::GrowthAsked,
            format!("{ranks} ranks are in: the task regroups"),
        )
    })
}

/// Lets the task end where it can go on, so that it goes on with other members.
fn ask_to_regroup(state: &mut State, actions: &mut Vec<Action>) {
    if let Some(active) = &mut state.active {
        active.grows = Growth::Asked;
        let id = active.id;
        task::ask_to_yield(state, id, false, actions);
    }
}

/// A place that cannot be filled is left empty where the newest task can do without it; it is tried again later.
pub(super) fn leave_place(now: Time, state: &mut State, slot: u32) -> bool {
    let enough = state.least.is_some_and(|least| state.ranks_in() >= least);
    if enough {
        state.left.insert(slot, now + state.options.retry_after);
    }
    enough
}

/// A place that was left empty is tried once more.
pub(super) fn try_place(now: Time, state: &mut State, actions: &mut Vec<Action>) -> Option<Arc> {
    let due = state.left.iter().find(|(_, then)| now >= **then);
    let slot = due.map(|(slot, _)| *slot)?;
    state.left.remove(&slot);
    state.attempts[slot as usize] = state.options.start_attempts - 1;
    membership::launch(now, state, slot, actions);
    Some((
        Transition::PlaceTried,
        format!("place {slot} was left empty, and is tried again"),
    ))
}

pub(super) fn resize(now: Time, state: &mut State, size: u32, actions: &mut Vec<Action>) -> Arc {
    let before = state.options.size;
    if state.is_over() || size == before || size == 0 {
        return (Transition::SameSize, format!("the job has {before} places"));
    }
    state.options.size = size;
    let why = format!("the job has {size} places from now on, it had {before}");
    if size > before {
        let places = (size as usize).max(state.slots.len());
        state.slots.resize(places, None);
        state.attempts.resize(places, 0);
        for slot in before..size {
            fill(now, state, slot, actions);
        }
        if let Phase::Ready | Phase::Forming { .. } = state.phase {
            state.phase = membership::forming(now, state);
        }
        return (Transition::Grew, why);
    }
    state.left.retain(|slot, _| *slot < size);
    state.changed = true;
    for slot in size..before {
        release(now, state, slot, actions);
    }
    drop_empty_places(state);
    regroup_without(state, actions);
    membership::form_again(now, state);
    form_if_possible(now, state, actions);
    (Transition::Shrank, why)
}

fn fill(now: Time, state: &mut State, slot: u32, actions: &mut Vec<Action>) {
    // Whoever left it may not be gone yet; then it is filled when he is.
    if state.options.launches && state.slots[slot as usize].is_none() {
        state.attempts[slot as usize] = 0;
        membership::launch(now, state, slot, actions);
    }
}

/// A place is not wanted any more: its member goes once it has nothing to do.
fn release(now: Time, state: &mut State, slot: u32, actions: &mut Vec<Action>) {
    let Some(worker) = state.slots.get(slot as usize).copied().flatten() else {
        return;
    };
    let busy = state
        .active
        .as_ref()
        .is_some_and(|active| active.pending.contains(&worker));
    let member = state.members.get(&worker);
    if member.is_some_and(|member| matches!(member.status, Status::Launching { .. })) {
        state.members.remove(&worker);
        state.slots[slot as usize] = None;
        actions.push(Action::Kill(worker));
    } else if !busy {
        dismiss(now, state, worker, actions);
    }
}

/// Sends a member home.
pub(super) fn dismiss(
    now: Time,
    state: &mut State,
    worker: grampus_core::WorkerId,
    actions: &mut Vec<Action>,
) {
    let until = now + state.options.stop_within + state.options.exit_report_within;
    let Some(member) = state.members.get_mut(&worker) else {
        return;
    };
    if matches!(member.status, Status::In { .. }) {
        member.leaves = true;
        member.status = membership::left(until);
        let why = "the job has become smaller".to_owned();
        actions.push(Action::Send(worker, ToWorker::Stop { why }));
    }
}

/// A task in which members work that are to go yields, if it can.
fn regroup_without(state: &mut State, actions: &mut Vec<Action>) {
    let size = state.options.size;
    let leaves = |worker| {
        let member = state.members.get(worker);
        member.is_some_and(|member| member.slot >= size)
    };
    let active = state.active.as_ref().filter(|active| active.patient);
    if active.is_some_and(|active| active.pending.iter().any(leaves)) {
        ask_to_regroup(state, actions);
    }
}

/// Places beyond the size of the job are kept only while somebody holds them.
pub(super) fn drop_empty_places(state: &mut State) {
    let size = state.options.size as usize;
    let held = state.slots.iter().rposition(Option::is_some);
    let places = size.max(held.map_or(0, |slot| slot + 1));
    state.slots.truncate(places);
    state.attempts.truncate(places);
}
