//! Launchers: they start processes that know one join string, report how these end, and end them. Nothing
//! else differs between platforms.

mod caller;
mod hosts;
mod line;

use grampus_core::{Exit, TaskId, WorkerId};
use serde::{Deserialize, Serialize};

pub use caller::Caller;
pub use hosts::{Engine, HostPlan, Hosts, NoEngine, Reach};

use crate::supervisor::Stream;

/// Whatever can start the processes of a job.
pub trait Launcher: Send {
    /// Starts the process of a slot. How it went is an event.
    fn launch(&mut self, worker: WorkerId, slot: u32);

    /// Ends a process and all that it started. Its end is an event.
    fn kill(&mut self, worker: WorkerId);

    /// Somebody has started a supervisor and carries its orders. Who waits for none lets go of it, which ends it.
    fn called(&mut self, caller: Caller) {
        drop(caller);
    }

    /// The supervisor that was asked for with this number will not call.
    fn not_coming(&mut self, _summons: u64, _why: &str) {}

    /// Ends everything, within a bounded time.
    fn close(&mut self);
}

/// What a launcher has to tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LaunchEvent {
    /// Ready to start processes.
    Ready {
        /// Name of the host.
        host: String,
        /// What a person should know of how it does so; empty where there is nothing.
        note: String,
    },
    /// A process runs.
    Started {
        /// Whose.
        worker: WorkerId,
        /// Its id on its host.
        pid: u32,
    },
    /// A process could not be started.
    NotStarted {
        /// Whose.
        worker: WorkerId,
        /// Why.
        why: String,
    },
    /// A process ended.
    Exited {
        /// Whose.
        worker: WorkerId,
        /// How.
        exit: Exit,
        /// Its last lines of output.
        log_tail: String,
    },
    /// A process wrote something.
    Output {
        /// Its rank.
        rank: u32,
        /// Where to.
        stream: Stream,
        /// What.
        bytes: Vec<u8>,
    },
    /// A worker ended a task, and all that it wrote for it was told.
    Settled {
        /// Which worker.
        worker: WorkerId,
        /// Which task.
        task: TaskId,
    },
    /// Something that a person should know; nothing is decided by it.
    Note {
        /// What.
        note: String,
    },
    /// A host is lost, and with it its workers, whose ends are told apart from this.
    HostLost {
        /// What happened.
        why: String,
    },
    /// The launcher itself cannot go on; the job cannot either.
    Broken {
        /// What happened, and what to do.
        why: String,
    },
}
