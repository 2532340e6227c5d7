//! The supervisor: one process per host that owns every worker process there, and all that they start.
//!
//! It has one thread and no async runtime, so that it may fork: workers forked from it share the modules
//! that it has imported. A second thread, which begins when it is ready, only writes log files: it holds no lock that a forked
//! worker needs. The supervisor is their parent, the parent of their orphans (child subreaper), the reader of
//! their output, and the one who ends them. It takes [`Order`]s from the driver on its standard input and
//! answers with [`Report`]s on its standard output.
//!
//! Invariants:
//! - **SU-1** When the supervisor ends for whatever reason short of `kill -9`, no descendant of it lives.
//! - **SU-2** When it is killed with `kill -9`, its workers die with it (parent-death signal), and the
//!   driver ends their process groups.
//! - **SU-3** When the driver ends for whatever reason, the supervisor notices (end of input, and the
//!   driver's pidfd, which no forked child of the driver can hold open) and does SU-1. Before it is ready,
//!   while Python modules are imported, a parent-death signal (SIGTERM) stands in for that. Workers that have asked for time to save
//!   what they have get it first, up to a bound.
//! - **SU-4** The end of a worker, or of one of its tasks, is reported after all output that came before it.

mod child;
mod control;
mod core;
mod files;
mod logs;
mod message;
mod resting;
mod signals;
mod start;
mod tree;

pub use child::{Entry, Stdio};
pub use core::{Next, Supervisor};
pub use message::{Configure, Launch, Order, Program, Report, Stream};
pub(crate) use signals::expect_children;
pub use tree::{kill_group, terminate_group};

/// The variable in which a process is told what it is to be, if it can be several things, and by whom: `supervisor:4711`. It is meant
/// for children of that process alone, whatever they pass on.
pub const ROLE: &str = "GRAMPUS_ROLE";
/// The role of a supervisor.
pub const SUPERVISOR: &str = "supervisor";

/// Why a supervisor cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// The kernel refused something.
    #[error("the supervisor could not {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The driver sent something that is not an order.
    #[error("the supervisor cannot read its orders: {0}")]
    Orders(#[from] grampus_net::NetError),
    /// The driver ended before it said what to do.
    #[error("the driver ended before it sent its configuration")]
    NoDriver,
}

impl SupervisorError {
    fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::System {
            what,
            source: errno.into(),
        }
    }
}

/// Runs a supervisor that starts programs only, until its driver is gone: each order names one, or it is this one.
pub fn supervise(worker: Option<Program>) -> Result<(), SupervisorError> {
    let mut supervisor = Supervisor::attach(None)?;
    supervisor.ready(false, String::new(), worker)?;
    loop {
        if let Next::End = supervisor.serve()? {
            return Ok(());
        }
    }
}
