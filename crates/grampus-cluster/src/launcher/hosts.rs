//! Processes on this host or on others, each host under a supervisor that is reached through the standard
//! input and output of a command: our own program here, `ssh host …` or anything like it there.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use grampus_core::{Clock, Exit, SystemClock, WorkerId};
use grampus_net::{Frame, Limits, pipe};

use super::{LaunchEvent, Launcher};
use crate::rankfile::broken_log;
use crate::supervisor::{Configure, Launch, Order, Program, Report, kill_group, terminate_group};

/// How long a supervisor may take to end everything and itself.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);
/// Last bytes of a supervisor's own standard error that are kept for its error message.
const STDERR_TAIL: usize = 4096;
/// How long they may take to arrive once it has ended.
const WORDS_WITHIN: Duration = Duration::from_millis(300);

/// One host of a job.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// Name, for people.
    pub name: String,
    /// What to run here to get a supervisor on that host.
    pub command: Vec<String>,
    /// Slots that live on it, in order.
    pub slots: Vec<u32>,
    /// What it is told first.
    pub configure: Configure,
    /// What to run as a worker where the supervisor cannot fork one.
    pub program: Option<Program>,
}

/// What the threads of one host share.
#[derive(Default)]
struct Shared {
    /// Process of every worker that runs there.
    processes: BTreeMap<WorkerId, u32>,
    /// Workers that it was told to start and of whose end nothing was heard.
    ordered: BTreeSet<WorkerId>,
    /// Its supervisor takes orders. Until then it imports modules, and has started nobody.
    ready: bool,
    /// The end was asked for: it is not a failure.
    closing: bool,
    /// Its supervisor is gone.
    ended: bool,
}

struct Host {
    plan: HostPlan,
    shared: Arc<Mutex<Shared>>,
    orders: Option<mpsc::Sender<Order>>,
    workers: BTreeSet<WorkerId>,
    reader: Option<thread::JoinHandle<()>>,
    process: u32,
}

/// All hosts of a job.
pub struct Hosts {
    hosts: Vec<Host>,
    sink: Sink,
}

type Sink = Arc<dyn Fn(LaunchEvent) + Send + Sync>;

impl Hosts {
    /// Starts a supervisor on every host. Events go to `sink`, from other threads.
    pub fn start(
        plans: Vec<HostPlan>,
        sink: impl Fn(LaunchEvent) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let sink: Sink = Arc::new(sink);
        let mut all = Self {
            hosts: Vec::new(),
            sink: Arc::clone(&sink),
        };
        for plan in plans {
            let name = plan.name.clone();
            let host = start_host(plan, Arc::clone(&sink), false).map_err(|error| {
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

    /// On which host a slot lives. Those that the job has got since it began go round the hosts that have workers.
    fn home_of(&self, slot: u32) -> usize {
        let mut hosts = self.hosts.iter();
        let planned = hosts.position(|host| host.plan.slots.contains(&slot));
        planned.unwrap_or_else(|| {
            let hosts = self.hosts.iter().enumerate();
            let homes: Vec<usize> = hosts
                .filter(|(_, host)| !host.plan.slots.is_empty())
                .map(|(number, _)| number)
                .collect();
            homes
                .get(slot as usize % homes.len().max(1))
                .copied()
                .unwrap_or(0)
        })
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
        let Some(host) = self.hosts.get_mut(home) else {
            return Ok(());
        };
        let is_there = |host: &Host| {
            let mut shared = lock(&host.shared);
            !shared.ended && shared.ordered.insert(worker)
        };
        if !is_there(host) {
            let workers = std::mem::take(&mut host.workers);
            *host = start_host(host.plan.clone(), Arc::clone(&self.sink), true)?;
            host.workers = workers;
            is_there(host);
        }
        host.workers.insert(worker);
        Ok(())
    }
}

impl Launcher for Hosts {
    fn launch(&mut self, worker: WorkerId, slot: u32) {
        let host = self.hosts.get(self.home_of(slot));
        let program = host.and_then(|host| host.plan.program.clone());
        self.launch_program(Launch {
            worker,
            slot,
            rank: slot,
            program,
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

    fn close(&mut self) {
        for host in &mut self.hosts {
            let mut shared = lock(&host.shared);
            shared.closing = true;
            let Some(orders) = host.orders.take() else {
                continue;
            };
            let _ = orders.send(Order::End);
            let gone = host.reader.as_ref().is_none_or(thread::JoinHandle::is_finished);
            if !shared.ready && !gone {
                // It is deep in the import of a module, and reads no orders.
                terminate_group(host.process);
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
            if !reader.is_finished() {
                kill_group(host.process);
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

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a supervisor; `again` where there was another one before.
fn start_host(plan: HostPlan, sink: Sink, again: bool) -> io::Result<Host> {
    let (program, arguments) = plan.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C in a terminal reaches the driver alone, which then decides.
        .process_group(0)
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("`{program}`: {error}")))?;
    let process = child.id();
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let (orders, queue) = mpsc::channel();
    let _ = orders.send(Order::Configure(Box::new(plan.configure.clone())));
    // A supervisor on this host watches this process itself.
    let beat = match plan.configure.driver {
        Some(_) => Duration::from_secs(3600),
        None => Duration::from_millis(plan.configure.silent_after_ms / 6),
    };
    let shared = Arc::new(Mutex::new(Shared::default()));
    spawn("grampus-orders", move || write_orders(stdin, &queue, beat))?;
    let words = Words::listen(stderr)?;
    let link = HostLink {
        plan: plan.clone(),
        shared: Arc::clone(&shared),
        sink,
        again,
    };
    let reader = spawn("grampus-reports", move || link.run(child, stdout, words))?;
    Ok(Host {
        plan,
        shared,
        orders: Some(orders),
        workers: BTreeSet::new(),
        reader: Some(reader),
        process,
    })
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(work)
}

/// Writes orders, and a sign of life where there are none; ends when the launcher drops its end.
fn write_orders(mut stdin: ChildStdin, queue: &mpsc::Receiver<Order>, beat: Duration) {
    loop {
        let order = match queue.recv_timeout(beat) {
            Ok(order) => order,
            Err(RecvTimeoutError::Timeout) => Order::Alive,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let written = Frame::message(&order)
            .and_then(|frame| pipe::write_frame(&mut stdin, &frame, &Limits::default()));
        if written.is_err() || stdin.flush().is_err() {
            return;
        }
    }
}

/// A supervisor's own words: shown only if it breaks.
struct Words {
    tail: Arc<Mutex<Vec<u8>>>,
    listener: thread::JoinHandle<()>,
}

impl Words {
    fn listen(mut stderr: ChildStderr) -> io::Result<Self> {
        let tail = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&tail);
        let listener = spawn("grampus-stderr", move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = stderr.read(&mut bytes) {
                let mut tail = shared.lock().unwrap_or_else(PoisonError::into_inner);
                tail.extend_from_slice(&bytes[..length]);
                let surplus = tail.len().saturating_sub(STDERR_TAIL);
                tail.drain(..surplus);
            }
        })?;
        Ok(Self { tail, listener })
    }

    /// The last of them, once the supervisor has ended. Whoever it left behind, for example the master
    /// connection of an ssh, may hold its standard error open for ever: that is not waited for.
    fn last(self) -> String {
        let clock = SystemClock::start();
        let end = clock.now() + WORDS_WITHIN;
        while !self.listener.is_finished() && clock.now() < end {
            thread::park_timeout(Duration::from_millis(1));
        }
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&tail).trim().to_owned()
    }
}

/// The reading side of one host.
struct HostLink {
    plan: HostPlan,
    shared: Arc<Mutex<Shared>>,
    sink: Sink,
    again: bool,
}

impl HostLink {
    fn run(self, mut child: Child, mut stdout: ChildStdout, words: Words) {
        let broken = loop {
            match pipe::read_frame(&mut stdout, &Limits::default()) {
                Ok(Some(frame)) => match frame.read::<Report>() {
                    Ok(report) => self.tell(report),
                    Err(error) => break Some(error.to_string()),
                },
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        if broken.is_some() {
            // What it says cannot be understood, for example the banner of a login shell.
            kill_group(child.id());
        }
        drop(stdout);
        let status = child.wait();
        let words = words.last();
        self.end(broken, status, &words);
    }

    fn tell(&self, report: Report) {
        let event = match report {
            Report::Ready { note, .. } => {
                lock(&self.shared).ready = true;
                LaunchEvent::Ready {
                    host: self.plan.name.clone(),
                    note,
                }
            }
            Report::LogBroken { path, why } => LaunchEvent::Broken {
                why: broken_log(&path, &why),
            },
            Report::Event(event) => {
                self.count(&event);
                event
            }
            Report::Alive => return,
        };
        (self.sink)(event);
    }

    /// Keeps track of the processes there, in case their supervisor cannot any more.
    fn count(&self, event: &LaunchEvent) {
        let mut shared = lock(&self.shared);
        match event {
            LaunchEvent::Started { worker, pid } => drop(shared.processes.insert(*worker, *pid)),
            LaunchEvent::Exited { worker, .. } | LaunchEvent::NotStarted { worker, .. } => {
                shared.processes.remove(worker);
                shared.ordered.remove(worker);
            }
            _ => {}
        }
    }

    /// The supervisor is gone. If it could not clean up, its workers' process groups are ended from here. Another host that
    /// has worked before may do so again: its workers are lost, and the job is not.
    fn end(&self, broken: Option<String>, status: io::Result<ExitStatus>, words: &str) {
        let mut shared = lock(&self.shared);
        let left = std::mem::take(&mut shared.processes);
        let ordered = std::mem::take(&mut shared.ordered);
        let (closing, ready) = (shared.closing, shared.ready);
        shared.ended = true;
        drop(shared);
        let expendable = self.plan.configure.driver.is_none() && (ready || self.again);
        if self.plan.configure.driver.is_some() {
            left.values().for_each(|process| kill_group(*process));
        }
        if !closing {
            let how = broken.unwrap_or_else(|| describe(status));
            let mut why = format!(
                "the supervisor of {} {how}; its workers were ended",
                self.plan.name
            );
            if !words.is_empty() {
                why = format!("{why}\nits last words:\n{words}");
            }
            if expendable {
                let never = ordered.iter().filter(|worker| !left.contains_key(worker));
                never.for_each(|worker| {
                    let (worker, why) = (*worker, why.clone());
                    (self.sink)(LaunchEvent::NotStarted { worker, why });
                });
                (self.sink)(LaunchEvent::HostLost { why });
            } else {
                (self.sink)(LaunchEvent::Broken { why });
            }
        }
        for worker in left.into_keys() {
            (self.sink)(LaunchEvent::Exited {
                worker,
                exit: Exit::Signal(9),
                log_tail: String::new(),
            });
        }
    }
}

fn describe(status: io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code).to_string(),
            (None, signal) => Exit::Signal(signal.unwrap_or(0)).to_string(),
        },
        Err(error) => format!("cannot be waited for: {error}"),
    }
}
