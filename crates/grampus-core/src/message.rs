//! What coordinator and workers say to each other. Driver and workers of a job run the same build; the
//! handshake compares [`PROTOCOL_VERSION`] before the first message is read.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Failure, GenerationId, Rank, TaskId, WorkerId};

/// Grows with every change of the frames or messages.
pub const PROTOCOL_VERSION: u32 = 7;

/// A process introduces itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The id that its launcher gave it.
    pub worker: WorkerId,
    /// The place that its launcher meant for it; taken where free. `None` takes the lowest free one.
    pub slot: Option<u32>,
    /// Ranks that it carries: 1 for a worker, the processes per node for a node of `grampus run`.
    pub ranks: u32,
    /// Its ranks are a group of their own, whoever else is on its host. Otherwise the host is the group.
    pub node: bool,
    /// Its process id.
    pub pid: u32,
    /// Name of its host, for people.
    pub host: String,
    /// Address under which other members reach it.
    pub address: String,
    /// One free port per rank, kept free until the next task.
    pub ports: Vec<u16>,
    /// What other members need to form groups with it; empty where it forms none.
    pub card: Vec<u8>,
}

/// From a worker to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToCoordinator {
    /// The first message on a link of a worker.
    Join(Join),
    /// The first message on a link of somebody who starts a supervisor: from now on the link carries its orders and reports.
    Calls {
        /// The place for which it was started.
        slot: u32,
        /// Name of its host, for people.
        host: String,
    },
    /// A sign of life.
    Heartbeat,
    /// It leaves once its task has ended, since somebody told it to go.
    Leaves,
    /// Something that a task has to say before its end; the bytes are in the frame's payload.
    Report {
        /// Which task.
        task: TaskId,
    },
    /// A task ended here; what it returned or raised is in the frame's payload.
    Finished {
        /// Which task.
        task: TaskId,
        /// How.
        outcome: Outcome,
        /// Fresh ports for the next task, one per rank.
        ports: Vec<u16>,
        /// It wrote something, which the supervisor is passing on.
        wrote: bool,
    },
}

/// How a task ended on one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It returned.
    Ok,
    /// One of the member's ranks failed.
    Failed {
        /// Which of the member's ranks, from 0.
        local: u32,
        /// Its process, where that is not the member's own.
        pid: Option<u32>,
        /// How.
        failure: Failure,
    },
    /// It ended because it was told to.
    Cancelled,
}

/// From the coordinator to a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWorker {
    /// Who is in from now on.
    Generation(Arc<Generation>),
    /// Work; the function and its arguments are in the frame's payload.
    Task(Task),
    /// End the task now.
    Cancel {
        /// Which task; another one is left alone.
        task: TaskId,
        /// Why, for the worker's log.
        why: String,
    },
    /// End a patient task at the next point at which it can go on later.
    Yield {
        /// Which task; another one is left alone.
        task: TaskId,
        /// Save what it has, where it has a place for that.
        save: bool,
    },
    /// Say where the task stands, in a report.
    Inspect {
        /// Which task; another one is left alone.
        task: TaskId,
        /// A member that has done nothing for so many milliseconds also says what each of its threads is in.
        idle_ms: u64,
    },
    /// A rank of a patient task is lost: whoever waits for it waits in vain.
    Lost {
        /// Which task; another one is left alone.
        task: TaskId,
        /// Which rank.
        rank: Rank,
    },
    /// Leave: the job is over.
    Stop {
        /// Why, for the worker's log.
        why: String,
    },
    /// A sign of life of the coordinator, for members that cannot see its process.
    Heartbeat,
}

/// One task as its workers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// The generation that it runs in.
    pub generation: GenerationId,
    /// It runs on ranks 0 to `world` - 1.
    pub world: u32,
    /// How often it was started before, after failures.
    pub restarts: u32,
    /// One free port per rank of the world.
    pub ports: Arc<[u16]>,
}

/// One member of a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Which process.
    pub worker: WorkerId,
    /// Its first rank.
    pub rank: Rank,
    /// How many ranks it carries.
    pub ranks: u32,
    /// They are a group of their own.
    pub node: bool,
    /// Name of its host.
    pub host: String,
    /// Address under which other members reach it.
    pub address: String,
    /// What other members need to form groups with it.
    pub card: Vec<u8>,
}

/// Who is in, with which rank, from now until the next generation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// Grows with every change.
    pub number: GenerationId,
    /// In order of rank.
    pub members: Vec<Member>,
}
