//! The coordinator: who is in, who holds which rank, what runs, and what to do when something breaks.
//!
//! It is a value. [`step`] takes the time, the state and one input, and returns the new state, what to do,
//! and a sentence why. It does no I/O and asks no clock, so the simulator can drive a thousand workers
//! through partitions and deaths in one thread. The thin driver around it is in [`crate::driver`].
//!
//! Invariants, cited by tests and checked after every step of the simulation:
//! - **CO-1** A slot has at most one live member, and a generation numbers its ranks 0..world, each once.
//! - **CO-2** Generation numbers only grow, and members hear of them in that order.
//! - **CO-3** Every submitted task is resolved exactly once, and soon once a rank failed: the others are ended.
//! - **CO-4** A task succeeds only where every rank of its world finished it, in the generation it was sent in.
//! - **CO-5** No wait without a deadline: while anything is awaited, [`State::deadline`] says until when.
//! - **CO-6** A member that was given up gets no further message, what it still says is ignored, and its
//!   process is ended.
//! - **CO-7** When the coordinator is over, every process it launched has exited or was ordered to be ended.
//! - **CO-8** The first cause of a failed task is a rank that failed by itself, never one that was cancelled;
//!   and once it is known, nothing takes its place.
//! - **CO-9** A member that lives, speaks and obeys in time is never given up, also where the coordinator
//!   itself was away for a while.
//! - **CO-10** What runs ends through its own ranks, the user's cancel or the user's stop, never because a
//!   place that it does not need cannot be filled.
//! - **CO-11** Where the driver launches members, an empty place is filled at once, and given up after
//!   `start_attempts` processes in a row ended before they joined, not earlier; or left empty for a while, where
//!   the newest task can do without it (CO-13).
//! - **CO-12** The ranks of a patient task are not told to end because another was lost: they find out by themselves and
//!   keep what they have, unless they take longer than `leave_within`, one fails by itself, or the user wants the end.
//! - **CO-13** A generation lacks members only for an elastic task, one that can do with fewer ranks than it wants: it
//!   begins no later than `regroup_within` after enough of them are in, never with fewer than it needs, and is asked to
//!   yield within `regroup_within` where members come that it has room for, or hold a place that is not wanted any more.
//! - **CO-14** Ranks of one host stand together, hosts in the order of their first place, so that their lanes are complete subtrees of
//!   the lane tree. Except that a place that its user has numbered keeps that number, and that a member which replaces another
//!   takes its rank, wherever it is: ranks move only where members come or go for good.

mod bug;
mod cause;
mod elastic;
mod membership;
mod state;
mod task;
#[cfg(test)]
mod tests;
mod timer;

use std::time::Duration;

use grampus_core::{Exit, Join, Outcome, TaskFailure, TaskId, Time, ToWorker, WorkerId};

#[cfg(feature = "planted-bugs")]
pub use bug::Bug;
pub use cause::first_cause;
use state::Submission;
pub use state::{MemberView, Options, Phase, State};

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The driver is ready: launch the members.
    Start,
    /// A process proved the key and introduced itself.
    Joined(Join),
    /// A sign of life of a member.
    Heard(WorkerId),
    /// A member ended its part of a task.
    Finished {
        /// Who.
        worker: WorkerId,
        /// Which task.
        task: TaskId,
        /// How.
        outcome: Outcome,
        /// Ports that it keeps free for the next task.
        ports: Vec<u16>,
    },
    /// A member was told to go, and does so once its task has ended.
    Leaves(WorkerId),
    /// The link of a member broke or was closed.
    LinkLost {
        /// Whose.
        worker: WorkerId,
        /// What the network said.
        why: String,
    },
    /// The launcher reports the end of a process.
    Exited {
        /// Whose.
        worker: WorkerId,
        /// How it ended.
        exit: Exit,
        /// Its last lines of output.
        log_tail: String,
    },
    /// The launcher could not start a process.
    LaunchFailed {
        /// Which one.
        worker: WorkerId,
        /// Why.
        why: String,
    },
    /// The user wants work done.
    Submit {
        /// The new task.
        task: TaskId,
        /// On ranks 0 to `world` - 1.
        world: u32,
        /// It begins with so many ranks where others are missing (CO-13).
        least: u32,
        /// How often it was started before.
        restarts: u32,
        /// Its ranks end by themselves where one is lost (CO-12).
        patient: bool,
    },
    /// The user wants a task ended.
    Cancel {
        /// Which one.
        task: TaskId,
        /// Why.
        why: String,
    },
    /// The user wants a patient task to end where it can go on later.
    Yield {
        /// Which one.
        task: TaskId,
        /// What it has is to be saved.
        save: bool,
    },
    /// The user wants more places, or fewer.
    Resize {
        /// So many.
        size: u32,
    },
    /// The user wants the job over.
    Stop {
        /// Why.
        why: String,
    },
    /// Time passed. Due no later than [`State::deadline`]; repeat until the transition is
    /// [`Transition::Idle`].
    Tick,
}

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start a process for a slot.
    Launch {
        /// Its id.
        worker: WorkerId,
        /// Its place.
        slot: u32,
    },
    /// End a process, and close its link. Of a process that came by itself only the link is in reach; it ends
    /// for that.
    Kill(WorkerId),
    /// Send a message to a member.
    Send(WorkerId, ToWorker),
    /// Tell the process that just asked to join that it is not wanted, and close the link on which it asked. A
    /// member of the same id keeps its own.
    Refuse(WorkerId, String),
    /// Tell the user how a task ended.
    Resolve(TaskId, Result<(), TaskFailure>),
}

macro_rules! transitions {
    ($($name:ident),* $(,)?) => {
        /// The arcs of the state machine. The simulation proves that each is taken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "the sentence of each step says what it means")]
        pub enum Transition {
            $($name,)*
        }

        impl Transition {
            /// Every arc, for coverage.
            pub const ALL: &[Transition] = &[$(Transition::$name,)*];
        }
    };
}

transitions! {
    Started, Joined, Formed, RefusedUnknown, RefusedFull, RefusedOver, Heard, Ignored,
    RankFinished, TaskSucceeded, RankFailedFirst, RankFailedLater, RankCancelled, FinishedStale,
    MemberLeaves, LinkBroke, MemberLost, MemberLostIdle, StartRetried, StartGivenUp, ProcessGone, TaskStarted,
    TaskQueued, TaskRefused, PlaceLeft, PlaceTried, WaitsOn, Grew, Shrank, SameSize, MemberLeft, GrowthAsked, YieldAsked, YieldIgnored, CancelStarted, CancelQueued, CancelIgnored, StopStarted, StopIgnored,
    RanksLeave, LeaveTooLate, Stopped, Idle, Paused, Silent, ExitUnreported, JoinTooLate, CancelTooLate, StopTooLate,
}

impl Transition {
    /// True where what the job is doing changed, so that the sentence answers "what is it waiting for?".
    fn is_news(self) -> bool {
        use Transition::*;
        !matches!(
            self,
            RefusedUnknown
                | RefusedFull
                | RefusedOver
                | Heard
                | Ignored
                | FinishedStale
                | ProcessGone
                | TaskQueued
                | TaskRefused
                | CancelQueued
                | CancelIgnored
                | YieldIgnored
                | StopIgnored
                | SameSize
                | WaitsOn
                | Idle
        )
    }
}

/// The answer to one input.
#[derive(Debug)]
pub struct Step {
    /// The state from now on.
    pub state: State,
    /// What to do, in this order.
    pub actions: Vec<Action>,
    /// Which arc was taken.
    pub transition: Transition,
    /// Why, for the log, for `grampus status` and for errors.
    pub why: String,
}

/// What one arc says of itself, before it becomes a [`Step`].
type Arc = (Transition, String);

/// The whole coordinator: one decision.
pub fn step(now: Time, mut state: State, input: Input) -> Step {
    let mut actions = Vec::new();
    let (transition, why) = decide(now, &mut state, input, &mut actions);
    // Why the job ended stays the answer to every later question.
    if transition.is_news() && !state.is_over() {
        state.why.clone_from(&why);
    }
    Step {
        state,
        actions,
        transition,
        why,
    }
}

fn decide(now: Time, state: &mut State, input: Input, actions: &mut Vec<Action>) -> Arc {
    match input {
        Input::Start => membership::start(now, state, actions),
        Input::Joined(join) => membership::join(now, state, join, actions),
        Input::Heard(worker) => membership::heard(now, state, worker),
        Input::Finished {
            worker,
            task,
            outcome,
            ports,
        } => task::finished(now, state, worker, task, outcome, ports, actions),
        Input::Leaves(worker) => membership::leaves(now, state, worker),
        Input::LinkLost { worker, why } => membership::link_lost(now, state, worker, why, actions),
        Input::Exited {
            worker,
            exit,
            log_tail,
        } => membership::exited(now, state, worker, exit, log_tail, actions),
        Input::LaunchFailed { worker, why } => membership::launch_failed(now, state, worker, why, actions),
        Input::Submit {
            task,
            world,
            least,
            restarts,
            patient,
        } => {
            let asked = Submission {
                id: task,
                world,
                least: least.min(world),
                restarts,
                patient,
            };
            task::submit(now, state, asked, actions)
        }
        Input::Resize { size } => elastic::resize(now, state, size, actions),
        Input::Cancel { task, why } => task::cancel(now, state, task, why, actions),
        Input::Yield { task, save } => task::ask_to_yield(state, task, save, actions),
        Input::Stop { why } => task::stop(now, state, why, actions),
        Input::Tick => timer::tick(now, state, actions),
    }
}

/// Seconds, for sentences.
fn seconds(length: Duration) -> String {
    format!("{:.1} s", length.as_secs_f64())
}
