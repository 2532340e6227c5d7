//! What the driver and a host's supervisor say to each other.

use std::path::PathBuf;

use grampus_core::WorkerId;
use serde::{Deserialize, Serialize};

use crate::launcher::LaunchEvent;

/// Sent once, first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Configure {
    /// The join string, for the workers. Empty where they are programs that do not join.
    pub join: String,
    /// Name of this host as the driver calls it; empty takes the machine's own.
    pub host: String,
    /// The driver's process, where it runs on this host.
    pub driver: Option<u32>,
    /// Threads for each worker; 0 divides the cores of this host by its workers.
    pub threads: u32,
    /// Workers on this host.
    pub workers: u32,
    /// Milliseconds after which a silent peer is given up.
    pub silent_after_ms: u64,
    /// Python modules to import once, before workers are forked.
    pub preload: Vec<String>,
    /// The driver's module search path.
    pub sys_path: Vec<String>,
    /// The driver's working folder.
    pub directory: Option<PathBuf>,
    /// A file per rank is written here.
    pub log_dir: Option<PathBuf>,
    /// Send output to the driver as well.
    pub forward_output: bool,
    /// The job's folder, to be removed if the driver dies before it could do so itself. What workers put there does not outlive
    /// the job, however they end.
    pub remove: Option<PathBuf>,
}

impl Configure {
    /// The job's folder on this host, if it has one.
    pub fn folder(&self) -> Option<String> {
        let folder = self.remove.as_ref()?;
        Some(folder.to_string_lossy().into_owned())
    }

    /// Threads for each worker, once it is known on which host.
    pub fn threads(&self) -> u32 {
        match self.threads {
            0 => crate::host::threads_per_worker(crate::host::cores(), self.workers),
            threads => threads,
        }
    }
}

/// A program to run as a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// What to run.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables to set for it.
    pub environment: Vec<(String, String)>,
}

/// One process to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Its id.
    pub worker: WorkerId,
    /// Its place in the job.
    pub slot: u32,
    /// Number shown before its output, and in the name of its log file.
    pub rank: u32,
    /// What to run, where it is not what this supervisor starts by itself.
    pub program: Option<Program>,
}

/// From the driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// The first order.
    Configure(Box<Configure>),
    /// Start a process.
    Start(Launch),
    /// End a process and its process group.
    Kill(WorkerId),
    /// Ask a process and its process group to end, with this signal.
    Signal(WorkerId, i32),
    /// A sign of life, for supervisors that cannot see the driver's process.
    Alive,
    /// End everything, then yourself. The end of input means the same, but a forked child of the driver may
    /// hold that open.
    End,
}

/// Standard output or standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// To the driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Report {
    /// Configured; workers may be started.
    Ready {
        /// Workers are forked from this process, and share what it imported.
        forks: bool,
        /// What a person should know of it, if anything.
        note: String,
    },
    /// What happened to a process.
    Event(LaunchEvent),
    /// A log file cannot be made, and the job is about to begin.
    LogNotMade {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// A sign of life.
    Alive,
    /// The supervisor has ended: said by whoever had started it, where that is not the driver.
    Gone {
        /// How.
        how: String,
        /// What it wrote last to its standard error.
        words: String,
    },
}
