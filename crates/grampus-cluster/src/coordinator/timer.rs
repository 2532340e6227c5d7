//! What time alone brings about. One thing per tick; the driver repeats until nothing is left.

use grampus_core::{Failure, Time, WorkerId};

use super::bug::{Bug, planted};
use super::state::{Phase, State, Status};
use super::{Action, Arc, Transition, elastic, membership, seconds, task};

pub(super) fn tick(now: Time, state: &mut State, actions: &mut Vec<Action>) -> Arc {
    if let Some(arc) = after_pause(now, state) {
        return arc;
    }
    state.last_tick = now;
    if let Some(arc) = phase_expired(now, state, actions) {
        return arc;
    }
    if let Some(worker) = expired_member(now, state) {
        return member_expired(now, state, worker, actions);
    }
    elastic::try_place(now, state, actions)
        .or_else(|| elastic::consider_growth(now, state, actions))
        .unwrap_or_else(|| (Transition::Idle, String::new()))
}

/// Whoever was stopped himself (Ctrl-Z, a suspended machine) cannot blame others for silence: nobody could
/// have been heard. Waits are put off by the length of the pause, but to no more than their full length from
/// now: some may have begun after it, with what had been waiting for the coordinator.
fn after_pause(now: Time, state: &mut State) -> Option<Arc> {
    let gap = now.since(state.last_tick);
    if gap < state.options.silent_after / 2 {
        return None;
    }
    state.last_tick = now;
    let forming = membership::forming_deadline(now, state);
    let options = &state.options;
    let cancel_within = state.cancel_within();
    let put_off = |until: &mut Time, latest: Time| *until = (*until + gap).min(latest);
    for member in state.members.values_mut() {
        match &mut member.status {
            Status::In { heard } => *heard = now,
            Status::Launching { until } => put_off(until, now + options.join_within),
            Status::Unlinked { until, .. } if member.leaves => {
                put_off(until, now + options.stop_within + options.exit_report_within);
            }
            Status::Unlinked { until, .. } => put_off(until, now + options.exit_report_within),
        }
    }
    match &mut state.phase {
        Phase::Forming { until, regroup } => {
            put_off(until, forming);
            put_off(regroup, now + options.regroup_within);
        }
        Phase::Leaving { until } => put_off(until, now + options.leave_within),
        Phase::Cancelling { until } => put_off(until, now + cancel_within),
        // Stopping is not put off: it blames nobody, and must end even where the driver hardly gets to run.
        _ => {}
    }
    Some((
        Transition::Paused,
        format!("the coordinator itself was away for {}", seconds(gap)),
    ))
}

fn phase_expired(now: Time, state: &mut State, actions: &mut Vec<Action>) -> Option<Arc> {
    match state.phase {
        Phase::Forming { regroup, .. } if now >= regroup && state.waits_for_more() => {
            elastic::form_if_possible(now, state, actions)
        }
        Phase::Forming { until, .. } if now >= until && nobody_waits(state) => {
            state.phase = membership::forming(now, state);
            let why = "a place is empty, and nothing waits for it".to_owned();
            Some((Transition::WaitsOn, why))
        }
        Phase::Forming { until, .. } if now >= until => {
            let why = membership::too_few(state);
            task::give_up(now, state, why.clone(), actions);
            Some((Transition::JoinTooLate, why))
        }
        Phase::Leaving { until } if now >= until => Some(task::leave_too_late(now, state, actions)),
        Phase::Cancelling { until } if now >= until => Some(end_stubborn(now, state, actions)),
        Phase::Stopping { until, killed } if now >= until => Some(end_all(now, state, killed, actions)),
        _ => None,
    }
}

/// Places are empty that the last task did without, and there is no other.
fn nobody_waits(state: &State) -> bool {
    let enough = state.least.is_some_and(|least| state.ranks_in() >= least);
    enough && state.queue.is_empty() && !planted(state, Bug::FormForEver)
}

/// Ranks that did not end when told to are ended with their processes. That is no failure of theirs; a link
/// that broke by itself is.
fn end_stubborn(now: Time, state: &mut State, actions: &mut Vec<Action>) -> Arc {
    let within = seconds(state.cancel_within());
    let pending = state
        .active
        .as_ref()
        .map(|active| active.pending.clone())
        .unwrap_or_default();
    for worker in &pending {
        let broken = match state.members.get(worker).map(|member| &member.status) {
            Some(Status::Unlinked { why, .. }) => Some(why.clone()),
            _ => None,
        };
        if broken.is_none()
            && let Some(active) = &mut state.active
        {
            active.pending.remove(worker);
        }
        let why = broken.unwrap_or_else(|| format!("it did not end within {within} of being cancelled"));
        membership::lose(now, state, *worker, Failure::LinkLost { why }, actions);
    }
    task::settle(now, state, actions);
    (
        Transition::CancelTooLate,
        format!(
            "{} processes did not end within {within}, they are ended",
            pending.len()
        ),
    )
}

fn end_all(now: Time, state: &mut State, killed: bool, actions: &mut Vec<Action>) -> Arc {
    let within = seconds(state.options.stop_within);
    let left = state.alive.len();
    if killed {
        state.phase = Phase::Over;
        return (
            Transition::StopTooLate,
            format!("{left} processes were ended but their exits were not reported"),
        );
    }
    actions.extend(state.alive.iter().map(|worker| Action::Kill(*worker)));
    // Twice the time: the order may have to reach another host, and its answer come back.
    state.phase = Phase::Stopping {
        until: now + state.options.stop_within * 2,
        killed: true,
    };
    (
        Transition::StopTooLate,
        format!("{left} processes did not leave within {within}, they are ended"),
    )
}

fn expired_member(now: Time, state: &State) -> Option<WorkerId> {
    let silent_after = state.options.silent_after;
    let forget_unlinked = planted(state, Bug::ForgetUnlinked);
    let expired = state.members.iter().find(|(_, member)| match &member.status {
        Status::Launching { until } => now >= *until,
        Status::Unlinked { until, .. } => now >= *until && !forget_unlinked,
        Status::In { heard } => now.since(*heard) >= silent_after,
    });
    expired.map(|(worker, _)| *worker)
}

fn member_expired(now: Time, state: &mut State, worker: WorkerId, actions: &mut Vec<Action>) -> Arc {
    let status = state.members.get(&worker).map(|member| member.status.clone());
    let (transition, failure) = match status {
        Some(Status::In { heard }) => (
            Transition::Silent,
            Failure::Silent {
                millis: now.since(heard).as_millis() as u64,
            },
        ),
        Some(Status::Unlinked { why, .. }) => (Transition::ExitUnreported, Failure::LinkLost { why }),
        _ => return membership::join_too_late(now, state, worker, actions),
    };
    let (_, why) = membership::lose(now, state, worker, failure, actions);
    (transition, why)
}
