//! A supervisor whose job is over rests for a while: the next task in the process that started it gets it with all that it has
//! imported, which takes seconds. Another one is started in advance, and imports while its process reads data.
//!
//! Invariants:
//! - **RE-1** Whoever rests has no worker, and no line to a driver.
//! - **RE-2** It ends when the process that started it ends, when it is told to, and after some time.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use grampus_net::handover::{Handover, inherit};

/// As long as a program may take from one call to the next, with rows to be read between.
pub(crate) const REST_FOR: Duration = Duration::from_secs(20);
/// As long as the rows for a first call may take to be read.
pub(crate) const AHEAD_FOR: Duration = Duration::from_secs(60);

/// A supervisor that rests.
pub(crate) struct Resting {
    /// Its process.
    pub child: Child,
    /// How it is woken.
    pub waker: Handover,
    /// With what it was started.
    pub started: Vec<String>,
}

/// The one of this process, which has one task at a time.
static RESTING: Mutex<Option<Resting>> = Mutex::new(None);

impl Resting {
    /// Whether there is one.
    pub(crate) fn is_there() -> bool {
        RESTING.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Keeps it for the next task.
    pub(crate) fn keep(self) {
        let before = RESTING
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace(self);
        // Of a task beside this.
        if let Some(other) = before {
            other.end();
        }
    }

    /// Wakes the one that was started in the same way, with another line, if there is one.
    pub(crate) fn wake(started: &[String], line: [BorrowedFd<'_>; 3]) -> Option<(Child, Handover)> {
        let mut resting = RESTING.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let lives = matches!(resting.child.try_wait(), Ok(None));
        if !lives || resting.started != started || resting.waker.give(line).is_err() {
            resting.end();
            return None;
        }
        // If it ends at this very moment, its line breaks, and another is started.
        Some((resting.child, resting.waker))
    }

    fn end(mut self) {
        // It has nobody to end, and nothing to say.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A place to rest for the process that a command starts, which gets its number as its last argument. Its second end must live
/// until then.
pub(crate) fn place_for(command: &mut Command) -> io::Result<(Handover, Handover)> {
    let (waker, place) = Handover::pair()?;
    let number = place.number();
    command.arg(number.to_string());
    // SAFETY: the closure makes one system call, and allocates nothing.
    unsafe {
        command.pre_exec(move || inherit(number));
    }
    Ok((waker, place))
}
