//! Processes on this host or on others, each host under a supervisor. One that is reached through the standard
//! input and output of a command: our own program here, `ssh host …` or anything like it there. Or one that an engine such as
//! Spark or Ray starts when it is asked to, and that calls the driver.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use grampus_core::{Clock, Exit, SystemClock, WorkerId};

use super::line::{Line, Shared, lock};
use super::{Caller, LaunchEvent, Launcher};
use crate::supervisor::{Configure, Launch, Order, kill_group, terminate_group};

/// How long a supervisor may take to end everything and itself.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// How the supervisor of a host is reached.
#[derive(Clone, Debug)]
pub enum Reach {
    /// By running this here: its standard input and output lead there.
    Command(Vec<String>),
    /// It calls, once somebody was asked to start it.
    Call,
}

/// One host of a job.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// Name, for people.
    pub name: String,
    /// How to get a supervisor on that host.
    pub reach: Reach,
    /// Slots that live on it, in order.
    pub slots: Vec<u32>,
    /// What it is told first.
    pub configure: Configure,
}

impl HostPlan {
    /// Whether the job can do without its supervisor, since another one can be had: elsewhere, and where one has `worked`
    /// before. Engines start one elsewhere if need be.
    pub(super) fn is_expendable(&self, worked: bool) -> bool {
        let elsewhere = self.configure.driver.is_none();
        elsewhere && (worked || matches!(self.reach, Reach::Call))
    }

    /// What to tell of a worker that the supervisor was to start when it was lost. An engine may start it elsewhere: trying
    /// again makes sense.
    pub(super) fn never_started(&self, worker: WorkerId, why: &str) -> LaunchEvent {
        match self.reach {
            Reach::Command(_) => LaunchEvent::NotStarted {
                worker,
                why: why.to_owned(),
            },
            Reach::Call => LaunchEvent::Exited {
                worker,
                exit: Exit::Signal(9),
                log_tail: String::new(),
            },
        }
    }
}

struct Host {
    plan: HostPlan,
    shared: Arc<Mutex<Shared>>,
    orders: Option<mpsc::Sender<Order>>,
    /// Orders for a supervisor that has not called yet, and whether there was another one before.
    waiting: Option<(mpsc::Receiver<Order>, bool)>,
    /// The number of the request for it.
    summons: u64,
    workers: BTreeSet<WorkerId>,
    reader: Option<thread::JoinHandle<()>>,
    /// Of the command, where there is one.
    process: Option<u32>,
}

/// All hosts of a job.
pub struct Hosts {
    hosts: Vec<Host>,
    /// Supervisors that nobody has waited for: copies that an engine has started by itself.
    spares: VecDeque<Caller>,
    sink: Sink,
    engine: Box<dyn Engine>,
    summoned: u64,
}

pub(super) type Sink = Arc<dyn Fn(LaunchEvent) + Send + Sync>;

/// Whoever has an engine start supervisors.
pub trait Engine: Send {
    /// A supervisor is wanted for a slot; each request has a number.
    fn summon(&self, slot: u32, summons: u64);

    /// One has called for the request with this number, or nobody waits for it any more.
    fn answered(&self, summons: u64);
}

/// For jobs without an engine.
pub struct NoEngine;

impl Engine for NoEngine {
    fn summon(&self, _slot: u32, _summons: u64) {}

    fn answered(&self, _summons: u64) {}
}

impl Hosts {
    /// Starts a supervisor on every host, or has the engine start it. Events go to `sink`, from other threads.
    pub fn start(
        plans: Vec<HostPlan>,
        engine: Box<dyn Engine>,
        sink: impl Fn(LaunchEvent) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let mut all = Self {
            hosts: Vec::new(),
            spares: VecDeque::new(),
            sink: Arc::new(sink),
            engine,
            summoned: 0,
        };
        for plan in plans {
            let name = plan.name.clone();
            let host = all.start_host(plan, false).map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("cannot start the supervisor of {name}: {error}"),
                )
            });
            match host {
                Ok(host) => all.hosts.push(host),
                Err(error) => {
                    all.close();
                    return Err(error);
                }
            }
        }
        Ok(all)
    }

    fn order(&mut self, find: impl Fn(&Host) -> bool, order: Order) {
        let host = self.hosts.iter().find(|host| find(host));
        if let Some(orders) = host.and_then(|host| host.orders.as_ref()) {
            // A closed channel means that the host broke, which its reader has reported.
            let _ = orders.send(order);
        }
    }

    /// On which host a slot lives. Those that the job has got since it began go round the hosts that have workers; where each
    /// has a supervisor of its own, so have they.
    fn home_of(&mut self, slot: u32) -> usize {
        let mut hosts = self.hosts.iter();
        if let Some(planned) = hosts.position(|host| host.plan.slots.contains(&slot)) {
            return planned;
        }
        let called = |host: &&Host| matches!(host.plan.reach, Reach::Call);
        if let Some(like) = self.hosts.iter().find(called) {
            let plan = HostPlan {
                slots: vec![slot],
                ..like.plan.clone()
            };
            let mut host = Host::to_be_called(plan, false);
            self.summon(&mut host);
            self.hosts.push(host);
            return self.hosts.len() - 1;
        }
        let hosts = self.hosts.iter().enumerate();
        let homes: Vec<usize> = hosts
            .filter(|(_, host)| !host.plan.slots.is_empty())
            .map(|(number, _)| number)
            .collect();
        homes
            .get(slot as usize % homes.len().max(1))
            .copied()
            .unwrap_or(0)
    }

    /// Asks a process and its process group to end, with a signal.
    pub fn signal(&mut self, worker: WorkerId, signal: i32) {
        self.order(
            |host| host.workers.contains(&worker),
            Order::Signal(worker, signal),
        );
    }

    /// Starts a program in a slot, for launchers of programs rather than of workers that join.
    pub fn launch_program(&mut self, launch: Launch) {
        let worker = launch.worker;
        let home = self.home_of(launch.slot);
        if let Err(error) = self.expect(home, worker) {
            let why = format!("its host cannot be reached: {error}");
            (self.sink)(LaunchEvent::NotStarted { worker, why });
            return;
        }
        self.order(|host| host.workers.contains(&worker), Order::Start(launch));
    }

    /// A host is about to get a worker; where its supervisor is gone, it gets another one first.
    fn expect(&mut self, home: usize, worker: WorkerId) -> io::Result<()> {
        let is_there = |host: &Host| {
            let mut shared = lock(&host.shared);
            !shared.ended && shared.ordered.insert(worker)
        };
        let Some(host) = self.hosts.get_mut(home) else {
            return Ok(());
        };
        if !is_there(host) {
            let (plan, workers) = (host.plan.clone(), std::mem::take(&mut host.workers));
            let mut host = self.start_host(plan, true)?;
            host.workers = workers;
            is_there(&host);
            self.hosts[home] = host;
        }
        if let Some(host) = self.hosts.get_mut(home) {
            host.workers.insert(worker);
        }
        Ok(())
    }

    /// Starts a supervisor; `again` where there was another one before.
    fn start_host(&mut self, plan: HostPlan, again: bool) -> io::Result<Host> {
        let mut host = Host::to_be_called(plan, again);
        match host.plan.reach.clone() {
            Reach::Command(command) => host.run(&command, &self.sink)?,
            Reach::Call => match self.spares.pop_front() {
                Some(caller) => host.take(caller, &self.sink)?,
                None => self.summon(&mut host),
            },
        }
        Ok(host)
    }

    fn summon(&mut self, host: &mut Host) {
        self.summoned += 1;
        host.summons = self.summoned;
        let slots = host.plan.slots.iter();
        slots.for_each(|slot| self.engine.summon(*slot, self.summoned));
    }
}

impl Host {
    /// A host that waits for a call, with its first order.
    fn to_be_called(plan: HostPlan, again: bool) -> Self {
        let (orders, queue) = mpsc::channel();
        // The other end is here.
        let _ = orders.send(Order::Configure(Box::new(plan.configure.clone())));
        Self {
            plan,
            shared: Arc::default(),
            orders: Some(orders),
            waiting: Some((queue, again)),
            summons: 0,
            workers: BTreeSet::new(),
            reader: None,
            process: None,
        }
    }

    fn line(&self, again: bool, sink: &Sink) -> Line {
        Line {
            plan: self.plan.clone(),
            shared: Arc::clone(&self.shared),
            sink: Arc::clone(sink),
            again,
        }
    }

    fn run(&mut self, command: &[String], sink: &Sink) -> io::Result<()> {
        if let Some((queue, again)) = self.waiting.take() {
            let (process, reader) = self.line(again, sink).run_command(command, queue)?;
            (self.process, self.reader) = (Some(process), Some(reader));
        }
        Ok(())
    }

    fn take(&mut self, caller: Caller, sink: &Sink) -> io::Result<()> {
        if let Some((queue, again)) = self.waiting.take() {
            self.plan.name.clone_from(&caller.host);
            self.reader = Some(self.line(again, sink).take_call(caller, queue)?);
        }
        Ok(())
    }

    /// Its supervisor will not come: nor will the workers that it was to start.
    fn give_up(&mut self, why: &str, sink: &Sink) {
        self.waiting = None;
        let mut shared = lock(&self.shared);
        shared.ended = true;
        let ordered = std::mem::take(&mut shared.ordered);
        drop(shared);
        for worker in ordered {
            let why = why.to_owned();
            sink(LaunchEvent::NotStarted { worker, why });
        }
    }
}

impl Launcher for Hosts {
    fn launch(&mut self, worker: WorkerId, slot: u32) {
        self.launch_program(Launch {
            worker,
            slot,
            rank: slot,
            program: None,
        });
    }

    fn kill(&mut self, worker: WorkerId) {
        let host = self.hosts.iter().find(|host| host.workers.contains(&worker));
        if host.is_some_and(|host| !lock(&host.shared).ready) {
            let why = "its host was still starting".to_owned();
            (self.sink)(LaunchEvent::NotStarted { worker, why });
        }
        self.order(|host| host.workers.contains(&worker), Order::Kill(worker));
    }

    fn called(&mut self, caller: Caller) {
        let waits = |host: &&mut Host| host.waiting.is_some() && matches!(host.plan.reach, Reach::Call);
        let own = |host: &&mut Host| waits(host) && host.plan.slots.contains(&caller.slot);
        // Whoever was started for another slot does as well.
        let host = match self.hosts.iter_mut().find(own) {
            None => self.hosts.iter_mut().find(waits),
            own => own,
        };
        match host {
            None => self.spares.push_back(caller),
            Some(host) => {
                self.engine.answered(host.summons);
                if let Err(error) = host.take(caller, &self.sink) {
                    host.give_up(&format!("its line cannot be read: {error}"), &self.sink);
                }
            }
        }
    }

    fn not_coming(&mut self, summons: u64, why: &str) {
        let waits = |host: &&mut Host| host.waiting.is_some() && host.summons == summons;
        if let Some(host) = self.hosts.iter_mut().find(waits) {
            self.engine.answered(summons);
            host.give_up(why, &self.sink);
        }
    }

    fn close(&mut self) {
        self.spares.clear();
        for host in &mut self.hosts {
            let mut shared = lock(&host.shared);
            shared.closing = true;
            let Some(orders) = host.orders.take() else {
                continue;
            };
            let _ = orders.send(Order::End);
            let gone = host.reader.as_ref().is_none_or(thread::JoinHandle::is_finished);
            if let Some(process) = host.process.filter(|_| !shared.ready && !gone) {
                // It is deep in the import of a module, and reads no orders.
                terminate_group(process);
            }
        }
        let clock = SystemClock::start();
        let end = clock.now() + CLOSE_WITHIN;
        for host in &mut self.hosts {
            let Some(reader) = host.reader.take() else {
                continue;
            };
            while !reader.is_finished() && clock.now() < end {
                thread::park_timeout(Duration::from_millis(1));
            }
            if let Some(process) = host.process.filter(|_| !reader.is_finished()) {
                kill_group(process);
            }
            // A thread that still reads ends when the other end is closed; nobody waits for that.
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.close();
    }
}
