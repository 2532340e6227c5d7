//! The worker's side.

use std::time::Duration;

use grampus_cluster::agent::{self, Introduction, Way, Work};
use grampus_core::{Failure, JoinString, Outcome, TaskId, WorkerId};
use pyo3::prelude::*;

use crate::error::Result;
use crate::payload::Payload;

/// How often a worker that waits looks for signals that Python should handle.
const LOOK_UP: Duration = Duration::from_millis(500);

/// The connection of a worker to its coordinator.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct Agent(agent::Agent);

/// One task for this worker.
#[pyclass(module = "grampus._native", frozen, get_all)]
pub(crate) struct Assignment {
    task: u64,
    environment: Vec<(&'static str, String)>,
    payload: Py<Payload>,
}

#[pymethods]
impl Agent {
    /// Joins. Must be called on the main thread: a cancelled task is interrupted there.
    #[new]
    fn join(
        py: Python<'_>,
        join: &str,
        worker: u64,
        slot: u32,
        host: String,
        silent_after_ms: u64,
    ) -> Result<Self> {
        let join: JoinString = join.parse()?;
        // SAFETY: asks for the calling thread's id only.
        let main = unsafe { libc::pthread_self() };
        let on_cancel = move |_: &str| {
            // SAFETY: the main thread of a worker lives as long as its process.
            unsafe { libc::pthread_kill(main, libc::SIGINT) };
        };
        let introduction = Introduction {
            worker: WorkerId(worker),
            slot: Some(slot),
            ranks: 1,
            node: false,
            host,
            silent_after: Duration::from_millis(silent_after_ms),
            on_cancel: Box::new(on_cancel),
            on_lost: Box::new(agent::leave),
        };
        Ok(Self(py.detach(|| {
            agent::Agent::join(Way::Connect(join), introduction)
        })?))
    }

    /// The next task; `None` when the job is over.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Assignment>> {
        loop {
            match py.detach(|| self.0.next(LOOK_UP)) {
                None => py.check_signals()?,
                Some(Work::Stop { .. } | Work::Lost { .. }) => return Ok(None),
                Some(Work::Task(assignment)) => return assigned(py, *assignment).map(Some),
            }
        }
    }

    /// From now on the task may be interrupted; false where it is not to run at all.
    fn begin(&self, task: u64) -> bool {
        self.0.begin(TaskId(task))
    }

    /// From now on nothing is interrupted; an interrupt that was on its way is raised here. True where the
    /// task was told to end.
    fn settle(&self, py: Python<'_>) -> PyResult<bool> {
        let told = self.0.settle();
        py.check_signals()?;
        Ok(told)
    }

    /// The task returned.
    fn returned(&self, task: u64, payload: &Payload, wrote: bool) {
        self.0.finish(TaskId(task), Outcome::Ok, payload.inner(), wrote);
    }

    /// The task ended as it was told to.
    fn cancelled(&self, task: u64, wrote: bool) {
        self.0.finish(
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
        self.0.finish(
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
        payload,
    } = assignment;
    // A Python worker carries one rank.
    let place = places.swap_remove(0);
    Ok(Assignment {
        task: task.id.0,
        environment: place.environment(task.restarts),
        payload: Py::new(py, Payload::new(payload))?,
    })
}
