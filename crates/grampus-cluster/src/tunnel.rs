//! What a task of an engine such as Spark or Ray does for a job: it calls the driver, starts a supervisor as a child once the
//! driver has an order for one, and carries what they say to each other until one of them ends.
//!
//! Invariants:
//! - **TU-1** When the tunnel ends, its supervisor has ended, or rests; when its process is killed, the supervisor ends by itself.
//! - **TU-2** A tunnel whose driver is gone, or silent for too long, ends.
//! - **TU-3** A tunnel that nobody needs waits, and starts nothing.

use std::io::{self, PipeReader, PipeWriter, Read, pipe};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use grampus_core::{Clock, JoinString, SystemClock, ToCoordinator};
use grampus_net::handover::Handover;
use grampus_net::pipe::{read_frame, write_frame};
use grampus_net::{Frame, Limits, Link, NetError, Receiver, Sender, connect};
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::MissedTickBehavior;

use crate::ended::{Tail, describe};
use crate::host;
use crate::patience::{self, Silence};
use crate::rest::{Resting, place_for};
use crate::supervisor::{Order, Report, kill_group, terminate_group};

/// How long a supervisor may take to end once its orders have: workers may have asked for a minute to save what they have.
const END_WITHIN: Duration = Duration::from_secs(70);
/// The same, where it was told to end, or to hurry.
const HURRY_WITHIN: Duration = Duration::from_secs(5);

/// Why a tunnel could not be made, or broke.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// No link to the driver.
    #[error("{host} cannot reach the driver: {source}")]
    Unreachable {
        /// This host.
        host: String,
        /// What went wrong.
        source: NetError,
    },
    /// A thread, a runtime or a process.
    #[error("cannot start a supervisor: {0}")]
    System(#[from] io::Error),
    /// The driver is gone.
    #[error("lost the driver: {0}")]
    Lost(String),
}

/// Who is meant, and what to start.
pub struct Call {
    /// The driver.
    pub join: JoinString,
    /// The place for which the task was started.
    pub slot: u32,
    /// The command of a supervisor.
    pub command: Vec<String>,
    /// Variables that it gets.
    pub environment: Vec<(String, String)>,
    /// How long the driver may be silent.
    pub silent_after: Duration,
}

/// Starts a supervisor in advance, which imports `modules` beside what this process does, and then rests until a call with the
/// same `command` and `environment` needs it. Does nothing where one rests already.
pub fn prepare(
    command: &[String],
    environment: &[(String, String)],
    modules: &[String],
) -> Result<(), TunnelError> {
    if Resting::is_there() {
        return Ok(());
    }
    let mut program = program(command, environment)?;
    let (waker, place) = place_for(&mut program)?;
    let child = program
        .args(modules)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    drop(place);
    let started = started(command, environment);
    Resting {
        child,
        waker,
        started,
    }
    .keep();
    Ok(())
}

/// Calls the driver and serves it until it has no more use for this task.
pub fn serve(call: &Call) -> Result<(), TunnelError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let host = host::name();
        let name = format!("supervisor-{}", call.slot);
        let unreachable = |source| TunnelError::Unreachable {
            host: host.clone(),
            source,
        };
        // A driver that cannot be reached is to be told of while the engine may still do something else.
        let limits = Limits {
            handshake: Limits::default().handshake,
            ..patience::limits(call.silent_after)
        };
        let link = connect(&call.join, &name, &limits).await.map_err(unreachable)?;
        let Link {
            mut sender, receiver, ..
        } = link;
        let slot = call.slot;
        let introduction = ToCoordinator::Calls {
            slot,
            host: host.clone(),
        };
        let frame = Frame::message(&introduction).map_err(unreachable)?;
        sender.send(frame).await.map_err(unreachable)?;
        Tunnel::new(call, sender).run(receiver).await
    })
}

struct Tunnel<'a> {
    call: &'a Call,
    sender: Sender,
    supervisor: Option<Supervisor>,
    reports: UnboundedReceiver<Said>,
    /// For the threads that read.
    said: UnboundedSender<Said>,
}

struct Supervisor {
    child: Child,
    /// For whom it may rest when its job is over.
    waker: Handover,
    /// Taken away at the end, which the supervisor notices.
    stdin: Option<PipeWriter>,
    /// It was told to end.
    told: bool,
}

/// What a supervisor says, and that it says no more.
enum Said {
    Frame(Frame),
    Ended { broken: Option<String>, words: String },
}

impl<'a> Tunnel<'a> {
    fn new(call: &'a Call, sender: Sender) -> Self {
        let (said, reports) = unbounded_channel();
        Self {
            call,
            sender,
            supervisor: None,
            reports,
            said,
        }
    }

    async fn run(mut self, receiver: Receiver) -> Result<(), TunnelError> {
        let ended = self.carry(receiver).await;
        self.end().await;
        ended
    }

    /// Until the driver or the supervisor has ended.
    async fn carry(&mut self, mut receiver: Receiver) -> Result<(), TunnelError> {
        let silent_after = self.call.silent_after;
        let received = receiver.received();
        let mut beats = tokio::time::interval(Silence::beat(silent_after));
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silence = Silence::default();
        loop {
            tokio::select! {
                frame = receiver.recv() => {
                    match frame.map_err(lost)? {
                        Some(frame) => self.order(&frame)?,
                        None => return Ok(()),
                    }
                }
                Some(said) = self.reports.recv() => {
                    if self.report(said).await? {
                        return Ok(());
                    }
                }
                _ = beats.tick() => {
                    if silence.is_over(received.load(Ordering::Relaxed)) {
                        let why = format!("it was silent for {} s", silent_after.as_secs_f32());
                        return Err(TunnelError::Lost(why));
                    }
                    self.tell(&Report::Alive).await?;
                }
            }
        }
    }

    /// Passes an order on; the first one that is more than a sign of life starts the supervisor.
    fn order(&mut self, frame: &Frame) -> Result<(), TunnelError> {
        let order = frame.read::<Order>().map_err(lost)?;
        if self.supervisor.is_none() && !matches!(order, Order::Alive | Order::End) {
            self.supervisor = Some(start(self.call, self.said.clone())?);
        }
        let Some(supervisor) = &mut self.supervisor else {
            return Ok(());
        };
        supervisor.told |= matches!(order, Order::End);
        if let Some(stdin) = &mut supervisor.stdin
            && write_frame(stdin, frame, &Limits::default()).is_err()
        {
            // It has ended, which its output says as well.
            supervisor.stdin = None;
        }
        Ok(())
    }

    /// Passes on what the supervisor says; true after its last words.
    async fn report(&mut self, said: Said) -> Result<bool, TunnelError> {
        match said {
            Said::Frame(frame) => self.sender.send(frame).await.map_err(lost).map(|()| false),
            Said::Ended { broken, words } => {
                let how = broken.unwrap_or_else(|| self.wait(HURRY_WITHIN));
                self.tell(&Report::Gone { how, words }).await?;
                Ok(true)
            }
        }
    }

    async fn tell(&mut self, report: &Report) -> Result<(), TunnelError> {
        let frame = Frame::message(report).map_err(lost)?;
        self.sender.send(frame).await.map_err(lost)
    }

    /// No more orders come: lets the supervisor end, and passes on its last words where somebody still hears them.
    async fn end(&mut self) {
        let Some(supervisor) = &mut self.supervisor else {
            return self.sender.close().await;
        };
        supervisor.stdin = None;
        let patience = if supervisor.told { HURRY_WITHIN } else { END_WITHIN };
        let last = async {
            while let Some(said) = self.reports.recv().await {
                match said {
                    // The driver may be gone.
                    Said::Frame(frame) => drop(self.sender.send(frame).await),
                    Said::Ended { .. } => return,
                }
            }
        };
        // Whoever does not end in time is ended when this is dropped.
        let _ = tokio::time::timeout(patience, last).await;
        self.wait(HURRY_WITHIN);
        self.sender.close().await;
    }

    /// Waits for the end of the supervisor's process, asks for it, and enforces it; lets it rest if it wants to. Returns how it
    /// ended.
    fn wait(&mut self, within: Duration) -> String {
        if let Some(Supervisor { child, waker, .. }) =
            self.supervisor.take_if(|found| found.waker.was_announced())
        {
            let started = started(&self.call.command, &self.call.environment);
            Resting {
                child,
                waker,
                started,
            }
            .keep();
        }
        let Some(Supervisor { child, stdin, .. }) = &mut self.supervisor else {
            return "runs no more".to_owned();
        };
        drop(stdin.take());
        let clock = SystemClock::start();
        for (patience, force) in [
            (within, terminate_group as fn(u32)),
            (HURRY_WITHIN, kill_group),
            (HURRY_WITHIN, |_| ()),
        ] {
            let end = clock.now() + patience;
            while clock.now() < end {
                match child.try_wait() {
                    Ok(None) => thread::park_timeout(Duration::from_millis(1)),
                    ended => {
                        let how = ended.transpose().map(describe);
                        self.supervisor = None;
                        return how.unwrap_or_default();
                    }
                }
            }
            force(child.id());
        }
        "does not end".to_owned()
    }
}

fn lost(error: NetError) -> TunnelError {
    TunnelError::Lost(error.to_string())
}

impl Drop for Tunnel<'_> {
    fn drop(&mut self) {
        self.wait(Duration::ZERO);
    }
}

/// What makes a supervisor fit for a call: how it was started.
fn started(command: &[String], environment: &[(String, String)]) -> Vec<String> {
    let variables = environment.iter();
    let variables = variables.map(|(name, value)| format!("{name}={value}"));
    command.iter().cloned().chain(variables).collect()
}

/// Wakes the supervisor that rests here, or starts one.
fn start(call: &Call, said: UnboundedSender<Said>) -> io::Result<Supervisor> {
    let ((input, stdin), (stdout, output), (stderr, error)) = (pipe()?, pipe()?, pipe()?);
    let (child, waker) = match Resting::wake(
        &started(&call.command, &call.environment),
        [input.as_fd(), output.as_fd(), error.as_fd()],
    ) {
        Some(woken) => woken,
        None => spawn(call, input, output, error)?,
    };
    thread::Builder::new()
        .name("grampus-reports".to_owned())
        .spawn(move || read(stdout, stderr, &said))?;
    Ok(Supervisor {
        child,
        waker,
        stdin: Some(stdin),
        told: false,
    })
}

fn spawn(
    call: &Call,
    input: PipeReader,
    output: PipeWriter,
    error: PipeWriter,
) -> io::Result<(Child, Handover)> {
    let mut command = program(&call.command, &call.environment)?;
    command.stdin(input).stdout(output).stderr(error);
    let (waker, place) = place_for(&mut command)?;
    let child = command.spawn().map_err(|error| {
        let name = call.command.first().map_or("", String::as_str);
        io::Error::new(error.kind(), format!("`{name}`: {error}"))
    })?;
    drop(place);
    Ok((child, waker))
}

/// The program of a supervisor.
fn program(command: &[String], environment: &[(String, String)]) -> io::Result<Command> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(environment.iter().cloned())
        .process_group(0);
    // SAFETY: the closure makes one system call, and allocates nothing.
    unsafe {
        // Until it listens to its orders; from then on their end is its end.
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
    }
    Ok(command)
}

/// Reads what a supervisor says until it says no more.
fn read(mut stdout: PipeReader, stderr: PipeReader, said: &UnboundedSender<Said>) {
    let words = thread::Builder::new()
        .name("grampus-stderr".to_owned())
        .spawn(move || last_words(stderr));
    let broken = loop {
        match read_frame(&mut stdout, &Limits::default()) {
            Ok(Some(frame)) => {
                if said.send(Said::Frame(frame)).is_err() {
                    return;
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    let words = words.ok().and_then(|words| words.join().ok()).unwrap_or_default();
    // If nobody listens any more, the tunnel is over.
    let _ = said.send(Said::Ended { broken, words });
}

fn last_words(mut stderr: PipeReader) -> String {
    let (mut tail, mut bytes) = (Tail::default(), [0; 4096]);
    while let Ok(length @ 1..) = stderr.read(&mut bytes) {
        tail.push(&bytes[..length]);
    }
    tail.text()
}
