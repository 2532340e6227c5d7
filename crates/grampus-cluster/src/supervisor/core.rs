//! The supervisor's loop: wait for orders, output and deaths, one at a time, in one thread.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use grampus_core::{Clock, Exit, SystemClock, TaskId, Time, WorkerId};
use grampus_net::handover::Handover;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, set_child_subreaper, set_parent_process_death_signal, waitpid,
};

use super::child::{self, Entry, Pipes};
use super::control::{Control, take_stdio};
use super::files::LogFiles;
use super::logs::{Logs, Read};
use super::message::{Configure, Launch, Order, Program, Report, Stream};
use super::signals::{self, Signals};
use super::start::{first_order, secret, watch_driver};
use super::{SupervisorError, tree};
use crate::launcher::LaunchEvent;
use crate::patience::Silence;
use crate::rankfile::{FileEvent, broken_log};
use crate::{host, jobdir};

/// A pipe holds 64 KiB, one read takes as much; a read may return early at the end of the buffer.
const FULL_PIPE_READS: u32 = 4;
/// How often orphans that have ended are waited for.
const REAP_EVERY: Duration = Duration::from_secs(1);
/// How long killed processes may take to be gone.
const END_WITHIN: Duration = Duration::from_secs(2);
/// A notice with this bit asks for time, in milliseconds, if the driver is lost; others are numbers of tasks.
const TIME_ASKED: u64 = 1 << 63;
/// The most of it that anybody gets.
const MOST_TIME: Duration = Duration::from_secs(60);
/// What a log file is waited for where it matters to people, as long as its disk keeps up: a worker is started when its file is
/// there, and a task has ended when its output is in it.
const LOG_WITHIN: Duration = Duration::from_millis(200);
/// How long the end waits for log files.
const CLOSE_LOGS_WITHIN: Duration = Duration::from_millis(500);

/// What the loop wants from its caller.
pub enum Next {
    /// Fork, and call [`Supervisor::adopt`] in the parent and [`Entry::enter`] in the child.
    Fork(Entry),
    /// The job is over and every process is gone: end.
    End,
}

struct Child {
    pid: Pid,
    exit: OwnedFd,
    notice: Option<OwnedFd>,
    logs: Logs,
    rank: u32,
    /// How long it may go on if the driver is lost.
    grace: Duration,
}

/// One per host.
pub struct Supervisor {
    control: Control,
    configure: Configure,
    driver: Option<OwnedFd>,
    children: BTreeMap<WorkerId, Child>,
    entering: Option<(Launch, Pipes)>,
    /// Workers that it was told to start so far.
    launched: u32,
    forks: bool,
    /// What to run as a worker where none is forked.
    worker: Option<Program>,
    clock: SystemClock,
    /// What came from the driver, at the last beat, and so far.
    silence: Silence,
    heard: u64,
    beat: Time,
    reaped: Time,
    memory_kills: u64,
    /// The driver is gone, and workers have until then.
    alone_until: Option<Time>,
    /// From when it is ready.
    signals: Option<Signals>,
    files: Option<LogFiles>,
    /// Where it may rest when the job is over, and whether the driver has said that it is.
    pub(super) place: Option<Handover>,
    pub(super) over: bool,
}

enum Wake {
    Control,
    Writable,
    Driver,
    Told,
    Files,
    Exit(WorkerId),
    Output(WorkerId, Stream),
    Notice(WorkerId),
}

impl Supervisor {
    /// Takes standard input and output as the line to the driver, and reads the configuration. Afterwards
    /// descriptors 0 and 1 lead elsewhere, so that nobody writes into the line by mistake.
    pub fn attach(place: Option<Handover>) -> Result<Self, SupervisorError> {
        signals::inherit_defaults();
        let (input, output) = take_stdio()?;
        set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(SupervisorError::system("become a subreaper"))?;
        let clock = SystemClock::start();
        let mut control = Control::new(input, output)?;
        let configure = first_order(&mut control, &clock)?;
        let driver = watch_driver(&configure)?;
        let now = clock.now();
        Ok(Self {
            control,
            configure,
            driver,
            children: BTreeMap::new(),
            entering: None,
            launched: 0,
            forks: false,
            worker: None,
            clock,
            silence: Silence::default(),
            heard: 0,
            beat: now,
            reaped: now,
            memory_kills: host::out_of_memory_kills(),
            alone_until: None,
            signals: None,
            files: None,
            place,
            over: false,
        })
    }

    /// What the driver asked for.
    pub fn configure(&self) -> &Configure {
        &self.configure
    }

    /// Tells the driver that workers may be started, and what a person should know of it. Without `forks`
    /// they are started as programs: as `worker`, unless the driver names another.
    pub fn ready(
        &mut self,
        forks: bool,
        note: String,
        worker: Option<Program>,
    ) -> Result<(), SupervisorError> {
        (self.forks, self.worker) = (forks, worker);
        self.signals = Some(Signals::catch()?);
        if let Some(dir) = &self.configure.log_dir {
            self.files = Some(LogFiles::open(dir.clone())?);
        }
        // It follows the thread that started this process, which may end from now on; the loop watches the
        // whole driver.
        let _ = set_parent_process_death_signal(None);
        self.control.report(&Report::Ready { forks, note })
    }

    /// Works until a fork is wanted or the job is over.
    pub fn serve(&mut self) -> Result<Next, SupervisorError> {
        loop {
            while let Some(order) = self.control.next_order()? {
                if matches!(order, Order::End) {
                    self.over = true;
                    self.end();
                    return Ok(Next::End);
                }
                if let Some(entry) = self.obey(order)? {
                    return Ok(Next::Fork(entry));
                }
            }
            if !self.turn()? {
                self.end();
                return Ok(Next::End);
            }
        }
    }

    /// The parent's side of a fork.
    pub fn adopt(&mut self, pid: u32) -> Result<(), SupervisorError> {
        let Some((launch, pipes)) = self.entering.take() else {
            return Ok(());
        };
        match Pid::from_raw(pid as i32) {
            Some(pid) => {
                // Both sides set the group: whoever is first, no signal can miss it.
                let _ = rustix::process::setpgid(Some(pid), Some(pid));
                self.keep(&launch, pipes, pid)
            }
            None => Ok(()),
        }
    }

    fn obey(&mut self, order: Order) -> Result<Option<Entry>, SupervisorError> {
        match order {
            Order::Configure(_) | Order::Alive | Order::End => Ok(None),
            Order::Kill(worker) => {
                if let Some(child) = self.children.get(&worker) {
                    tree::kill_group(child.pid.as_raw_nonzero().get() as u32);
                }
                Ok(None)
            }
            Order::Signal(worker, signal) => {
                if let (Some(child), Some(signal)) =
                    (self.children.get(&worker), Signal::from_named_raw(signal))
                {
                    // It may have ended a moment ago.
                    let _ = rustix::process::kill_process_group(child.pid, signal);
                }
                Ok(None)
            }
            Order::Start(launch) => self.start(launch),
        }
    }

    fn start(&mut self, launch: Launch) -> Result<Option<Entry>, SupervisorError> {
        if let Some(files) = &self.files {
            files.create(launch.rank);
            files.settle(LOG_WITHIN);
            if let Some(why) = self.tell_of_files()? {
                self.not_started(launch.worker, why)?;
                return Ok(None);
            }
        }
        self.launched = self.launched.saturating_add(1);
        let (stdio, pipes) = match child::pipes() {
            Ok(made) => made,
            Err(error) => {
                self.not_started(launch.worker, error.to_string())?;
                return Ok(None);
            }
        };
        if self.forks {
            self.entering = Some((launch.clone(), pipes));
            return Ok(Some(Entry::new(stdio, launch)));
        }
        let Some(program) = launch.program.as_ref().or(self.worker.as_ref()) else {
            self.not_started(launch.worker, "this supervisor starts programs only".to_owned())?;
            return Ok(None);
        };
        let secret = secret(&self.configure, &launch)?;
        match child::spawn(program, stdio, secret.as_ref()) {
            Ok(pid) => self.keep(&launch, pipes, pid)?,
            Err(error) => {
                let why = format!("cannot run `{}`: {error}", program.program);
                self.not_started(launch.worker, why)?;
            }
        }
        Ok(None)
    }

    fn not_started(&mut self, worker: WorkerId, why: String) -> Result<(), SupervisorError> {
        self.control.tell(LaunchEvent::NotStarted { worker, why })
    }
    /// The fork that was wanted failed.
    pub fn give_up_fork(&mut self, why: &str) -> Result<(), SupervisorError> {
        match self.entering.take() {
            Some((launch, _)) => self.not_started(launch.worker, format!("cannot fork: {why}")),
            None => Ok(()),
        }
    }

    fn keep(&mut self, launch: &Launch, pipes: Pipes, pid: Pid) -> Result<(), SupervisorError> {
        let worker = launch.worker;
        self.control.tell(LaunchEvent::Started {
            worker,
            pid: pid.as_raw_nonzero().get() as u32,
        })?;
        self.children.insert(
            worker,
            Child {
                pid,
                exit: child::watch(pid)?,
                notice: Some(pipes.notice),
                logs: Logs::of(pipes.out, pipes.err),
                rank: launch.rank,
                grace: Duration::ZERO,
            },
        );
        Ok(())
    }

    /// Waits for one round of events; false when the driver is gone and nobody may go on without it.
    fn turn(&mut self) -> Result<bool, SupervisorError> {
        let wakes = self.wait()?;
        let now = self.clock.now();
        if now.since(self.reaped) >= REAP_EVERY {
            self.reaped = now;
            self.reap_orphans();
        }
        for wake in wakes {
            match wake {
                Wake::Writable => self.control.flush(),
                Wake::Told => return Ok(false),
                Wake::Driver => return self.goes_on_alone(),
                Wake::Control if !self.control.fill() => return self.goes_on_alone(),
                Wake::Control => self.heard += 1,
                Wake::Files => drop(self.tell_of_files()?),
                Wake::Output(worker, stream) => drop(self.read(worker, stream)?),
                Wake::Notice(worker) => self.notice(worker)?,
                Wake::Exit(worker) => self.reap(worker)?,
            }
        }
        if let Some(until) = self.alone_until {
            return Ok(!self.children.is_empty() && self.clock.now() < until);
        }
        Ok(self.heartbeat()? || self.goes_on_alone()?)
    }

    /// The driver is gone: whether a worker has asked for time to save what it has.
    fn goes_on_alone(&mut self) -> Result<bool, SupervisorError> {
        self.control.close();
        // They may have asked a moment ago.
        for worker in self.children.keys().copied().collect::<Vec<_>>() {
            self.notice(worker)?;
        }
        let grace = self.children.values().map(|child| child.grace).max();
        let grace = grace.unwrap_or_default().min(MOST_TIME);
        self.alone_until = Some(self.clock.now() + grace);
        Ok(!grace.is_zero())
    }

    /// Where the driver's process cannot be watched, both sides send signs of life.
    fn heartbeat(&mut self) -> Result<bool, SupervisorError> {
        let now = self.clock.now();
        let beat = Silence::beat(Duration::from_millis(self.configure.silent_after_ms));
        if self.driver.is_some() || now.since(self.beat) < beat {
            return Ok(true);
        }
        self.beat = now;
        self.control.report(&Report::Alive)?;
        Ok(!self.silence.is_over(self.heard))
    }

    /// The process of a driver that lives.
    fn watched_driver(&self) -> Option<&OwnedFd> {
        self.driver.as_ref().filter(|_| self.alone_until.is_none())
    }

    fn wait(&self) -> Result<Vec<Wake>, SupervisorError> {
        let (mut fds, mut wakes) = (Vec::new(), Vec::new());
        if self.alone_until.is_none() {
            fds.push(PollFd::from_borrowed_fd(self.control.input(), PollFlags::IN));
            wakes.push(Wake::Control);
        }
        if self.control.wants_to_write() {
            fds.push(PollFd::from_borrowed_fd(self.control.output(), PollFlags::OUT));
            wakes.push(Wake::Writable);
        }
        if let Some(signals) = &self.signals {
            fds.push(PollFd::from_borrowed_fd(signals.descriptor(), PollFlags::IN));
            wakes.push(Wake::Told);
        }
        if let Some(files) = &self.files {
            fds.push(PollFd::from_borrowed_fd(files.descriptor(), PollFlags::IN));
            wakes.push(Wake::Files);
        }
        if let Some(driver) = self.watched_driver() {
            fds.push(PollFd::new(driver, PollFlags::IN));
            wakes.push(Wake::Driver);
        }
        for (worker, child) in &self.children {
            fds.push(PollFd::new(&child.exit, PollFlags::IN));
            wakes.push(Wake::Exit(*worker));
            if let Some(notice) = &child.notice {
                fds.push(PollFd::new(notice, PollFlags::IN));
                wakes.push(Wake::Notice(*worker));
            }
            let open = child.logs.pipes().filter(|_| !self.control.is_full());
            for (stream, fd) in open {
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
                wakes.push(Wake::Output(*worker, stream));
            }
        }
        let patience = match self.watched_driver() {
            Some(_) => Timespec {
                tv_sec: 5,
                tv_nsec: 0,
            },
            None => Timespec {
                tv_sec: 0,
                tv_nsec: 100_000_000,
            },
        };
        match poll(&mut fds, Some(&patience)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(SupervisorError::system("wait for events")(errno)),
        }
        let ready = fds.iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>();
        Ok(wakes
            .into_iter()
            .zip(ready)
            .filter(|(_, ready)| *ready)
            .map(|(wake, _)| wake)
            .collect())
    }

    fn read(&mut self, worker: WorkerId, stream: Stream) -> Result<bool, SupervisorError> {
        let Some(child) = self.children.get_mut(&worker) else {
            return Ok(false);
        };
        let rank = child.rank;
        match child.logs.read(stream) {
            Read::Bytes(bytes) => {
                if let Some(files) = &self.files {
                    files.write(rank, &bytes);
                }
                if self.configure.forward_output {
                    self.control.tell(LaunchEvent::Output { rank, stream, bytes })?;
                }
                Ok(true)
            }
            Read::Nothing | Read::Closed => Ok(false),
        }
    }

    /// A worker ended a task: pass on what it wrote for it, then say so (SU-4). Or it asks for time.
    fn notice(&mut self, worker: WorkerId) -> Result<(), SupervisorError> {
        let Some(child) = self.children.get_mut(&worker) else {
            return Ok(());
        };
        let mut bytes = [0; 64];
        let length = match child
            .notice
            .as_ref()
            .map(|notice| rustix::io::read(notice, &mut bytes))
        {
            Some(Ok(length @ 1..)) => length,
            Some(Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR)) => return Ok(()),
            _ => {
                child.notice = None;
                return Ok(());
            }
        };
        self.drain(worker)?;
        self.settle_files()?;
        // Each notice is one small write, which a pipe never splits.
        for word in bytes[..length].as_chunks::<8>().0 {
            let word = u64::from_le_bytes(*word);
            if word & TIME_ASKED != 0 {
                if let Some(child) = self.children.get_mut(&worker) {
                    child.grace = Duration::from_millis(word & !TIME_ASKED);
                }
                continue;
            }
            self.control.tell(LaunchEvent::Settled {
                worker,
                task: TaskId(word),
            })?;
        }
        Ok(())
    }

    /// What was read is in the log files, where their disk keeps up.
    fn settle_files(&mut self) -> Result<(), SupervisorError> {
        if let Some(files) = &self.files {
            files.settle(LOG_WITHIN);
        }
        self.tell_of_files().map(drop)
    }

    /// Passes on what the log files have to tell; returns why a job that begins cannot have them.
    fn tell_of_files(&mut self) -> Result<Option<String>, SupervisorError> {
        let (mut refused, begins) = (None, self.launched < self.configure.workers);
        for event in self.files.iter().flat_map(LogFiles::events).collect::<Vec<_>>() {
            match event {
                FileEvent::Note(note) => self.control.tell(LaunchEvent::Note { note })?,
                FileEvent::NotMade { path, why } if begins => {
                    refused = Some(why.clone());
                    self.control.report(&Report::LogNotMade { path, why })?;
                }
                FileEvent::NotMade { path, why } => {
                    let note = broken_log(&path, &why);
                    self.control.tell(LaunchEvent::Note { note })?;
                }
            }
        }
        Ok(refused)
    }

    /// What the pipes hold now; not what somebody else goes on writing into them.
    fn drain(&mut self, worker: WorkerId) -> Result<(), SupervisorError> {
        for stream in [Stream::Out, Stream::Err] {
            let mut reads = 0;
            while reads < FULL_PIPE_READS && self.read(worker, stream)? {
                reads += 1;
            }
        }
        Ok(())
    }

    /// A worker ended: first its last words, then its exit (SU-4), then whatever is left of its group.
    fn reap(&mut self, worker: WorkerId) -> Result<(), SupervisorError> {
        let Some(pid) = self.children.get(&worker).map(|child| child.pid) else {
            return Ok(());
        };
        self.drain(worker)?;
        self.settle_files()?;
        // Before it is waited for: until then nobody else can be given its number.
        tree::kill_group(pid.as_raw_nonzero().get() as u32);
        let Ok(Some((_, status))) = waitpid(Some(pid), WaitOptions::NOHANG) else {
            return Ok(());
        };
        self.reap_orphans();
        let log_tail = self
            .children
            .remove(&worker)
            .map(|child| child.logs.tail())
            .unwrap_or_default();
        let exit = self.exit_of(status);
        self.control.tell(LaunchEvent::Exited {
            worker,
            exit,
            log_tail,
        })
    }

    /// Orphans of workers become children of this process; those that ended by themselves are waited for here.
    fn reap_orphans(&self) {
        for orphan in tree::children() {
            if !self.children.values().any(|child| child.pid == orphan) {
                let _ = waitpid(Some(orphan), WaitOptions::NOHANG);
            }
        }
    }

    fn exit_of(&mut self, status: WaitStatus) -> Exit {
        let kills = host::out_of_memory_kills();
        let for_memory = kills > self.memory_kills;
        self.memory_kills = kills;
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, Some(signal)) if signal == Signal::KILL.as_raw() && for_memory => Exit::OutOfMemory,
            (None, signal) => Exit::Signal(signal.unwrap_or(0)),
        }
    }

    /// The driver is gone or wants the end: nothing may be left (SU-1, SU-3). A second call finds nothing.
    pub fn end(&mut self) {
        for child in self.children.values() {
            tree::kill_group(child.pid.as_raw_nonzero().get() as u32);
        }
        tree::kill_descendants(END_WITHIN);
        self.close_files();
        if let Some(folder) = &self.configure.remove {
            // Whoever is left of driver and supervisor removes it; the other one finds it gone.
            jobdir::remove(folder);
        }
    }

    fn close_files(&mut self) {
        let Some(files) = self.files.take() else { return };
        let missing = files.close(CLOSE_LOGS_WITHIN);
        let events = files.events().into_iter();
        let notes = events.map(|event| match event {
            FileEvent::Note(note) => note,
            FileEvent::NotMade { path, why } => broken_log(&path, &why),
        });
        for note in notes.chain(missing) {
            // The driver may be gone.
            let _ = self.control.tell(LaunchEvent::Note { note });
        }
    }
}
