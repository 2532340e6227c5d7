//! The worker's side.

use std::time::Duration;

use bytes::Bytes;
use grampus_cluster::agent::{self, Introduction, Way, Work};
use grampus_core::{Failure, JoinString, Outcome, TaskId, WorkerId};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::collective::Lobby;
use crate::error::{Error, Result};
use crate::payload::Payload;
use crate::whereabouts::{HERE, Witness};

/// How often a worker that waits looks for signals that Python should handle.
const LOOK_UP: Duration = Duration::from_millis(500);

/// The connection of a worker to its coordinator.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct Agent {
    inner: agent::Agent,
    lobby: Lobby,
    /// Name of this worker's host, for people.
    #[pyo3(get)]
    host: String,
}

/// One task for this worker.
#[pyclass(module = "grampus._native", frozen, get_all)]
pub(crate) struct Assignment {
    task: u64,
    environment: Vec<(&'static str, String)>,
    payload: Py<Payload>,
    rank: u32,
    cards: Vec<(String, Vec<u8>)>,
}

#[pymethods]
impl Agent {
    /// Joins. Must be called on the main thread: a cancelled task is interrupted there. `stacks` are a signal whose handler writes
    /// the stacks of all threads, and the file to which it does.
    #[new]
    fn join(
        py: Python<'_>,
        join: &str,
        worker: u64,
        slot: u32,
        host: String,
        silent_after_ms: u64,
        stacks: (i32, i32),
    ) -> Result<Self> {
        let join: JoinString = join.parse()?;
        // SAFETY: asks for the calling thread's id only.
        let main = unsafe { libc::pthread_self() };
        let on_cancel = move |_: &str| {
            // SAFETY: the main thread of a worker lives as long as its process.
            unsafe { libc::pthread_kill(main, libc::SIGINT) };
        };
        // As the cluster calls it.
        let host = if host.is_empty() {
            grampus_cluster::host::name()
        } else {
            host
        };
        let lobby = Lobby::of(&join, &host)?;
        let witness = Witness::new(host.clone(), main, stacks);
        let introduction = Introduction {
            worker: WorkerId(worker),
            slot: Some(slot),
            ranks: 1,
            node: false,
            host,
            card: lobby.bytes(),
            silent_after: Duration::from_millis(silent_after_ms),
            on_cancel: Box::new(on_cancel),
            on_rank_lost: lobby.on_rank_lost(),
            on_inspect: Box::new(move |idle| witness.tell(idle)),
            on_lost: Box::new(agent::leave),
        };
        let host = introduction.host.clone();
        let inner = py.detach(|| agent::Agent::join(Way::Connect(join), introduction))?;
        Ok(Self { inner, lobby, host })
    }

    /// The next task; `None` when the job is over.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Assignment>> {
        loop {
            match py.detach(|| self.inner.next(LOOK_UP)) {
                None => py.check_signals()?,
                Some(Work::Stop { .. } | Work::Lost { .. }) => return Ok(None),
                Some(Work::Task(assignment)) => return assigned(py, *assignment).map(Some),
            }
        }
    }

    /// Where this worker forms groups with the others.
    fn lobby(&self) -> Lobby {
        self.lobby.clone()
    }

    /// From now on the task may be interrupted; false where it is not to run at all.
    fn begin(&self, task: u64) -> bool {
        HERE.begin();
        self.inner.begin(TaskId(task))
    }

    /// Whether the task is asked to end where it can go on later; and then, whether to save what it has.
    fn asked_to_yield(&self) -> Option<bool> {
        self.inner.asked_to_yield()
    }

    /// From now on nothing is interrupted; an interrupt that was on its way is raised here. True where the
    /// task was told to end.
    fn settle(&self, py: Python<'_>) -> PyResult<bool> {
        let told = self.inner.settle();
        py.check_signals()?;
        Ok(told)
    }

    /// Sends something to the driver while the task runs, and waits until it has left this process. Any thread
    /// may call it.
    fn report(&self, py: Python<'_>, task: u64, body: &[u8]) -> PyResult<()> {
        let body = Bytes::copy_from_slice(body);
        let mut receipt = self.inner.report(TaskId(task), body).map_err(Error::from)?;
        while !py.detach(|| receipt.wait(LOOK_UP)) {
            py.check_signals()?;
        }
        Ok(())
    }

    /// From now on a task that runs while the driver is lost may take so long to save what it has.
    fn outlive(&self, seconds: f64) -> PyResult<()> {
        let grace =
            Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.inner.outlive(grace);
        Ok(())
    }

    /// Says that this worker leaves once its task has ended.
    fn leaves(&self) {
        self.inner.leaves();
    }

    /// Waits until all that was said has left this process.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let mut receipt = self.inner.flush();
        while !py.detach(|| receipt.wait(LOOK_UP)) {
            py.check_signals()?;
        }
        Ok(())
    }

    /// The task returned.
    fn returned(&self, task: u64, payload: &Payload, wrote: bool) {
        self.inner
            .finish(TaskId(task), Outcome::Ok, payload.inner(), wrote);
    }

    /// The task ended as it was told to.
    fn cancelled(&self, task: u64, wrote: bool) {
        self.inner.finish(
            TaskId(task),
            Outcome::Cancelled,
            grampus_cluster::Payload::default(),
            wrote,
        );
    }

    /// The task raised.
    #[expect(clippy::too_many_arguments, reason = "what is known of one exception")]
    fn raised(
        &self,
        task: u64,
        kind: String,
        message: String,
        traceback: String,
        consequence: bool,
        payload: Option<&Payload>,
        wrote: bool,
    ) {
        let failure = Failure::Raised {
            kind,
            message,
            traceback,
            consequence,
        };
        let payload = payload.map(Payload::inner).unwrap_or_default();
        self.inner.finish(
            TaskId(task),
            Outcome::Failed {
                local: 0,
                pid: None,
                failure,
            },
            payload,
            wrote,
        );
    }
}

fn assigned(py: Python<'_>, assignment: agent::Assignment) -> PyResult<Assignment> {
    let agent::Assignment {
        task,
        mut places,
        cards,
        payload,
    } = assignment;
    // A Python worker carries one rank.
    let place = places.swap_remove(0);
    Ok(Assignment {
        task: task.id.0,
        environment: place.environment(task.restarts),
        payload: Py::new(py, Payload::new(payload))?,
        rank: place.rank,
        cards,
    })
}
