//! Where this worker stands, and its answer to a driver that asks for it while the main thread is busy or stuck.

use std::fs::File;
use std::io::{Read, Seek};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::sync::LazyLock;
use std::time::Duration;

use grampus_core::{Clock, SystemClock};
use grampus_train::whereabouts::{Phase, Wait, Whereabouts};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Most bytes of stacks that an answer holds: a report carries 1 MiB, and quotation marks take room.
const STACKS: u64 = 256 << 10;

pub(crate) static HERE: LazyLock<Here> = LazyLock::new(|| Here {
    clock: SystemClock::start(),
    at: Whereabouts::default(),
});

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(enter, module)?)?;
    module.add_function(wrap_pyfunction!(advance, module)?)?;
    module.add_function(wrap_pyfunction!(spent, module)?)
}

/// The record of this process, and the clock of its times.
pub(crate) struct Here {
    clock: SystemClock,
    at: Whereabouts,
}

impl Here {
    pub fn begin(&self) {
        self.at.begin(self.clock.now());
    }

    pub fn waits(&self, wait: Option<Wait>) {
        self.at.waits(wait);
    }

    pub fn parts(&self) -> (&SystemClock, &Whereabouts) {
        (&self.clock, &self.at)
    }
}

/// From now on this worker is in this phase of its work.
#[pyfunction]
fn enter(phase: &str) -> PyResult<()> {
    HERE.at.enter(named(phase)?, HERE.clock.now());
    Ok(())
}

/// This worker has finished something.
#[pyfunction]
fn advance() {
    HERE.at.advance(HERE.clock.now());
}

/// Seconds that this worker has been in a phase since its task began.
#[pyfunction]
fn spent(phase: &str) -> PyResult<f64> {
    Ok(HERE.at.spent(named(phase)?).as_secs_f64())
}

fn named(phase: &str) -> PyResult<Phase> {
    Phase::named(phase).ok_or_else(|| PyValueError::new_err(format!("there is no phase {phase:?}")))
}

/// Tells of this process, from another thread than the one it tells of.
pub(crate) struct Witness {
    host: String,
    main: libc::pthread_t,
    signal: i32,
    /// Belongs to Python, which keeps it open while the process lives.
    file: i32,
}

impl Witness {
    /// Of the process whose main thread is `main`.
    pub fn new(host: String, main: libc::pthread_t, (signal, file): (i32, i32)) -> Self {
        Self {
            host,
            main,
            signal,
            file,
        }
    }

    /// Where the process stands, as JSON, with its stacks where it has done nothing for so long.
    pub fn tell(&self, idle: Duration) -> Vec<u8> {
        let standing = HERE.at.read(HERE.clock.now());
        let stacks = (standing.idle >= idle).then(|| self.stacks()).flatten();
        let told = serde_json::json!({
            "kind": "whereabouts",
            "host": self.host,
            "pid": std::process::id(),
            "phase": standing.phase.name(),
            "seconds": standing.in_phase.as_secs_f64(),
            "idle": standing.idle.as_secs_f64(),
            "epoch": standing.epoch,
            "step": standing.step,
            "rows": standing.rows,
            "waits_for": standing.waits_for.map(Wait::name),
            "main": format!("{:#018x}", self.main),
            "stacks": stacks,
        });
        told.to_string().into_bytes()
    }

    /// The Python stacks of all threads. The handler needs no interpreter lock, and runs on this very thread, before the call that
    /// raises the signal returns: nobody else is interrupted.
    fn stacks(&self) -> Option<String> {
        // SAFETY: the descriptor stays open as long as the process lives; not ours to close.
        let mut file = ManuallyDrop::new(unsafe { File::from_raw_fd(self.file) });
        file.set_len(0).ok()?;
        file.rewind().ok()?;
        if !self.is_handled() {
            return None;
        }
        // SAFETY: a signal to the calling thread, for which there is a handler.
        unsafe { libc::pthread_kill(libc::pthread_self(), self.signal) };
        file.rewind().ok()?;
        let mut bytes = Vec::new();
        file.by_ref().take(STACKS).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Code of the user may have put the signal back to what it does by default: it would end the process.
    fn is_handled(&self) -> bool {
        // SAFETY: asks for the present handler, and changes nothing.
        unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            let asked = libc::sigaction(self.signal, std::ptr::null(), &mut now);
            asked == 0 && now.sa_sigaction != libc::SIG_DFL && now.sa_sigaction != libc::SIG_IGN
        }
    }
}
