//! The line to the supervisor of one host: orders there, reports back.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use grampus_core::{Clock, Exit, SystemClock, WorkerId};
use grampus_net::{Frame, Limits, pipe};

use super::hosts::{HostPlan, Sink};
use super::{Caller, LaunchEvent};
use crate::ended::{Tail, describe};
use crate::rankfile::refused_log;
use crate::supervisor::{Order, ROLE, Report, SUPERVISOR, kill_group};

/// How long the last words of a supervisor may take to arrive once it has ended.
const WORDS_WITHIN: Duration = Duration::from_millis(300);
/// Between signs of life where nobody needs any: the supervisor watches this process, or the link gives them.
const SELDOM: Duration = Duration::from_secs(3600);

/// What the threads of one host share.
#[derive(Default)]
pub(super) struct Shared {
    /// Process of every worker that runs there.
    pub processes: BTreeMap<WorkerId, u32>,
    /// Workers that it was told to start and of whose end nothing was heard.
    pub ordered: BTreeSet<WorkerId>,
    /// Its supervisor takes orders. Until then it imports modules, and has started nobody.
    pub ready: bool,
    /// The end was asked for: it is not a failure.
    pub closing: bool,
    /// Its supervisor is gone.
    pub ended: bool,
}

pub(super) fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reading side of one host.
pub(super) struct Line {
    pub plan: HostPlan,
    pub shared: Arc<Mutex<Shared>>,
    pub sink: Sink,
    /// There was another supervisor before.
    pub again: bool,
}

/// How a supervisor ended, in words, and what it said last.
struct End {
    how: String,
    words: String,
}

impl Line {
    /// Runs a command whose standard input and output lead to a supervisor. Returns its process and the thread that reads.
    pub(super) fn run_command(
        self,
        command: &[String],
        orders: mpsc::Receiver<Order>,
    ) -> io::Result<(u32, thread::JoinHandle<()>)> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut child = Command::new(program)
            .args(arguments)
            // For a program that is its own supervisor, and has to know that this time it is to be one.
            .env(ROLE, format!("{SUPERVISOR}:{}", std::process::id()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C in a terminal reaches the driver alone, which then decides.
            .process_group(0)
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("`{program}`: {error}")))?;
        let process = child.id();
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        // A supervisor on this host watches this process itself.
        let beat = match self.plan.configure.driver {
            Some(_) => SELDOM,
            None => Duration::from_millis(self.plan.configure.silent_after_ms / 6),
        };
        spawn("grampus-orders", move || {
            write_orders(&orders, beat, |frame| write_down(&mut stdin, &frame));
        })?;
        let words = Words::listen(stderr)?;
        let reader = spawn("grampus-reports", move || self.read_pipe(child, stdout, words))?;
        Ok((process, reader))
    }

    /// Takes the link of somebody who starts a supervisor. Returns the thread that reads.
    pub(super) fn take_call(
        self,
        caller: Caller,
        orders: mpsc::Receiver<Order>,
    ) -> io::Result<thread::JoinHandle<()>> {
        let (outbox, reports) = caller.split();
        spawn("grampus-orders", move || {
            write_orders(&orders, SELDOM, |frame| outbox.send(frame).is_ok());
        })?;
        spawn("grampus-reports", move || self.read_link(&reports))
    }

    fn read_pipe(self, mut child: Child, mut stdout: ChildStdout, words: Words) {
        let broken = loop {
            match pipe::read_frame(&mut stdout, &Limits::default()) {
                Ok(Some(frame)) => match frame.read::<Report>() {
                    Ok(report) => drop(self.tell(report)),
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
        let how = broken.unwrap_or_else(|| describe(status));
        self.end(&End {
            how,
            words: words.last(),
        });
    }

    fn read_link(self, reports: &mpsc::Receiver<Frame>) {
        let mut end = None;
        // The sender is dropped when the link ends, which has deadlines of its own.
        while let Ok(frame) = reports.recv() {
            match frame.read::<Report>() {
                Ok(report) => end = self.tell(report).or(end),
                Err(error) => {
                    end = Some(End {
                        how: error.to_string(),
                        words: String::new(),
                    });
                    break;
                }
            }
        }
        self.end(&end.unwrap_or_else(|| End {
            how: "cannot be reached any more".to_owned(),
            words: String::new(),
        }));
    }

    /// Passes a report on; returns how the supervisor ended where it says that.
    fn tell(&self, report: Report) -> Option<End> {
        let event = match report {
            Report::Ready { note, .. } => {
                lock(&self.shared).ready = true;
                LaunchEvent::Ready {
                    host: self.plan.name.clone(),
                    note,
                }
            }
            Report::LogNotMade { path, why } => LaunchEvent::Broken {
                why: refused_log(&path, &why),
            },
            Report::Event(event) => {
                self.count(&event);
                event
            }
            Report::Alive => return None,
            Report::Gone { how, words } => return Some(End { how, words }),
        };
        (self.sink)(event);
        None
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
    fn end(&self, end: &End) {
        let mut shared = lock(&self.shared);
        let left = std::mem::take(&mut shared.processes);
        let ordered = std::mem::take(&mut shared.ordered);
        let (closing, ready) = (shared.closing, shared.ready);
        shared.ended = true;
        drop(shared);
        if self.plan.configure.driver.is_some() {
            left.values().for_each(|process| kill_group(*process));
        }
        if !closing {
            let (name, End { how, words }) = (&self.plan.name, end);
            let mut why = format!("the supervisor of {name} {how}; its workers were ended");
            if !words.is_empty() {
                why = format!("{why}\nits last words:\n{words}");
            }
            if self.plan.is_expendable(ready || self.again) {
                let never = ordered.iter().filter(|worker| !left.contains_key(worker));
                never.for_each(|worker| (self.sink)(self.plan.never_started(*worker, &why)));
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

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(work)
}

/// Writes orders, and a sign of life where there are none; ends when the launcher drops its end.
fn write_orders(queue: &mpsc::Receiver<Order>, beat: Duration, mut write: impl FnMut(Frame) -> bool) {
    loop {
        let order = match queue.recv_timeout(beat) {
            Ok(order) => order,
            Err(RecvTimeoutError::Timeout) => Order::Alive,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if !Frame::message(&order).is_ok_and(&mut write) {
            return;
        }
    }
}

fn write_down(stdin: &mut ChildStdin, frame: &Frame) -> bool {
    pipe::write_frame(stdin, frame, &Limits::default()).is_ok() && stdin.flush().is_ok()
}

/// A supervisor's own words: shown only if it breaks.
struct Words {
    tail: Arc<Mutex<Tail>>,
    listener: thread::JoinHandle<()>,
}

impl Words {
    fn listen(mut stderr: ChildStderr) -> io::Result<Self> {
        let tail = Arc::new(Mutex::new(Tail::default()));
        let shared = Arc::clone(&tail);
        let listener = spawn("grampus-stderr", move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = stderr.read(&mut bytes) {
                let mut tail = shared.lock().unwrap_or_else(PoisonError::into_inner);
                tail.push(&bytes[..length]);
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
        tail.text()
    }
}
