//! A node of `grampus run`: it carries some ranks of a program, starts them when the coordinator says so,
//! and tells it how they ended. Node 0 holds the coordinator as well.
//!
//! Invariants:
//! - **NO-1** When a node ends for whatever reason, its ranks and all that they started are gone.
//! - **NO-2** The exit code is that of the first rank that failed; 128 + signal where a signal ended it.

mod console;
mod control;
mod meeting;
mod ranks;
mod signals;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use grampus_core::{Address, Clock, JobId, JobKey, JoinString, SystemClock, WorkerId};
use grampus_net::{NetError, local_address_towards, random_job};

pub use meeting::{MeetingError, RankPlace};

use crate::agent::{Agent, AgentError, Introduction, Way, Work};
use crate::driver::ClusterError;
use crate::launcher::{HostPlan, Hosts, LaunchEvent, NoEngine, Reach};
use crate::supervisor::{Configure, Program, expect_children};

/// The variable that tells a rank where a key lies that all ranks of its job share, and nobody else.
pub const RANKS_KEY: &str = "GRAMPUS_RANKS_KEY";
/// How long to wait before another attempt to reach node 0.
const RETRY: Duration = Duration::from_millis(200);

/// `host:port` of node 0.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// Which nodes there are.
#[derive(Clone, Debug)]
pub enum Job {
    /// This one.
    Alone,
    /// Several.
    Several {
        /// How many.
        nodes: u32,
        /// Place of this one; found out where not given.
        node: Option<u32>,
        /// Node 0.
        endpoint: Endpoint,
        /// Derived from the shared key.
        job: JobId,
        /// Derived from the shared key.
        key: JobKey,
        /// Where the shared key is, for error messages.
        key_file: PathBuf,
    },
}

/// How often all ranks may be started again.
#[derive(Clone, Copy, Debug)]
pub struct Restarts(pub u32);

/// What a node is to do.
#[derive(Clone, Debug)]
pub struct NodePlan {
    /// Which nodes there are.
    pub job: Job,
    /// Ranks of this node.
    pub ranks: u32,
    /// What each rank runs.
    pub program: Program,
    /// The command of a supervisor.
    pub supervisor: Vec<String>,
    /// Where a file per rank is written.
    pub log_dir: Option<PathBuf>,
    /// Whether output and errors reach the console.
    pub shown: (bool, bool),
    /// How often all ranks may be started again.
    pub restarts: Restarts,
    /// How long nodes may take to come.
    pub join_within: Duration,
    /// How long a node may be silent.
    pub silent_after: Duration,
}

/// How a node ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEnd {
    /// Exit code.
    pub code: i32,
    /// What went wrong, where something did.
    pub why: Option<String>,
}

/// Why a node could not run.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A file, a thread or a process.
    #[error("this node cannot run: {0}")]
    System(#[from] io::Error),
    /// The coordinator.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The connection to node 0.
    #[error("{0}")]
    Agent(#[from] AgentError),
    /// The network.
    #[error("{0}")]
    Net(#[from] NetError),
    /// Node 0 has another key.
    #[error(
        "the key of this node is not that of node 0 at {endpoint}: copy {key_file} from there, or give both --key-file"
    )]
    OtherKey {
        /// Node 0.
        endpoint: String,
        /// This node's key.
        key_file: PathBuf,
    },
}

enum NodeEvent {
    Work(Work),
    Cancel,
    Signal(i32),
    Launch(LaunchEvent),
    /// This node has reached node 0, or cannot.
    Joined(Box<Result<Agent, NodeError>>),
}

/// Runs the node until the job is over.
pub fn run(plan: NodePlan) -> Result<NodeEnd, NodeError> {
    // Whoever started this process may ignore its own children, and with it make this one unable to tell how its ranks end.
    expect_children();
    let (sender, events) = mpsc::channel();
    let signals = signals::Signals::listen({
        let sender = sender.clone();
        move |signal| drop(sender.send(NodeEvent::Signal(signal)))
    })?;
    let end = run_until_over(plan, &sender, &events);
    signals.close();
    end
}

fn run_until_over(
    plan: NodePlan,
    sender: &mpsc::Sender<NodeEvent>,
    events: &mpsc::Receiver<NodeEvent>,
) -> Result<NodeEnd, NodeError> {
    let (control, way) = meet(&plan)?;
    let agent = match join(&plan, way, sender, events)? {
        Ok(agent) => Arc::new(agent),
        Err(end) => return Ok(end),
    };
    forward_work(Arc::clone(&agent), sender.clone())?;
    let console = console::Console::open(plan.shown)?;
    let hosts = start_supervisor(&plan, control.as_ref(), sender.clone(), console.clone())?;
    let stopper = control.as_ref().map(control::Control::stopper);
    let end = ranks::Ranks::new(plan, agent, (hosts, console), stopper).run(events);
    // The coordinator's word on who failed first counts; a node that has none knows only its own.
    Ok(control.map_or(end.clone(), |control| control.finish(end)))
}

/// Becomes node 0 or finds it.
fn meet(plan: &NodePlan) -> Result<(Option<control::Control>, Connect), NodeError> {
    let Job::Several {
        node,
        endpoint,
        job,
        key,
        ..
    } = &plan.job
    else {
        let (control, link) = control::Control::start(plan, None)?;
        return Ok((Some(control), Connect::Here(link, "127.0.0.1".to_owned())));
    };
    let address = Address::Tcp {
        host: endpoint.host.clone(),
        port: endpoint.port,
    };
    let there = Connect::There(JoinString {
        job: *job,
        key: key.clone(),
        address,
    });
    match node {
        Some(0) => {}
        Some(_) => return Ok((None, there)),
        // Without a number, whoever can take the address of node 0 is node 0.
        None => {
            return match control::Control::start(plan, Some(endpoint)) {
                Ok((control, link)) => Ok((Some(control), Connect::Here(link, endpoint.host.clone()))),
                Err(NodeError::Cluster(ClusterError::Net(_))) => Ok((None, there)),
                Err(error) => Err(error),
            };
        }
    }
    let (control, link) = control::Control::start(plan, Some(endpoint))?;
    Ok((Some(control), Connect::Here(link, endpoint.host.clone())))
}

/// How this node reaches the coordinator.
enum Connect {
    Here(Box<grampus_net::Link>, String),
    There(JoinString),
}

/// Joins the coordinator, which may take as long as node 0 takes to come; a signal ends this node meanwhile.
fn join(
    plan: &NodePlan,
    connect: Connect,
    sender: &mpsc::Sender<NodeEvent>,
    events: &mpsc::Receiver<NodeEvent>,
) -> Result<Result<Agent, NodeEnd>, NodeError> {
    let id = WorkerId(random_job()?.0);
    let join = match connect {
        Connect::Here(link, host) => {
            let address = local_address_towards(&host)?;
            let agent = Agent::join(Way::Here(link, address), introduction(plan, id, sender))?;
            return Ok(Ok(agent));
        }
        Connect::There(join) => join,
    };
    let (plan, own_sender) = (plan.clone(), sender.clone());
    let joining = move || {
        let joined = Box::new(join_node_0(&plan, &join, id, &own_sender));
        // Where a signal came first the receiver is gone, and the agent ends with this message.
        let _ = own_sender.send(NodeEvent::Joined(joined));
    };
    std::thread::Builder::new()
        .name("grampus-join".to_owned())
        .spawn(joining)?;
    let mut early = Vec::new();
    loop {
        match events.recv() {
            Ok(NodeEvent::Joined(joined)) => {
                let agent = (*joined)?;
                // Orders of node 0 may overtake the news that this node has joined. This function holds the receiver.
                early.into_iter().for_each(|event| drop(sender.send(event)));
                return Ok(Ok(agent));
            }
            Ok(NodeEvent::Signal(signal)) => {
                let (code, why) = (128 + signal, None);
                return Ok(Err(NodeEnd { code, why }));
            }
            Ok(event) => early.push(event),
            Err(mpsc::RecvError) => return Ok(Err(NodeEnd { code: 1, why: None })),
        }
    }
}

fn join_node_0(
    plan: &NodePlan,
    join: &JoinString,
    id: WorkerId,
    sender: &mpsc::Sender<NodeEvent>,
) -> Result<Agent, NodeError> {
    let clock = SystemClock::start();
    let end = clock.now() + plan.join_within;
    loop {
        match Agent::join(Way::Connect(join.clone()), introduction(plan, id, sender)) {
            Ok(agent) => return Ok(agent),
            Err(AgentError::Join(error)) if error.is_transient() && clock.now() < end => {
                std::thread::park_timeout(RETRY);
            }
            Err(AgentError::Join(NetError::WrongKey)) => return Err(other_key(plan)),
            Err(error) => return Err(error.into()),
        }
    }
}

fn other_key(plan: &NodePlan) -> NodeError {
    match &plan.job {
        Job::Several {
            endpoint, key_file, ..
        } => NodeError::OtherKey {
            endpoint: format!("{}:{}", endpoint.host, endpoint.port),
            key_file: key_file.clone(),
        },
        Job::Alone => NodeError::Net(NetError::WrongKey),
    }
}

fn introduction(plan: &NodePlan, worker: WorkerId, sender: &mpsc::Sender<NodeEvent>) -> Introduction {
    let slot = match &plan.job {
        Job::Alone => Some(0),
        Job::Several { node, .. } => *node,
    };
    let cancel = sender.clone();
    Introduction {
        worker,
        slot,
        ranks: plan.ranks,
        node: true,
        host: String::new(),
        card: Vec::new(),
        silent_after: plan.silent_after,
        on_cancel: Box::new(move |_| drop(cancel.send(NodeEvent::Cancel))),
        // Its tasks are not patient.
        on_rank_lost: Box::new(|_, _| {}),
        on_inspect: Box::new(|_| Vec::new()),
        // Told as work, so that the ranks are ended first.
        on_lost: Box::new(|_| {}),
    }
}

fn forward_work(agent: Arc<Agent>, sender: mpsc::Sender<NodeEvent>) -> io::Result<()> {
    let work = move || loop {
        let Some(work) = agent.next(Duration::from_secs(3600)) else {
            continue;
        };
        let last = !matches!(work, Work::Task(_));
        if sender.send(NodeEvent::Work(work)).is_err() || last {
            return;
        }
    };
    std::thread::Builder::new()
        .name("grampus-work".to_owned())
        .spawn(work)?;
    Ok(())
}

fn start_supervisor(
    plan: &NodePlan,
    control: Option<&control::Control>,
    sender: mpsc::Sender<NodeEvent>,
    console: console::Console,
) -> Result<Hosts, NodeError> {
    let log_dir = plan
        .log_dir
        .clone()
        .or_else(|| control.map(|control| control.logs().to_owned()));
    let configure = Configure {
        join: String::new(),
        host: String::new(),
        driver: Some(std::process::id()),
        threads: 0,
        workers: plan.ranks,
        silent_after_ms: plan.silent_after.as_millis() as u64,
        preload: Vec::new(),
        sys_path: Vec::new(),
        directory: None,
        log_dir,
        forward_output: true,
        remove: control.map(|control| control.dir().to_owned()),
    };
    let host = HostPlan {
        name: "this node".to_owned(),
        reach: Reach::Command(plan.supervisor.clone()),
        slots: (0..plan.ranks).collect(),
        configure,
    };
    // Several threads report: the sender is behind a lock only because its type wants one.
    let sender = std::sync::Mutex::new(sender);
    Ok(Hosts::start(vec![host], Box::new(NoEngine), move |event| {
        if let LaunchEvent::Output { rank, stream, bytes } = event {
            return console.push(rank, stream, bytes);
        }
        let sender = sender.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _ = sender.send(NodeEvent::Launch(event));
    })?)
}
