//! Node 0's other half: the coordinator, and the thread that submits the program and decides on restarts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use grampus_core::TaskFailure;
use grampus_net::{Link, memory_pair, random_key};

use super::console::say;
use super::{Endpoint, Job, NodeEnd, NodeError, NodePlan, Restarts};
use crate::Payload;
use crate::coordinator::Options;
use crate::driver::{Cluster, Listen, Plan, Ranks, TaskEnd};

/// How long ranks of other nodes may take to end when one failed.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// After this, people are told what is waited for.
const SAY_AFTER: Duration = Duration::from_secs(3);

pub(super) struct Control {
    stopper: Arc<dyn Fn(&str) + Send + Sync>,
    thread: thread::JoinHandle<NodeEnd>,
    dir: PathBuf,
    logs: PathBuf,
}

impl Control {
    /// Starts the coordinator, on the network where there is an endpoint; returns this node's link to it.
    pub(super) fn start(
        plan: &NodePlan,
        endpoint: Option<&Endpoint>,
    ) -> Result<(Self, Box<Link>), NodeError> {
        let (nodes, identity) = match &plan.job {
            Job::Alone => (1, None),
            Job::Several { nodes, job, key, .. } => (*nodes, Some((*job, key.clone()))),
        };
        let listen = endpoint.map_or(Listen::Nowhere, |endpoint| Listen::Tcp {
            bind: endpoint.host.clone(),
            port: endpoint.port,
            advertise: endpoint.host.clone(),
        });
        let mut options = Options::awaited(nodes);
        options.join_within = plan.join_within;
        options.silent_after = plan.silent_after;
        options.cancel_within = CANCEL_WITHIN;
        let title = std::iter::once(&plan.program.program)
            .chain(&plan.program.arguments)
            .cloned();
        let title = title.collect::<Vec<_>>().join(" ");
        let wanted = Plan {
            options,
            listen,
            identity,
            title,
            log_dir: plan.log_dir.clone(),
            writes_logs: false,
        };
        let mut paths = (PathBuf::new(), PathBuf::new());
        let cluster = Cluster::start(wanted, &mut |setup, _| {
            paths = (setup.dir.to_owned(), setup.logs.to_owned());
            Ok(None)
        })?;
        let (near, far) = memory_pair("node", "coordinator");
        cluster.attach(near);
        let stopper = Arc::new(cluster.stopper());
        let (restarts, place) = (plan.restarts, endpoint.cloned());
        let thread = thread::Builder::new()
            .name("grampus-control".to_owned())
            .spawn(move || control(cluster, restarts, place.as_ref()))?;
        let (dir, logs) = paths;
        Ok((
            Self {
                stopper,
                thread,
                dir,
                logs,
            },
            Box::new(far),
        ))
    }

    /// Something that ends the job, with a reason.
    pub(super) fn stopper(&self) -> Box<dyn Fn(&str) + Send> {
        let stopper = Arc::clone(&self.stopper);
        Box::new(move |why| stopper(why))
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn logs(&self) -> &Path {
        &self.logs
    }

    /// The ranks of this node are gone: how did the job end?
    pub(super) fn finish(self, own: NodeEnd) -> NodeEnd {
        (self.stopper)(own.why.as_deref().unwrap_or("node 0 has ended"));
        let job = self.thread.join().unwrap_or(NodeEnd {
            code: 1,
            why: Some("the coordinator failed".to_owned()),
        });
        // A signal to this node is the cause of whatever the coordinator saw.
        if own.code > 128 && own.why.is_none() {
            own
        } else {
            job
        }
    }
}

fn control(mut cluster: Cluster, restarts: Restarts, place: Option<&Endpoint>) -> NodeEnd {
    let end = match wait_for_nodes(&cluster, place) {
        Ok(world) => submit(&cluster, world, restarts),
        Err(why) => NodeEnd {
            code: 1,
            why: Some(why),
        },
    };
    let why = end
        .why
        .clone()
        .unwrap_or_else(|| "every rank has finished".to_owned());
    cluster.stop(&why, STOP_WITHIN);
    end
}

fn wait_for_nodes(cluster: &Cluster, place: Option<&Endpoint>) -> Result<u32, String> {
    // The coordinator has a deadline of its own for this, and tells its reason.
    let mut said = false;
    loop {
        let answer = cluster.board().wait_ready(SAY_AFTER);
        for note in cluster.board().take_lines().notes {
            say(&note);
        }
        if let Some(answer) = answer {
            return answer;
        }
        if let Some(Endpoint { host, port }) = place
            && !std::mem::replace(&mut said, true)
        {
            say(&format!("waiting for the other nodes at {host}:{port}"));
        }
    }
}

fn submit(cluster: &Cluster, world: u32, Restarts(restarts): Restarts) -> NodeEnd {
    let mut attempt = 0;
    loop {
        let payload = match random_key() {
            // A key that the ranks of this attempt share.
            Ok(key) => Payload {
                parts: vec![Bytes::copy_from_slice(key.as_bytes())],
                memory: None,
            },
            Err(error) => {
                let why = Some(error.to_string());
                return NodeEnd { code: 1, why };
            }
        };
        let task = cluster.submit(Ranks::exactly(world), attempt, false, payload);
        let failure = loop {
            match cluster.board().look_at(task, Duration::from_secs(3600)).end {
                Some(TaskEnd::Returned(_)) => return NodeEnd { code: 0, why: None },
                Some(TaskEnd::Failed { failure, .. }) => break failure,
                None => {}
            }
        };
        let end = NodeEnd {
            code: code(&failure),
            why: Some(failure.to_string()),
        };
        if attempt == restarts || !matches!(failure, TaskFailure::Rank { .. }) {
            return end;
        }
        attempt += 1;
        say(&failure.to_string());
        say(&format!("starting all ranks again ({attempt} of {restarts})"));
        if let Err(why) = wait_for_nodes(cluster, None) {
            return NodeEnd {
                why: Some(why),
                ..end
            };
        }
    }
}

/// NO-2.
fn code(failure: &TaskFailure) -> i32 {
    use grampus_core::Failure;
    match failure {
        TaskFailure::Rank { first, .. } => match &first.failure {
            Failure::Exited { exit, .. } => exit.code(),
            _ => 1,
        },
        TaskFailure::Cancelled { .. } | TaskFailure::Cluster { .. } => 1,
    }
}
