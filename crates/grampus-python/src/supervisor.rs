//! The supervisor's side.

use std::os::fd::IntoRawFd;
use std::time::Duration;

use grampus_cluster::supervisor::{self, Configure, Next, Program};
use grampus_cluster::tunnel;
use grampus_net::handover::Handover;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::error::{Error, Result};

/// The supervisor of this host. One thread only: everything but `next` is quick.
#[pyclass(module = "grampus._native", unsendable)]
pub(crate) struct Supervisor(Option<supervisor::Supervisor>);

/// What a freshly forked process needs to become a worker.
#[pyclass(module = "grampus._native", unsendable)]
pub(crate) struct Entry {
    entry: Option<supervisor::Entry>,
    #[pyo3(get)]
    worker: u64,
    #[pyo3(get)]
    slot: u32,
}

impl Supervisor {
    fn inner(&mut self) -> PyResult<&mut supervisor::Supervisor> {
        self.0
            .as_mut()
            .ok_or_else(|| PyRuntimeError::new_err("this process is no supervisor any more"))
    }

    fn configure(&self) -> PyResult<&Configure> {
        let inner = self.0.as_ref().map(supervisor::Supervisor::configure);
        inner.ok_or_else(|| PyRuntimeError::new_err("this process is no supervisor any more"))
    }
}

#[pymethods]
impl Supervisor {
    /// Takes over standard input and output, and reads what the driver wants. With the descriptor that the command named, if it
    /// did, at which it may rest.
    #[staticmethod]
    fn attach(place: Option<i32>) -> Result<Self> {
        let place = place.map(inherited).transpose()?;
        Ok(Self(Some(supervisor::Supervisor::attach(place)?)))
    }

    /// The same in a process that was started in advance, once there is a job for it; nothing where there is none in time.
    #[staticmethod]
    fn await_call(place: i32) -> Result<Option<Self>> {
        let called = supervisor::Supervisor::await_call(inherited(place)?)?;
        Ok(called.map(|supervisor| Self(Some(supervisor))))
    }

    /// Once the job is over: waits a while for another one; false where there is none, and this process has to end.
    fn rest(&mut self) -> Result<bool> {
        if let Some(ended) = self.0.take() {
            self.0 = ended.rest()?;
        }
        Ok(self.0.is_some())
    }

    #[getter]
    fn join(&self) -> PyResult<String> {
        Ok(self.configure()?.join.clone())
    }

    #[getter]
    fn host(&self) -> PyResult<String> {
        Ok(self.configure()?.host.clone())
    }

    #[getter]
    fn threads(&self) -> PyResult<u32> {
        Ok(self.configure()?.threads())
    }

    #[getter]
    fn silent_after_ms(&self) -> PyResult<u64> {
        Ok(self.configure()?.silent_after_ms)
    }

    #[getter]
    fn preload(&self) -> PyResult<Vec<String>> {
        Ok(self.configure()?.preload.clone())
    }

    #[getter]
    fn sys_path(&self) -> PyResult<Vec<String>> {
        Ok(self.configure()?.sys_path.clone())
    }

    #[getter]
    fn directory(&self) -> PyResult<Option<String>> {
        Ok(self
            .configure()?
            .directory
            .as_ref()
            .map(|path| path.to_string_lossy().into_owned()))
    }

    #[getter]
    fn folder(&self) -> PyResult<Option<String>> {
        Ok(self.configure()?.folder())
    }

    /// Workers may be started, by forking or with a command; the note is shown to the user.
    fn ready(&mut self, forks: bool, note: String, worker: Vec<String>) -> PyResult<()> {
        let worker = worker.split_first().map(|(program, arguments)| Program {
            program: program.clone(),
            arguments: arguments.to_vec(),
            environment: Vec::new(),
        });
        self.inner()?
            .ready(forks, note, worker)
            .map_err(|error| Error::from(error).into())
    }

    /// Works until a fork is wanted; `None` when the job is over.
    fn next(&mut self) -> PyResult<Option<Entry>> {
        match self.inner()?.serve().map_err(Error::from)? {
            Next::End => Ok(None),
            Next::Fork(entry) => {
                let (worker, slot) = (entry.launch().worker.0, entry.launch().slot);
                Ok(Some(Entry {
                    entry: Some(entry),
                    worker,
                    slot,
                }))
            }
        }
    }

    /// Ends every process that is left and removes the job's folder; a second call finds nothing.
    fn end(&mut self) {
        if let Some(inner) = &mut self.0 {
            inner.end();
        }
    }

    /// In the parent, after a fork.
    fn adopt(&mut self, pid: u32) -> PyResult<()> {
        self.inner()?
            .adopt(pid)
            .map_err(|error| Error::from(error).into())
    }

    /// The fork that was wanted failed.
    fn give_up_fork(&mut self, why: &str) -> PyResult<()> {
        self.inner()?
            .give_up_fork(why)
            .map_err(|error| Error::from(error).into())
    }

    /// In the child, after a fork: lets go of all that belongs to the supervisor.
    fn abandon(&mut self) {
        self.0 = None;
    }
}

#[pymethods]
impl Entry {
    /// Makes this process a worker: own process group and output, and an end when the supervisor ends.
    /// Returns the descriptor of the pipe for its notices.
    fn enter(&mut self) -> PyResult<i32> {
        match self.entry.take() {
            Some(entry) => Ok(entry.enter()?.into_raw_fd()),
            None => Err(PyRuntimeError::new_err("this process is a worker already")),
        }
    }
}

fn inherited(number: i32) -> std::io::Result<Handover> {
    // SAFETY: the process was started with it, for this alone.
    unsafe { Handover::inherited(number) }
}

/// Runs a supervisor that starts programs only, until its driver is gone.
#[pyfunction]
pub(crate) fn supervise() -> Result<()> {
    Ok(supervisor::supervise(None)?)
}

/// Calls the driver that a join string names, for a place of its job, and serves it with a supervisor until it needs none any more.
#[pyfunction]
pub(crate) fn serve_tunnel(
    py: Python<'_>,
    join: &str,
    slot: u32,
    command: Vec<String>,
    environment: Vec<(String, String)>,
    silent_after_ms: u64,
) -> Result<()> {
    let call = tunnel::Call {
        join: join.parse::<grampus_core::JoinString>()?,
        slot,
        command,
        environment,
        silent_after: Duration::from_millis(silent_after_ms),
    };
    Ok(py.detach(|| tunnel::serve(&call))?)
}

/// Starts a supervisor in advance, which imports modules and waits for the next call of `serve_tunnel` with the same command and
/// environment, unless one waits already.
#[pyfunction]
pub(crate) fn prepare_supervisor(
    command: Vec<String>,
    environment: Vec<(String, String)>,
    modules: Vec<String>,
) -> Result<()> {
    Ok(tunnel::prepare(&command, &environment, &modules)?)
}
