//! The agent inside every worker: it joins, sends signs of life, hands tasks to the worker's main thread
//! and its results back. It has a thread of its own and never touches an interpreter lock, so that a
//! worker deep in user code still answers.
//!
//! Invariants:
//! - **AG-1** A cancel reaches only the task that it names, and only while that task runs.
//! - **AG-2** An agent that lost its coordinator says so and ends its process group (or tells its owner): at once, or, where the
//!   running task asked for time to save what it has, when that is up.
//! - **AG-3** What a task reported leaves before its end does, in the order of the calls.

mod session;

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use grampus_core::{JoinString, Outcome, Place, Rank, Task, TaskId, WorkerId};
use grampus_net::{Link, NetError};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::payload::Payload;

/// Most bytes of one report: as much as a link carries beside a message.
pub const LARGEST_REPORT: usize = 1 << 20;

/// Who joins, and how it wants to be told.
pub struct Introduction {
    /// Its id.
    pub worker: WorkerId,
    /// The place it was launched for.
    pub slot: Option<u32>,
    /// Ranks that it carries.
    pub ranks: u32,
    /// They are a group of their own: it is a node of `grampus run`.
    pub node: bool,
    /// Name of its host; empty takes the machine's own.
    pub host: String,
    /// What other members need to form groups with it.
    pub card: Vec<u8>,
    /// A peer that is silent for so long is given up.
    pub silent_after: Duration,
    /// Called, on the agent's thread, when the running task is to end.
    pub on_cancel: Box<dyn Fn(&str) + Send>,
    /// Called, on the agent's thread, when another rank of the running task is lost.
    pub on_rank_lost: Box<dyn Fn(TaskId, Rank) + Send>,
    /// Called, on the agent's thread, when the driver asks where the running task stands; its stacks are wanted where it has
    /// done nothing for so long. What it says becomes a report.
    pub on_inspect: Box<dyn Fn(Duration) -> Vec<u8> + Send>,
    /// Called, on the agent's thread, when the coordinator is lost.
    pub on_lost: Box<dyn Fn(&str) + Send>,
}

/// How a coordinator is reached.
pub enum Way {
    /// By connecting to it.
    Connect(JoinString),
    /// It is in this process. Other members reach this one under the given address.
    Here(Box<Link>, IpAddr),
}

/// What the main thread of a worker is to do.
pub enum Work {
    /// Run this.
    Task(Box<Assignment>),
    /// Leave.
    Stop {
        /// Why.
        why: String,
    },
    /// The coordinator is lost; only seen where `on_lost` let the process live.
    Lost {
        /// Why.
        why: String,
    },
}

/// One task for one worker.
pub struct Assignment {
    /// Which.
    pub task: Task,
    /// Where each of this member's ranks stands.
    pub places: Vec<Place>,
    /// Address and card of every rank of the world, in order.
    pub cards: Vec<(String, Vec<u8>)>,
    /// What came with it.
    pub payload: Payload,
}

/// Why a worker could not join.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// No connection, or the coordinator refused it.
    #[error("cannot join the job: {0}")]
    Join(#[from] NetError),
    /// No thread or runtime.
    #[error("cannot start the agent: {0}")]
    System(#[from] io::Error),
    /// The agent's thread ended.
    #[error("the agent has ended: {0}")]
    Ended(String),
    /// A report is no way for large values.
    #[error(
        "a report of {size} bytes is too large, at most {LARGEST_REPORT} are carried: \
         return large values, or save them to a file"
    )]
    ReportTooLarge {
        /// Its bytes.
        size: usize,
    },
}

/// Where the newest task stands on its way through this worker.
#[derive(Default)]
pub(crate) enum Stage {
    #[default]
    Idle,
    Assigned(TaskId),
    /// It was asked to yield before it began.
    YieldingEarly(TaskId, bool),
    CancelledEarly(TaskId),
    Running(TaskId),
    /// It runs, and was asked to end where it can go on later, and perhaps to save what it has.
    Yielding(TaskId, bool),
    /// It runs, and was told to end.
    Cancelled,
}

pub(crate) type SharedStage = Arc<Mutex<Stage>>;

/// How long the running task may go on without a coordinator, in milliseconds.
pub(crate) type SharedGrace = Arc<AtomicU64>;

/// What a task has to say. One queue for all of it keeps the order (AG-3).
pub(crate) enum Saying {
    Report {
        task: TaskId,
        body: Bytes,
        /// Dropped once the report is on its way, or never will be.
        written: mpsc::Sender<()>,
    },
    Done {
        task: TaskId,
        outcome: Outcome,
        payload: Payload,
        wrote: bool,
    },
    /// It leaves once its task has ended.
    Leaves,
    /// Nothing: what was said before is on its way when this is dropped.
    Nothing { _said: mpsc::Sender<()> },
}

/// A report on its way out of this process.
pub struct Receipt(mpsc::Receiver<()>);

impl Receipt {
    /// Waits until the report is with the operating system, which delivers it even if this process dies the next moment; or until
    /// the coordinator is lost. False when the time is up.
    pub fn wait(&mut self, within: Duration) -> bool {
        !matches!(self.0.recv_timeout(within), Err(RecvTimeoutError::Timeout))
    }
}

/// The main thread's handle.
pub struct Agent {
    /// Locked only so that the handle may be shared; one thread waits here.
    work: Mutex<mpsc::Receiver<Work>>,
    sayings: UnboundedSender<Saying>,
    stage: SharedStage,
    grace: SharedGrace,
}

impl Agent {
    /// Connects and introduces itself. Returns once the coordinator has accepted the connection.
    pub fn join(way: Way, introduction: Introduction) -> Result<Self, AgentError> {
        let (work_in, work) = mpsc::channel();
        let (sayings, sayings_out) = unbounded_channel();
        let (joined_in, joined) = mpsc::channel();
        let stage = SharedStage::default();
        let shared = Arc::clone(&stage);
        let grace = SharedGrace::default();
        let time = Arc::clone(&grace);
        let session = move || {
            session::run(
                introduction,
                way,
                &joined_in,
                work_in,
                sayings_out,
                &shared,
                &time,
            )
        };
        thread::Builder::new()
            .name("grampus-agent".to_owned())
            .spawn(session)?;
        match joined.recv() {
            Ok(Ok(())) => Ok(Self {
                work: Mutex::new(work),
                sayings,
                stage,
                grace,
            }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(AgentError::Ended("its thread ended while joining".to_owned())),
        }
    }

    /// The next work; `None` when the time is up.
    pub fn next(&self, within: Duration) -> Option<Work> {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        match work.recv_timeout(within) {
            Ok(work) => Some(work),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Work::Lost {
                why: "the agent has ended".to_owned(),
            }),
        }
    }

    /// From now on the task may be cancelled. False where it was cancelled already and is not to run.
    pub fn begin(&self, task: TaskId) -> bool {
        let mut stage = lock(&self.stage);
        let (next, runs) = match *stage {
            Stage::CancelledEarly(early) if early == task => (Stage::Idle, false),
            Stage::YieldingEarly(early, save) if early == task => (Stage::Yielding(task, save), true),
            _ => (Stage::Running(task), true),
        };
        *stage = next;
        runs
    }

    /// Whether the task that runs is asked to end where it can go on later; and then, whether to save what it has.
    pub fn asked_to_yield(&self) -> Option<bool> {
        match *lock(&self.stage) {
            Stage::Yielding(_, save) => Some(save),
            _ => None,
        }
    }

    /// From now on a task that runs while the coordinator is lost is asked to save what it has and to end, and has this long for
    /// it. Zero, as it is at first, ends the worker at once.
    pub fn outlive(&self, grace: Duration) {
        let milliseconds = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.grace.store(milliseconds, Ordering::Relaxed);
    }

    /// From now on nothing may be cancelled. True where a cancel came before; it has called `on_cancel` by then.
    pub fn settle(&self) -> bool {
        matches!(std::mem::take(&mut *lock(&self.stage)), Stage::Cancelled)
    }

    /// Sends something to whoever waits for the task, while it runs. Any thread may call it; whoever waits for the receipt has at most
    /// one report in memory.
    pub fn report(&self, task: TaskId, body: Bytes) -> Result<Receipt, AgentError> {
        if body.len() > LARGEST_REPORT {
            return Err(AgentError::ReportTooLarge { size: body.len() });
        }
        let (written, receipt) = mpsc::channel();
        // If the session is gone, the work channel says so next.
        let _ = self.sayings.send(Saying::Report { task, body, written });
        Ok(Receipt(receipt))
    }

    /// Says that this worker leaves once its task has ended.
    pub fn leaves(&self) {
        // If the session is gone, nobody is left to be told.
        let _ = self.sayings.send(Saying::Leaves);
    }

    /// A receipt of all that was said before: whoever leaves by himself waits for it.
    pub fn flush(&self) -> Receipt {
        let (said, receipt) = mpsc::channel();
        // If the session is gone, the receipt says so at once.
        let _ = self.sayings.send(Saying::Nothing { _said: said });
        Receipt(receipt)
    }

    /// Hands over how a task ended. `wrote` says that there is output which the supervisor will report as
    /// settled, and which is to be shown first.
    pub fn finish(&self, task: TaskId, outcome: Outcome, payload: Payload, wrote: bool) {
        // If the session is gone, the work channel says so next.
        let _ = self.sayings.send(Saying::Done {
            task,
            outcome,
            payload,
            wrote,
        });
    }
}

pub(crate) fn lock(stage: &SharedStage) -> MutexGuard<'_, Stage> {
    stage.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end of a worker that lost its coordinator: its process group goes with it, so that what it started
/// is not left behind (AG-2).
pub fn leave(why: &str) {
    // Its supervisor, which reads this, may be gone as well.
    let _ = writeln!(
        io::stderr(),
        "grampus: lost the coordinator: {why}; this worker ends"
    );
    let own = std::process::id();
    let group = rustix::process::getpgrp().as_raw_nonzero().get() as u32;
    if group == own {
        crate::supervisor::kill_group(group);
    }
    std::process::exit(75);
}
