//! Starting a cluster of workers, on this host or on others: from what the user asked for to a running
//! [`Cluster`].

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use grampus_net::local_address_towards;

use crate::coordinator::Options;
use crate::driver::{Cluster, ClusterError, Listen, Plan, Setup};
use crate::host::{self, Facts};
use crate::launcher::{Engine, HostPlan, Hosts, Launcher, NoEngine, Reach};
use crate::supervisor::Configure;

/// A host other than this one.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// Its name, for people.
    pub name: String,
    /// What to run here to get a supervisor there.
    pub command: Vec<String>,
}

/// Where workers are.
#[derive(Clone, Debug)]
pub enum Place {
    /// On this machine.
    Here,
    /// On these hosts.
    Hosts(Vec<HostSpec>),
    /// Wherever an engine of this name starts supervisors, one for each worker.
    Engine(String),
}

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Workers in all.
    pub workers: u32,
    /// The command of a supervisor on this host.
    pub supervisor: Vec<String>,
    /// What `grampus status` calls the job.
    pub title: String,
    /// Where they are.
    pub place: Place,
    /// Address of this machine as other hosts reach it; found out where not given.
    pub address: Option<String>,
    /// Address to listen at, where it is another one.
    pub bind: Option<String>,
    /// Port to listen at; 0 takes a free one.
    pub port: u16,
    /// Threads per worker; 0 divides the cores of a host by its workers.
    pub threads: u32,
    /// Python modules to import before forking.
    pub preload: Vec<String>,
    /// Python's module search path.
    pub sys_path: Vec<String>,
    /// Working folder of the workers.
    pub directory: Option<PathBuf>,
    /// Where a file per rank is written; `None` is the job's own folder, which goes with it.
    pub log_dir: Option<PathBuf>,
    /// How long workers may take to join.
    pub join_within: Duration,
    /// How long a worker may be silent.
    pub silent_after: Duration,
}

/// Memory that a worker takes before it does anything, measured for a forked Python worker.
const WORKER_MEMORY: u64 = 12 << 20;
/// Descriptors that this process and the supervisor need besides those of the workers.
const SPARE_FILES: u64 = 64;
/// Descriptors that the supervisor holds for each worker.
const FILES_PER_WORKER: u64 = 5;

/// Can this host hold so many workers? If not, why, and what to do.
///
/// ```
/// use grampus_cluster::{host::Facts, launch::admit};
/// let facts = Facts { name: "h".into(), cores: 2, memory: 1 << 30, open_files: 1024 };
/// assert!(admit(4, &facts).is_ok());
/// assert!(admit(0, &facts).unwrap_err().contains("at least 1"));
/// assert!(admit(200, &facts).unwrap_err().contains("at most 85"));
/// ```
pub fn admit(workers: u32, facts: &Facts) -> Result<(), String> {
    if workers == 0 {
        return Err("workers must be at least 1".to_owned());
    }
    let wanted = u64::from(workers);
    let by_memory = facts.memory / WORKER_MEMORY;
    if wanted > by_memory {
        return Err(format!(
            "{workers} workers need at least {} MiB of memory before they do anything, {} MiB are free: use at most {by_memory}",
            (wanted * WORKER_MEMORY) >> 20,
            facts.memory >> 20,
        ));
    }
    let by_files = facts.open_files.saturating_sub(SPARE_FILES) / FILES_PER_WORKER;
    if wanted > by_files {
        return Err(format!(
            "{workers} workers need {} open files, the limit is {}: raise it with `ulimit -n`, or use at most {by_files}",
            wanted * FILES_PER_WORKER + SPARE_FILES,
            facts.open_files,
        ));
    }
    Ok(())
}

/// Starts it. Returns once the supervisors were started, or the engine was asked for them; the workers join later.
pub fn start(spec: Spec, engine: Box<dyn Engine>) -> Result<Cluster, ClusterError> {
    if matches!(spec.place, Place::Here) {
        admit(spec.workers, &Facts::read())
            .map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
    }
    let mut options = Options::launched(spec.workers);
    options.join_within = spec.join_within;
    options.silent_after = spec.silent_after;
    let plan = Plan {
        options,
        listen: listen(&spec)?,
        identity: None,
        title: spec.title.clone(),
        log_dir: spec.log_dir.clone(),
        writes_logs: !matches!(spec.place, Place::Here),
    };
    let mut engine = Some(engine);
    Cluster::start(plan, &mut |setup, sink| {
        let engine = engine.take().unwrap_or_else(|| Box::new(NoEngine));
        let hosts = Hosts::start(plans(&spec, &setup), engine, sink)?;
        Ok(Some(Box::new(hosts) as Box<dyn Launcher>))
    })
}

/// Where the coordinator listens.
fn listen(spec: &Spec) -> Result<Listen, ClusterError> {
    let advertise = match (&spec.place, &spec.address) {
        (Place::Here, _) => return Ok(Listen::Unix),
        (_, Some(address)) => address.clone(),
        (Place::Hosts(hosts), None) => {
            let first = hosts.first().map_or("localhost", |host| host.name.as_str());
            local_address_towards(first)?.to_string()
        }
        (Place::Engine(_), None) => host::name(),
    };
    Ok(Listen::Tcp {
        bind: spec.bind.clone().unwrap_or_else(|| advertise.clone()),
        port: spec.port,
        advertise,
    })
}

fn plans(spec: &Spec, setup: &Setup<'_>) -> Vec<HostPlan> {
    let command = |host: &HostSpec| Reach::Command(host.command.clone());
    let here = HostSpec {
        name: host::name(),
        command: spec.supervisor.clone(),
    };
    let (mut plans, mut next) = (Vec::new(), 0);
    match &spec.place {
        Place::Here => {
            let slots = (0..spec.workers).collect();
            return vec![host_plan(spec, setup, &here.name, command(&here), slots, true)];
        }
        Place::Hosts(hosts) => {
            for (host, part) in hosts.iter().zip(share(spec.workers, hosts.len() as u32)) {
                let slots = (next..next + part).collect();
                next += part;
                plans.push(host_plan(spec, setup, &host.name, command(host), slots, false));
            }
        }
        Place::Engine(name) => {
            for slot in 0..spec.workers {
                let mut plan = host_plan(spec, setup, name, Reach::Call, vec![slot], false);
                // Where it will be is not known.
                plan.configure.host.clear();
                plans.push(plan);
            }
        }
    }
    // A supervisor without workers: it removes the job's folder here if this process is killed.
    let mut janitor = host_plan(spec, setup, &here.name, command(&here), Vec::new(), true);
    janitor.configure.join.clear();
    janitor.configure.preload.clear();
    plans.push(janitor);
    plans
}

/// So many each, the first ones one more where it does not divide.
fn share(workers: u32, hosts: u32) -> Vec<u32> {
    (0..hosts)
        .map(|host| workers / hosts + u32::from(host < workers % hosts))
        .collect()
}

fn host_plan(
    spec: &Spec,
    setup: &Setup<'_>,
    name: &str,
    reach: Reach,
    slots: Vec<u32>,
    local: bool,
) -> HostPlan {
    let configure = Configure {
        join: setup
            .join
            .map(grampus_core::JoinString::reveal)
            .unwrap_or_default(),
        host: if local { String::new() } else { name.to_owned() },
        driver: local.then(std::process::id),
        threads: spec.threads,
        workers: slots.len() as u32,
        silent_after_ms: spec.silent_after.as_millis() as u64,
        preload: spec.preload.clone(),
        sys_path: spec.sys_path.clone(),
        directory: spec.directory.clone(),
        // The driver writes the files of ranks on other hosts. It knows their ranks, which may change, and the folder may be
        // the same there.
        log_dir: local.then(|| setup.logs.to_owned()),
        forward_output: true,
        remove: local.then(|| setup.dir.to_owned()),
    };
    HostPlan {
        name: name.to_owned(),
        reach,
        slots,
        configure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_shared_out_in_order() {
        assert_eq!(share(5, 2), [3, 2]);
        assert_eq!(share(2, 3), [1, 1, 0]);
    }

    #[test]
    fn the_open_file_limit_is_named() {
        let facts = Facts {
            name: "h".into(),
            cores: 2,
            memory: 1 << 40,
            open_files: 256,
        };
        assert!(admit(38, &facts).is_ok());
        assert!(admit(39, &facts).unwrap_err().contains("ulimit -n"));
    }
}
