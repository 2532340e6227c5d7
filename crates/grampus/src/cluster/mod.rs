//! Workers, as a Rust program sees them.

mod ranked;
mod role;
mod task;
mod worker;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use grampus_cluster::driver::{self, Happened, Ranks, TaskEnd};
use grampus_cluster::launch::{self, Place, Spec};
use grampus_cluster::launcher::NoEngine;
use grampus_cluster::supervisor::Stream;
use grampus_core::TaskFailure;
use grampus_train::native::{Event, State};

pub(crate) use task::{Answer, Task, Told};

use crate::error::{Error, Result};
use ranked::Ranked;

/// How often a thread that waits for workers looks up.
const LOOK: Duration = Duration::from_millis(100);
/// Everything of a cluster ends within this; longer means that the machine itself is in trouble.
const STOP_WITHIN: Duration = Duration::from_secs(20);
/// How long a worker may be silent.
const SILENT_AFTER: Duration = Duration::from_secs(3);

/// Finds out what this process is. Call it first in `main`: workers are this very program, started again, and for them it does not
/// return.
///
/// ```no_run
/// # fn main() -> grampus::Result<()> {
/// let cluster = grampus::init()?.workers(4);
/// # Ok(())
/// # }
/// ```
pub fn init() -> Result<Cluster> {
    role::take_up();
    let ranked = Ranked::told()?;
    Ok(Cluster {
        workers: grampus_cluster::host::cores(),
        ranked,
        threads: 0,
        start_within: Duration::from_secs(60),
        log_dir: None,
        quiet: false,
        running: Mutex::new(None),
    })
}

/// Workers on this machine. They are started when there is something to do, stay warm, and end with this value.
///
/// In a program that `grampus run` has started, the workers are its ranks, on one host or on several: each of them runs the whole
/// program, and what it asks for is done by all of them together.
pub struct Cluster {
    workers: u32,
    /// This process is itself one of the workers.
    ranked: Option<Ranked>,
    threads: u32,
    start_within: Duration,
    log_dir: Option<PathBuf>,
    quiet: bool,
    running: Mutex<Option<driver::Cluster>>,
}

impl Cluster {
    /// How many; by default one for each core.
    pub fn workers(self, workers: u32) -> Self {
        Self { workers, ..self }
    }

    /// Threads of each; by default the cores of the machine are shared among them.
    pub fn threads(self, threads: u32) -> Self {
        Self { threads, ..self }
    }

    /// How long they may take to start.
    pub fn start_within(self, start_within: Duration) -> Self {
        Self { start_within, ..self }
    }

    /// Where a file is written for each worker.
    pub fn log_dir(self, folder: impl Into<PathBuf>) -> Self {
        Self {
            log_dir: Some(folder.into()),
            ..self
        }
    }

    /// Without a word about progress.
    pub fn quiet(self) -> Self {
        Self { quiet: true, ..self }
    }

    /// How many workers there are.
    pub fn size(&self) -> u32 {
        self.ranked.as_ref().map_or(self.workers, Ranked::size)
    }

    /// Whether progress is shown here.
    pub(crate) fn shows(&self) -> bool {
        !self.quiet && self.leads()
    }

    /// Whether this process speaks for all: true, but in ranks of `grampus run` after the first.
    pub fn leads(&self) -> bool {
        self.ranked.as_ref().is_none_or(Ranked::leads)
    }

    /// Threads of each lane, if there are so many.
    pub(crate) fn threads_for(&self, lanes: u32) -> u32 {
        match self.threads {
            0 => grampus_train::plan::threads_per_lane(grampus_cluster::host::cores(), lanes),
            threads => threads,
        }
    }

    fn running(&self) -> Result<MutexGuard<'_, Option<driver::Cluster>>> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let over = running
            .as_ref()
            .is_some_and(|cluster| cluster.board().ending().is_some());
        if running.is_none() || over {
            *running = Some(self.start()?);
        }
        Ok(running)
    }

    fn start(&self) -> Result<driver::Cluster> {
        let spec = Spec {
            workers: self.workers,
            supervisor: role::command(),
            title: role::command().join(" "),
            place: Place::Here,
            address: None,
            bind: None,
            port: 0,
            threads: self.threads,
            preload: Vec::new(),
            sys_path: Vec::new(),
            directory: std::env::current_dir().ok(),
            log_dir: self.log_dir.clone(),
            join_within: self.start_within,
            silent_after: SILENT_AFTER,
        };
        let mut cluster = launch::start(spec, Box::new(NoEngine)).map_err(Error::cluster)?;
        let ready = cluster.board().wait_ready(self.start_within + LOOK);
        let why = match ready {
            Some(Ok(_)) => return Ok(cluster),
            Some(Err(why)) => why,
            None => format!("the workers did not join within {:?}", self.start_within),
        };
        cluster.stop("it did not start", STOP_WITHIN);
        Err(Error::Cluster(why))
    }

    /// Has all workers do something, and waits for it; what they tell meanwhile goes to `hear`, which may ask them to end after
    /// the step under way.
    pub(crate) fn call(
        &self,
        task: &Task,
        state: Option<&State>,
        hear: &mut dyn FnMut(Event) -> Wish,
    ) -> Result<Vec<Answer>> {
        if let Some(ranked) = &self.ranked {
            return ranked.call(task.clone(), state.cloned(), hear);
        }
        let running = self.running()?;
        let Some(cluster) = running.as_ref() else {
            return Err(Error::Cluster("the cluster was stopped".to_owned()));
        };
        let payload = task::packed(task, state)?;
        let id = cluster.submit(Ranks::exactly(self.workers), 0, true, payload);
        let ends = cluster.yielder();
        loop {
            let happened = cluster.board().look_at(id, LOOK);
            show(&happened);
            for (_, body) in &happened.reports {
                // What a worker of this very program says can be read.
                if let Ok(event) = serde_json::from_slice(body)
                    && hear(event) == Wish::End
                {
                    ends(id, true);
                }
            }
            if let Some(end) = happened.end {
                cluster.board().forget(id);
                return answers(end);
            }
        }
    }

    /// Ends the workers; the next call starts others.
    pub fn stop(&self) -> Result<()> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        match running.map(|mut cluster| cluster.stop("stopped by the user", STOP_WITHIN)) {
            Some(false) => Err(Error::Cluster(format!(
                "the cluster did not end within {STOP_WITHIN:?}"
            ))),
            _ => Ok(()),
        }
    }
}

/// Whether a run that is heard of should go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    GoOn,
    End,
}

fn answers(end: TaskEnd) -> Result<Vec<Answer>> {
    match end {
        TaskEnd::Returned(payloads) => {
            let answers: std::result::Result<_, _> = payloads.iter().map(Answer::opened).collect();
            Ok(answers?)
        }
        TaskEnd::Failed { failure, .. } => Err(match failure {
            TaskFailure::Cluster { why } => Error::Cluster(why),
            other => Error::Worker(Box::new(other)),
        }),
    }
}

/// Shows what workers have written.
fn show(happened: &Happened) {
    let (mut out, mut err) = (io::stdout(), io::stderr());
    for line in &happened.lines {
        // A closed console is no reason to end the run.
        let _ = match line.stream {
            Stream::Out => writeln!(out, "[rank {}] {}", line.rank, line.text),
            Stream::Err => writeln!(err, "[rank {}] {}", line.rank, line.text),
        };
    }
    for note in &happened.notes {
        let _ = writeln!(err, "grampus: {note}");
    }
}
