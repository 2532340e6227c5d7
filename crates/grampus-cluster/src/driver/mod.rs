//! The driver: a thread that feeds the coordinator with what happens and does what it decides, and the
//! handle through which the user's thread submits tasks and waits for them.

mod board;
mod core;
mod held;
mod links;
mod output;
mod reports;
mod status;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use grampus_core::{Address, JobId, JobKey, JoinString, TaskFailure, TaskId};
use grampus_net::{Limits, Link, Listener, NetError, random_job, random_key};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

pub use board::{Board, Happened};
pub use output::Line;
pub(crate) use output::Lines;
pub use status::{JobStatus, MemberStatus, read_status};

use crate::coordinator::Options;
use crate::jobdir::JobDir;
use crate::launcher::{LaunchEvent, Launcher};
use crate::patience;
use crate::payload::Payload;
use crate::rankfile::{FileEvent, RankFiles};

/// How a task ended.
#[derive(Clone)]
pub enum TaskEnd {
    /// What each rank returned, in order of rank.
    Returned(Vec<Payload>),
    /// Why it failed, with what the first failed rank sent along.
    Failed {
        /// Why.
        failure: TaskFailure,
        /// The exception of the first failed rank, if it sent one.
        raised: Option<Payload>,
    },
}

/// Where the coordinator listens.
#[derive(Clone, Debug)]
pub enum Listen {
    /// In the job's private folder, for members on this host.
    Unix,
    /// On the network, under TLS.
    Tcp {
        /// Address to bind.
        bind: String,
        /// Port to bind; 0 takes a free one.
        port: u16,
        /// Address that is written into the join string.
        advertise: String,
    },
    /// Nowhere: members are attached by hand.
    Nowhere,
}

/// What a job is made of.
pub struct Plan {
    /// The coordinator's options.
    pub options: Options,
    /// Where it listens.
    pub listen: Listen,
    /// A given identity, where members know it from elsewhere.
    pub identity: Option<(JobId, JobKey)>,
    /// What `grampus status` calls the job.
    pub title: String,
    /// Where the logs of its ranks are; `None` is the job's own folder.
    pub log_dir: Option<PathBuf>,
    /// Write them here, because the supervisors are on other hosts.
    pub writes_logs: bool,
}

/// Why a cluster cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A file, a thread or a process.
    #[error("the cluster cannot start: {0}")]
    System(#[from] io::Error),
    /// The network.
    #[error("the cluster cannot start: {0}")]
    Net(#[from] NetError),
}

/// On how many ranks a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// It does not begin with fewer.
    pub least: u32,
    /// It has no use for more.
    pub most: u32,
}

impl Ranks {
    /// On exactly so many.
    pub fn exactly(world: u32) -> Self {
        Self {
            least: world,
            most: world,
        }
    }
}

pub(crate) enum Call {
    Submit {
        task: TaskId,
        ranks: Ranks,
        restarts: u32,
        patient: bool,
        payload: Payload,
    },
    Resize {
        size: u32,
    },
    Cancel {
        task: TaskId,
        why: String,
    },
    Yield {
        task: TaskId,
        save: bool,
    },
    Inspect {
        task: TaskId,
        idle_ms: u64,
    },
    Stop {
        why: String,
    },
    Attach(Box<Link>),
    Launch(LaunchEvent),
    File(FileEvent),
    NotComing {
        summons: u64,
        why: String,
    },
}

/// A running cluster, seen from the user's thread. Dropping it ends it.
pub struct Cluster {
    calls: UnboundedSender<Call>,
    board: Arc<Board>,
    thread: Option<thread::JoinHandle<()>>,
    next_task: AtomicU64,
    job: JobId,
    join: Option<JoinString>,
    logs: PathBuf,
    /// A forked child of the driver has a copy of this, and no thread behind it.
    pid: u32,
}

/// Makes the launcher once the join string is known; `None` where members come by themselves.
pub type MakeLauncher<'a> = &'a mut dyn FnMut(
    Setup<'_>,
    Box<dyn Fn(LaunchEvent) + Send + Sync>,
) -> io::Result<Option<Box<dyn Launcher>>>;

/// What a launcher needs to know of its job.
pub struct Setup<'a> {
    /// For the workers.
    pub join: Option<&'a JoinString>,
    /// The job's private folder.
    pub dir: &'a Path,
    /// Where logs go.
    pub logs: &'a Path,
}

impl Cluster {
    /// Starts the coordinator and, through the launcher, its members.
    pub fn start(plan: Plan, make_launcher: MakeLauncher<'_>) -> Result<Self, ClusterError> {
        let (job, key) = match plan.identity {
            Some(identity) => identity,
            None => (random_job()?, random_key()?),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        // The address first: where it is taken, another node is node 0, and this one leaves no trace.
        let limits = patience::limits(plan.options.silent_after);
        let on_network = runtime.block_on(listen_tcp(&plan.listen, job, &key, &limits))?;
        let dir = JobDir::create(job)?;
        let listener = match (on_network, &plan.listen) {
            (None, Listen::Unix) => Some(runtime.block_on(listen_unix(&dir, job, &key, &limits))?),
            (listener, _) => listener,
        };
        let join = listener.as_ref().map(|(_, address)| JoinString {
            job,
            key,
            address: address.clone(),
        });
        let (calls, queue) = unbounded_channel();
        let logs = plan.log_dir.clone().unwrap_or_else(|| dir.logs());
        let sink = calls.clone();
        let setup = Setup {
            join: join.as_ref(),
            dir: dir.path(),
            logs: &logs,
        };
        let launcher = make_launcher(setup, Box::new(move |event| drop(sink.send(Call::Launch(event)))))?;
        let board = Arc::new(Board::default());
        let (shared, fallen) = (Arc::clone(&board), Arc::clone(&board));
        let header = status::Header::new(job, &plan.title, &logs);
        let files = plan.writes_logs.then(|| {
            let events = calls.clone();
            RankFiles::open(logs.clone(), move |event| drop(events.send(Call::File(event))))
        });
        let (files, status) = (files.transpose()?, status::StatusFile::open(dir.path())?);
        let core = core::Core::new(plan.options, launcher, shared, (header, status), dir, files);
        let listener = listener.map(|(listener, _)| listener);
        let thread = thread::Builder::new()
            .name("grampus-driver".to_owned())
            .spawn(move || {
                let _fallen = Fallen(fallen);
                runtime.block_on(core.run(listener, queue));
            })?;
        Ok(Self {
            calls,
            board,
            thread: Some(thread),
            next_task: AtomicU64::new(1),
            job,
            join,
            logs,
            pid: std::process::id(),
        })
    }

    /// The job's id.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// The folder of the log files, one per rank.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// What somebody needs who joins; nothing where nobody can.
    pub fn join(&self) -> Option<&JoinString> {
        self.join.as_ref()
    }

    /// Adds a member that is connected already, for example from this very process.
    pub fn attach(&self, link: Link) {
        let _ = self.calls.send(Call::Attach(Box::new(link)));
    }

    /// Gives the workers something to do. The ranks of a patient task are not interrupted where one is lost: they
    /// notice, and keep what they have.
    pub fn submit(&self, ranks: Ranks, restarts: u32, patient: bool, payload: Payload) -> TaskId {
        let task = TaskId(self.next_task.fetch_add(1, Ordering::Relaxed));
        if self
            .calls
            .send(Call::Submit {
                task,
                ranks,
                restarts,
                patient,
                payload,
            })
            .is_err()
        {
            self.board.refuse(task);
        }
        task
    }

    /// Ends a task; it is then resolved as cancelled.
    pub fn cancel(&self, task: TaskId, why: &str) {
        let _ = self.calls.send(Call::Cancel {
            task,
            why: why.to_owned(),
        });
    }

    /// The same, for a caller who outlives this handle.
    pub fn canceller(&self) -> impl Fn(TaskId, &str) + Send + Sync + use<> {
        let calls = self.calls.clone();
        move |task, why| {
            drop(calls.send(Call::Cancel {
                task,
                why: why.to_owned(),
            }));
        }
    }

    /// Something that asks a patient task to end where it can go on later, for a caller who outlives this handle.
    pub fn yielder(&self) -> impl Fn(TaskId, bool) + Send + Sync + use<> {
        let calls = self.calls.clone();
        move |task, save| drop(calls.send(Call::Yield { task, save }))
    }

    /// Gives the job more places, or fewer: members come and go, and elastic tasks regroup.
    pub fn resize(&self, size: u32) {
        // If the driver's thread is gone, the job is over, as its board says.
        let _ = self.calls.send(Call::Resize { size });
    }

    /// The supervisor that was asked for with this number will not call, for this reason.
    pub fn not_coming(&self, summons: u64, why: &str) {
        let why = why.to_owned();
        // If the driver's thread is gone, nobody waits for it.
        let _ = self.calls.send(Call::NotComing { summons, why });
    }

    /// Something that asks every rank of a task where it stands, for a caller who outlives this handle. The answers are reports;
    /// ranks that have done nothing for so long add their stacks.
    pub fn inspector(&self) -> impl Fn(TaskId, Duration) + Send + Sync + use<> {
        let calls = self.calls.clone();
        move |task, idle| {
            let idle_ms = idle.as_millis().try_into().unwrap_or(u64::MAX);
            drop(calls.send(Call::Inspect { task, idle_ms }));
        }
    }

    /// Something that ends the job, for another thread to call.
    pub fn stopper(&self) -> impl Fn(&str) + Send + Sync + use<> {
        let calls = self.calls.clone();
        move |why| drop(calls.send(Call::Stop { why: why.to_owned() }))
    }

    /// What happened, for waiting.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// The same, for a thread that outlives this handle.
    pub fn board_handle(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    /// Ends the job and waits until nothing of it is left; false if that took longer than allowed.
    pub fn stop(&mut self, why: &str, within: Duration) -> bool {
        let _ = self.calls.send(Call::Stop { why: why.to_owned() });
        let over = self.board.wait_over(within);
        if over && let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        over
    }
}

/// Whoever waits must hear of it even if the driver's own thread panics.
struct Fallen(Arc<Board>);

impl Drop for Fallen {
    fn drop(&mut self) {
        self.0
            .set_over("the driver's thread failed; standard error says where");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.thread.is_some() && self.pid == std::process::id() {
            self.stop("the driver let go of its cluster", Duration::from_secs(10));
        }
    }
}

async fn listen_unix(
    dir: &JobDir,
    job: JobId,
    key: &JobKey,
    limits: &Limits,
) -> Result<(Listener, Address), NetError> {
    let listener = Listener::unix(&dir.socket(), job, key.clone(), limits).await?;
    Ok((listener, Address::Unix(dir.socket())))
}

async fn listen_tcp(
    listen: &Listen,
    job: JobId,
    key: &JobKey,
    limits: &Limits,
) -> Result<Option<(Listener, Address)>, NetError> {
    let Listen::Tcp {
        bind,
        port,
        advertise,
    } = listen
    else {
        return Ok(None);
    };
    let bind = if bind.contains(':') {
        format!("[{bind}]:{port}")
    } else {
        format!("{bind}:{port}")
    };
    let listener = Listener::tcp(&bind, job, key.clone(), limits).await?;
    let port = listener.local_addr().map_or(*port, |address| address.port());
    Ok(Some((
        listener,
        Address::Tcp {
            host: advertise.clone(),
            port,
        },
    )))
}
