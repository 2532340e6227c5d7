//! The ranks of one node: started together, ended together.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use grampus_core::{Clock, Exit, Failure, Outcome, SystemClock, TaskId, Time, WorkerId};

use super::console::{Console, say};
use super::{Job, NodeEnd, NodeEvent, NodePlan, RANKS_KEY};
use crate::Payload;
use crate::agent::{Agent, Assignment, Work};
use crate::launcher::{Hosts, LaunchEvent, Launcher};
use crate::supervisor::{Launch, Program};

/// How long ranks may take to end by themselves after another one failed: time for a last checkpoint.
const END_WITHIN: Duration = Duration::from_secs(2);
/// The same after Ctrl-C or another signal: time for the step under way. The next signal ends them at once.
const INTERRUPT_WITHIN: Duration = Duration::from_secs(30);
/// What the console may take to show what ranks wrote before it is said how they ended; and after a signal, at the end.
const SHOW_WITHIN: Duration = Duration::from_millis(200);
const FOR_EVER: Duration = Duration::from_secs(3600);

type Stopper = Box<dyn Fn(&str) + Send>;

struct Running {
    task: TaskId,
    /// Which of this node's ranks each process is.
    left: BTreeMap<WorkerId, u32>,
    pids: BTreeMap<WorkerId, u32>,
    failed: Option<(u32, Option<u32>, Failure)>,
    cancelled: bool,
    kill_at: Option<Time>,
    /// In memory that ranks of this user can open as long as they run.
    key: Option<OwnedFd>,
}

/// A key in memory that has no name; none where there is no memory, and then ranks cannot form groups.
fn held(key: &[u8]) -> Option<OwnedFd> {
    let memory = rustix::fs::memfd_create("grampus", rustix::fs::MemfdFlags::CLOEXEC).ok()?;
    rustix::io::pwrite(&memory, key, 0).ok()?;
    Some(memory)
}

pub(super) struct Ranks {
    plan: NodePlan,
    agent: Arc<Agent>,
    hosts: Hosts,
    stopper: Option<Stopper>,
    clock: SystemClock,
    console: Console,
    next_worker: u64,
    running: Option<Running>,
    /// The first failure of this node's own ranks.
    own: Option<i32>,
    signal: Option<i32>,
    end: Option<NodeEnd>,
}

impl Ranks {
    pub(super) fn new(
        plan: NodePlan,
        agent: Arc<Agent>,
        (hosts, console): (Hosts, Console),
        stopper: Option<Stopper>,
    ) -> Self {
        Self {
            plan,
            agent,
            hosts,
            stopper,
            clock: SystemClock::start(),
            console,
            next_worker: 1,
            running: None,
            own: None,
            signal: None,
            end: None,
        }
    }

    /// Until the job is over and every rank of this node is gone (NO-1).
    pub(super) fn run(mut self, events: &Receiver<NodeEvent>) -> NodeEnd {
        let end = loop {
            if let Some(end) = self.end.take() {
                break end;
            }
            match events.recv_timeout(self.patience()) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => self.kill_stubborn(),
                Err(RecvTimeoutError::Disconnected) => break NodeEnd { code: 1, why: None },
            }
        };
        self.console.let_pass();
        self.hosts.close();
        self.console.close();
        // The ranks are gone. Whoever reads what they wrote may take as long as it takes; a signal says that nobody does.
        let mut over = false;
        while !over {
            over = self.console.is_done(SHOW_WITHIN) || self.signal.is_some();
            for event in events.try_iter() {
                match event {
                    NodeEvent::Signal(_) => over = true,
                    // Lines that log files lack.
                    NodeEvent::Launch(LaunchEvent::Note { note }) => say(&note),
                    _ => {}
                }
            }
        }
        end
    }

    fn patience(&self) -> Duration {
        let kill_at = self.running.as_ref().and_then(|running| running.kill_at);
        kill_at.map_or(FOR_EVER, |time| time.since(self.clock.now()))
    }

    fn take(&mut self, event: NodeEvent) {
        match event {
            NodeEvent::Work(Work::Task(assignment)) => self.start(*assignment),
            NodeEvent::Work(Work::Stop { why }) => self.stop(why),
            NodeEvent::Work(Work::Lost { why }) => {
                let why = format!("this node lost node 0: {why}; its ranks were ended");
                self.end = Some(NodeEnd {
                    code: 1,
                    why: Some(why),
                });
            }
            NodeEvent::Cancel => self.end_ranks(libc::SIGTERM, END_WITHIN),
            NodeEvent::Signal(signal) => self.interrupted(signal),
            NodeEvent::Launch(event) => self.launched(event),
            // Said once, before there were ranks.
            NodeEvent::Joined(_) => {}
        }
    }

    fn start(&mut self, assignment: Assignment) {
        let Assignment {
            task,
            places,
            payload,
            ..
        } = assignment;
        self.console.begin(task.world);
        if !self.agent.begin(task.id) {
            return self
                .agent
                .finish(task.id, Outcome::Cancelled, Payload::default(), false);
        }
        let mut running = Running {
            task: task.id,
            left: BTreeMap::new(),
            pids: BTreeMap::new(),
            failed: None,
            cancelled: false,
            kill_at: None,
            key: payload.parts.first().and_then(|key| held(key)),
        };
        for (local, place) in places.iter().enumerate() {
            let worker = WorkerId(self.next_worker);
            self.next_worker += 1;
            let mut program: Program = self.plan.program.clone();
            let place_variables = place.environment(task.restarts).into_iter();
            program
                .environment
                .extend(place_variables.map(|(name, value)| (name.to_owned(), value)));
            if let Some(key) = &running.key {
                let place = format!("/proc/{}/fd/{}", std::process::id(), key.as_raw_fd());
                program.environment.push((RANKS_KEY.to_owned(), place));
            }
            running.left.insert(worker, local as u32);
            let launch = Launch {
                worker,
                slot: local as u32,
                rank: place.rank,
                program: Some(program),
            };
            self.hosts.launch_program(launch);
        }
        self.running = Some(running);
    }

    /// The job is over. A node whose own ranks all finished has done its part.
    fn stop(&mut self, why: String) {
        let unfinished = self.running.is_some();
        let code = self.own.unwrap_or(i32::from(unfinished));
        self.end = Some(match self.signal {
            Some(signal) => NodeEnd {
                code: 128 + signal,
                why: None,
            },
            None => NodeEnd {
                code,
                why: (code != 0).then_some(why),
            },
        });
    }

    /// The first signal lets ranks end by themselves, and the next one ends them.
    fn interrupted(&mut self, signal: i32) {
        let again = self.signal.is_some();
        let first = *self.signal.get_or_insert(signal);
        match self.running {
            Some(_) if again => self.kill_stubborn(),
            Some(_) => self.end_ranks(signal, INTERRUPT_WITHIN),
            None => self.end_by(first),
        }
    }

    /// No rank is left here. To stop the job earlier would end ranks that are still at their last step.
    fn end_by(&mut self, signal: i32) {
        if let Some(stopper) = &self.stopper {
            stopper("interrupted by the user");
        }
        self.end = Some(NodeEnd {
            code: 128 + signal,
            why: None,
        });
    }

    fn end_ranks(&mut self, signal: i32, within: Duration) {
        let Some(running) = &mut self.running else { return };
        running.cancelled = true;
        self.console.let_pass();
        let kill_at = self.clock.now() + within;
        running.kill_at = Some(running.kill_at.map_or(kill_at, |before| before.min(kill_at)));
        let left: Vec<WorkerId> = running.left.keys().copied().collect();
        for worker in left {
            self.hosts.signal(worker, signal);
        }
    }

    fn kill_stubborn(&mut self) {
        let Some(running) = &mut self.running else { return };
        running.kill_at = None;
        let left: Vec<WorkerId> = running.left.keys().copied().collect();
        for worker in left {
            self.hosts.kill(worker);
        }
    }

    fn launched(&mut self, event: LaunchEvent) {
        match event {
            // Output goes to the console, not through here.
            LaunchEvent::Ready { .. } | LaunchEvent::Settled { .. } | LaunchEvent::Output { .. } => {}
            LaunchEvent::Started { worker, pid } => {
                if let Some(running) = &mut self.running {
                    running.pids.insert(worker, pid);
                }
            }
            LaunchEvent::NotStarted { worker, why } => self.gone(worker, Some(Failure::NotStarted { why })),
            LaunchEvent::Exited {
                worker,
                exit: Exit::Code(0),
                ..
            } => self.gone(worker, None),
            LaunchEvent::Exited {
                worker,
                exit,
                mut log_tail,
            } => {
                if self.console_has_all() {
                    log_tail.clear();
                }
                self.gone(worker, Some(Failure::Exited { exit, log_tail }));
            }
            LaunchEvent::Note { note } => say(&note),
            LaunchEvent::Broken { why } | LaunchEvent::HostLost { why } => {
                if let Some(stopper) = &self.stopper {
                    stopper(&why);
                }
                self.end = Some(NodeEnd {
                    code: 1,
                    why: Some(why),
                });
            }
        }
    }

    /// Whether the console that shows how the job ends has shown all output: another node's has not.
    fn console_has_all(&self) -> bool {
        matches!(self.plan.job, Job::Alone) && self.plan.shown == (true, true)
    }

    fn gone(&mut self, worker: WorkerId, failure: Option<Failure>) {
        let Some(running) = &mut self.running else { return };
        let Some(local) = running.left.remove(&worker) else {
            return;
        };
        if let Some(failure) = failure
            && !running.cancelled
        {
            if let Failure::Exited { exit, .. } = &failure {
                self.own.get_or_insert(exit.code());
            }
            running.failed = Some((local, running.pids.get(&worker).copied(), failure));
            self.end_ranks(libc::SIGTERM, END_WITHIN);
        }
        self.finish_if_empty();
    }

    fn finish_if_empty(&mut self) {
        let Some(running) = self.running.take_if(|running| running.left.is_empty()) else {
            return;
        };
        self.console.settle(SHOW_WITHIN);
        self.agent.settle();
        if let Some(signal) = self.signal {
            self.end_by(signal);
        }
        let outcome = match running.failed {
            Some((local, pid, failure)) => Outcome::Failed { local, pid, failure },
            None if running.cancelled => Outcome::Cancelled,
            None => Outcome::Ok,
        };
        if matches!(outcome, Outcome::Cancelled) {
            self.own.get_or_insert(1);
        }
        self.agent
            .finish(running.task, outcome, Payload::default(), false);
    }
}
