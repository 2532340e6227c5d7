//! What can go wrong in a worker, as values that travel whole: never flattened to text on the way.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Rank;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// It returned a code by itself.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// The kernel ended it for lack of memory.
    OutOfMemory,
}

impl Exit {
    /// The exit code that a shell would show: 128 + signal for a signal.
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
            Self::OutOfMemory => 128 + 9,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => write!(f, "was killed by signal {signal} ({})", signal_name(*signal)),
            Self::OutOfMemory => f.write_str(
                "was killed by the kernel for lack of memory: use fewer workers or smaller batches",
            ),
        }
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        _ => "see `kill -l`",
    }
}

/// Why one rank did not finish its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// The user's function raised. The exception itself travels beside this, in the frame's payload.
    Raised {
        /// Name of the exception's type.
        kind: String,
        /// Its message.
        message: String,
        /// The traceback as the worker would have printed it.
        traceback: String,
        /// The worker believes that another rank's end caused this one, for example a reset connection.
        consequence: bool,
    },
    /// The process ended.
    Exited {
        /// How.
        exit: Exit,
        /// Its last lines of output.
        log_tail: String,
    },
    /// Nothing was heard of it for so long that it was given up.
    Silent {
        /// Milliseconds since its last sign of life.
        millis: u64,
    },
    /// Its connection broke while its process may still run.
    LinkLost {
        /// What the network said.
        why: String,
    },
    /// It could not be started.
    NotStarted {
        /// What the launcher said.
        why: String,
    },
}

impl Failure {
    /// True where the process is gone, or as good as gone, whatever it was doing.
    pub fn is_loss(&self) -> bool {
        matches!(
            self,
            Self::Exited { .. } | Self::Silent { .. } | Self::LinkLost { .. }
        )
    }

    /// True where this looks like the effect of another rank's failure rather than a cause.
    pub fn is_consequence(&self) -> bool {
        matches!(
            self,
            Self::Raised {
                consequence: true,
                ..
            }
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Raised { kind, message, .. } if message.is_empty() => write!(f, "raised {kind}"),
            Self::Raised { kind, message, .. } => write!(f, "raised {kind}: {message}"),
            Self::Exited { exit, .. } => exit.fmt(f),
            Self::Silent { millis } => write!(
                f,
                "gave no sign of life for {:.1} s (stopped, swapped out or cut off); it was ended",
                *millis as f64 / 1000.0
            ),
            Self::LinkLost { why } => write!(f, "lost its connection: {why}"),
            Self::NotStarted { why } => write!(f, "could not be started: {why}"),
        }
    }
}

/// A failure with the place it happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankFailure {
    /// Which rank.
    pub rank: Rank,
    /// Name of its host.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// What happened.
    pub failure: Failure,
}

impl fmt::Display for RankFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} on {}", self.rank, self.host)?;
        if self.pid != 0 {
            write!(f, " (pid {})", self.pid)?;
        }
        write!(f, " {}", self.failure)?;
        if let Failure::Exited { log_tail, .. } = &self.failure
            && !log_tail.trim().is_empty()
        {
            write!(f, "\nits last lines of output:\n{}", indent(log_tail))?;
        }
        Ok(())
    }
}

fn indent(text: &str) -> String {
    text.trim_end()
        .lines()
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Why a task failed: the first cause, and how much followed from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskFailure {
    /// A rank failed first; the others were cancelled.
    Rank {
        /// The first cause.
        first: Box<RankFailure>,
        /// Ranks that failed too, after it or because of it.
        folded: Vec<Rank>,
    },
    /// The driver asked for the end, for example through Ctrl-C.
    Cancelled {
        /// Why.
        why: String,
    },
    /// The cluster cannot run it: not enough workers in time, stopped, or failed for good.
    Cluster {
        /// The last sentence of the coordinator.
        why: String,
    },
}

impl fmt::Display for TaskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank { first, folded } => {
                first.fmt(f)?;
                match folded.len() {
                    0 => Ok(()),
                    1 => write!(f, "\n(rank {} failed after it)", folded[0]),
                    count => write!(f, "\n({count} other ranks failed after it)"),
                }
            }
            Self::Cancelled { why } => write!(f, "cancelled: {why}"),
            Self::Cluster { why } => f.write_str(why),
        }
    }
}
