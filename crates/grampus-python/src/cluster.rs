//! The driver's side.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use grampus_cluster::driver::{self, Happened, Ranks, TaskEnd};
use grampus_cluster::launch::{self, HostSpec, Place, Spec};
use grampus_cluster::launcher::Engine;
use grampus_cluster::supervisor::Stream;
use grampus_core::{Failure, TaskFailure, TaskId};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{GrampusError, Result};
use crate::payload::Payload;

/// How often a waiting driver looks for Ctrl-C.
const LOOK_UP: Duration = Duration::from_millis(50);

/// A running cluster.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct Cluster {
    inner: Mutex<Option<driver::Cluster>>,
    board: Arc<driver::Board>,
    #[pyo3(get)]
    job: String,
    /// Places for which an engine is to start a supervisor.
    summoned: Mutex<mpsc::Receiver<(u32, u64)>>,
    awaited: Awaited,
}

/// Requests for supervisors that none has answered.
type Awaited = Arc<Mutex<BTreeSet<u64>>>;

/// Passes requests on to whoever asks for them.
struct Requests {
    queue: mpsc::Sender<(u32, u64)>,
    awaited: Awaited,
}

impl Engine for Requests {
    fn summon(&self, slot: u32, summons: u64) {
        self.awaited
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(summons);
        // Whoever has let go of the cluster starts nobody any more.
        let _ = self.queue.send((slot, summons));
    }

    fn answered(&self, summons: u64) {
        self.awaited
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&summons);
    }
}

type Cancel = Box<dyn Fn(TaskId, &str) + Send + Sync>;
type Yield = Box<dyn Fn(TaskId, bool) + Send + Sync>;
type Inspect = Box<dyn Fn(TaskId, Duration) + Send + Sync>;

/// Something that workers do. Whoever loses it, for example to an interrupt, has ended it.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct Task {
    id: TaskId,
    board: Arc<driver::Board>,
    cancel: Cancel,
    ask_to_yield: Yield,
    inspect: Inspect,
    closed: AtomicBool,
}

/// How a task ended.
#[pyclass(module = "grampus._native", frozen, get_all)]
pub(crate) struct End {
    /// `returned`, `raised`, `died`, `cancelled` or `cluster`.
    kind: &'static str,
    /// What each rank returned; for `raised`, the exception of the first failed rank.
    payloads: Vec<Py<Payload>>,
    /// The failure in words.
    text: String,
    rank: u32,
    host: String,
    pid: u32,
    exit_code: Option<i32>,
    traceback: String,
    /// Last lines of output of a rank that died; the console has shown them.
    output: String,
    folded: Vec<u32>,
}

/// One line of a worker's output.
#[pyclass(module = "grampus._native", frozen, get_all)]
pub(crate) struct Line {
    rank: u32,
    error: bool,
    text: String,
}

/// What a wait brought.
#[pyclass(module = "grampus._native", frozen, get_all)]
pub(crate) struct News {
    lines: Vec<Py<Line>>,
    skipped: u64,
    notes: Vec<String>,
    /// Rank and bytes, in the order in which they came; before the end.
    reports: Vec<(u32, Py<PyBytes>)>,
    skipped_reports: u64,
    end: Option<Py<End>>,
}

impl Cluster {
    fn lock(&self) -> MutexGuard<'_, Option<driver::Cluster>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Cluster {
    /// Starts a cluster. `hosts` is empty for this machine, or a list of (name, command) where the command
    /// starts a supervisor there; with an `engine`, whoever asks `summoned` has supervisors started.
    #[staticmethod]
    #[pyo3(signature = (*, workers, supervisor, title, hosts, engine, address, bind, port, threads, preload, sys_path, directory, log_dir, start_timeout, heartbeat_timeout))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of one call")]
    fn start(
        py: Python<'_>,
        workers: u32,
        supervisor: Vec<String>,
        title: String,
        hosts: Vec<(String, Vec<String>)>,
        engine: Option<String>,
        address: Option<String>,
        bind: Option<String>,
        port: u16,
        threads: u32,
        preload: Vec<String>,
        sys_path: Vec<String>,
        directory: Option<PathBuf>,
        log_dir: Option<PathBuf>,
        start_timeout: f64,
        heartbeat_timeout: f64,
    ) -> Result<Self> {
        let hosts = hosts.into_iter();
        let hosts: Vec<HostSpec> = hosts.map(|(name, command)| HostSpec { name, command }).collect();
        let place = match engine {
            Some(engine) => Place::Engine(engine),
            None if hosts.is_empty() => Place::Here,
            None => Place::Hosts(hosts),
        };
        let spec = Spec {
            workers,
            supervisor,
            title,
            place,
            address,
            bind,
            port,
            threads,
            preload,
            sys_path,
            directory,
            log_dir,
            join_within: seconds(start_timeout)?,
            silent_after: seconds(heartbeat_timeout)?,
        };
        let (queue, summoned) = mpsc::channel();
        let awaited = Awaited::default();
        let requests = Requests {
            queue,
            awaited: Arc::clone(&awaited),
        };
        let cluster = py.detach(|| launch::start(spec, Box::new(requests)))?;
        let (board, job) = (cluster.board_handle(), cluster.job().to_string());
        Ok(Self {
            inner: Mutex::new(Some(cluster)),
            board,
            job,
            summoned: Mutex::new(summoned),
            awaited,
        })
    }

    /// The folder of the log files, one per rank; `None` once it was stopped.
    fn logs(&self) -> Option<PathBuf> {
        self.lock().as_ref().map(|cluster| cluster.logs().to_owned())
    }

    /// What a supervisor needs that calls. It holds the key of the job: it must go no way that others can read.
    fn join(&self) -> Option<String> {
        let cluster = self.lock();
        let join = cluster.as_ref().and_then(driver::Cluster::join);
        join.map(grampus_core::JoinString::reveal)
    }

    /// The next place for which an engine is to start a supervisor, with the number of the request; `None` if there is none
    /// for a moment.
    fn summoned(&self, py: Python<'_>) -> Option<(u32, u64)> {
        py.detach(|| {
            let summoned = self.summoned.lock().unwrap_or_else(PoisonError::into_inner);
            summoned.recv_timeout(LOOK_UP).ok()
        })
    }

    /// Whether no supervisor has called yet that was asked for with this number.
    fn awaits(&self, summons: u64) -> bool {
        let awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        awaited.contains(&summons)
    }

    /// The supervisor that was asked for with this number will not call, for this reason.
    fn not_coming(&self, summons: u64, why: &str) {
        if let Some(cluster) = &*self.lock() {
            cluster.not_coming(summons, why);
        }
    }

    /// Waits until all workers have joined; raises where they do not.
    fn wait_ready(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let slices = (seconds / LOOK_UP.as_secs_f64()).ceil() as u64;
        for _ in 0..slices.max(1) {
            match py.detach(|| self.board.wait_ready(LOOK_UP)) {
                Some(Ok(_)) => return Ok(()),
                Some(Err(why)) => return Err(GrampusError::new_err(why)),
                None => py.check_signals()?,
            }
        }
        Err(GrampusError::new_err(format!(
            "the workers did not join within {seconds:.1} s: raise `start_timeout`"
        )))
    }

    /// Gives at least `least` and at most `most` ranks something to do. The ranks of a patient task notice by themselves
    /// that one is lost.
    #[pyo3(signature = (least, most, payload, patient=false))]
    fn submit(&self, least: u32, most: u32, payload: &Payload, patient: bool) -> PyResult<Task> {
        match &*self.lock() {
            Some(cluster) => Ok(Task {
                id: cluster.submit(Ranks { least, most }, 0, patient, payload.inner()),
                board: Arc::clone(&self.board),
                cancel: Box::new(cluster.canceller()),
                ask_to_yield: Box::new(cluster.yielder()),
                inspect: Box::new(cluster.inspector()),
                closed: AtomicBool::new(false),
            }),
            None => Err(GrampusError::new_err("the cluster was stopped")),
        }
    }

    /// Gives the cluster more places for workers, or fewer.
    fn resize(&self, workers: u32) -> PyResult<()> {
        match &*self.lock() {
            Some(cluster) => {
                cluster.resize(workers);
                Ok(())
            }
            None => Err(GrampusError::new_err("the cluster was stopped")),
        }
    }

    /// Output that was not fetched yet.
    fn take_lines(&self, py: Python<'_>) -> PyResult<News> {
        news(py, self.board.take_lines())
    }

    /// Why the cluster takes no more tasks, if so: it is over, or about to be.
    fn over(&self) -> Option<String> {
        self.board.ending()
    }

    /// Ends the job and everything that belongs to it; false if that took too long.
    fn stop(&self, py: Python<'_>, why: &str, seconds: f64) -> bool {
        // Taken first: the lock must not be held while others ask.
        let cluster = self.lock().take();
        py.detach(|| match cluster {
            Some(mut cluster) => cluster.stop(why, Duration::from_secs_f64(seconds)),
            None => true,
        })
    }
}

#[pymethods]
impl Task {
    /// Waits a moment for the end, for reports or for output. The end is told again where the answer got lost: Python
    /// raises KeyboardInterrupt between any two of its steps.
    fn wait(&self, py: Python<'_>) -> PyResult<News> {
        py.check_signals()?;
        news(py, py.detach(|| self.board.look_at(self.id, LOOK_UP)))
    }

    /// Tells every rank to end it.
    fn cancel(&self, why: &str) {
        (self.cancel)(self.id, why);
    }

    /// Asks every rank of a patient task to end where it can go on later, and to save what it has if so.
    fn ask_to_yield(&self, save: bool) {
        (self.ask_to_yield)(self.id, save);
    }

    /// Asks every rank where it stands; those that have done nothing for so many seconds add their stacks. The answers are reports.
    fn inspect(&self, idle: f64) -> PyResult<()> {
        (self.inspect)(self.id, seconds(idle)?);
        Ok(())
    }

    /// Lets go of it, and cancels it if it runs.
    fn close(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) && !self.board.forget(self.id) {
            (self.cancel)(self.id, "nobody waits for it any more");
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.close();
    }
}

/// Python has checked it; a panic would be the worse answer all the same.
fn seconds(value: f64) -> Result<Duration> {
    Ok(Duration::try_from_secs_f64(value).map_err(std::io::Error::other)?)
}

fn news(py: Python<'_>, happened: Happened) -> PyResult<News> {
    let line = |line: driver::Line| {
        Py::new(
            py,
            Line {
                rank: line.rank,
                error: line.stream == Stream::Err,
                text: line.text,
            },
        )
    };
    Ok(News {
        lines: happened.lines.into_iter().map(line).collect::<PyResult<_>>()?,
        skipped: happened.skipped,
        notes: happened.notes,
        reports: happened
            .reports
            .into_iter()
            .map(|(rank, body)| (rank.0, PyBytes::new(py, &body).unbind()))
            .collect(),
        skipped_reports: happened.skipped_reports,
        end: happened.end.map(|end| Py::new(py, ended(py, end)?)).transpose()?,
    })
}

fn ended(py: Python<'_>, end: TaskEnd) -> PyResult<End> {
    let wrap = |payload| Py::new(py, Payload::new(payload));
    let mut answer = End {
        kind: "returned",
        payloads: Vec::new(),
        text: String::new(),
        rank: 0,
        host: String::new(),
        pid: 0,
        exit_code: None,
        traceback: String::new(),
        output: String::new(),
        folded: Vec::new(),
    };
    match end {
        TaskEnd::Returned(payloads) => {
            answer.payloads = payloads.into_iter().map(wrap).collect::<PyResult<_>>()?
        }
        TaskEnd::Failed { mut failure, raised } => {
            answer.output = take_log_tail(&mut failure);
            answer.text = failure.to_string();
            answer.payloads = raised.into_iter().map(wrap).collect::<PyResult<_>>()?;
            describe(&mut answer, failure);
        }
    }
    Ok(answer)
}

/// The last lines of output, which the text of a failure would repeat below the output itself.
fn take_log_tail(failure: &mut TaskFailure) -> String {
    match failure {
        TaskFailure::Rank { first, .. } => match &mut first.failure {
            Failure::Exited { log_tail, .. } => std::mem::take(log_tail),
            _ => String::new(),
        },
        _ => String::new(),
    }
}

fn describe(answer: &mut End, failure: TaskFailure) {
    match failure {
        TaskFailure::Cancelled { .. } => answer.kind = "cancelled",
        TaskFailure::Cluster { .. } => answer.kind = "cluster",
        TaskFailure::Rank { first, folded } => {
            answer.rank = first.rank.0;
            answer.host = first.host;
            answer.pid = first.pid;
            answer.folded = folded.into_iter().map(|rank| rank.0).collect();
            answer.kind = "died";
            match first.failure {
                Failure::Raised { traceback, .. } => {
                    answer.kind = "raised";
                    answer.traceback = traceback;
                }
                Failure::Exited { exit, .. } => answer.exit_code = Some(exit.code()),
                Failure::Silent { .. } | Failure::LinkLost { .. } | Failure::NotStarted { .. } => {}
            }
        }
    }
}
