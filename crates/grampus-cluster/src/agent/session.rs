//! The agent's thread: one connection, from joining to the end.

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use grampus_core::{
    Address, Failure, Generation, Join, JoinString, Outcome, Place, Rank, Task, TaskId, ToCoordinator,
    ToWorker,
};
use grampus_net::{
    Frame, Limits, Link, NetError, Reservation, Sender, TransportKind, connect, local_address_for,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{MissedTickBehavior, interval};

use super::{AgentError, Assignment, Introduction, Saying, SharedGrace, SharedStage, Stage, Way, Work, lock};
use crate::host;
use crate::patience::{self, Silence};
use crate::payload::Payload;

/// A driver that was stopped (Ctrl-Z) reads nothing for as long as it takes: reports wait, as output does.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The pauses between attempts to join.
const AGAIN: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_millis(900),
];

type Joined = mpsc::Sender<Result<(), AgentError>>;

pub(super) fn run(
    introduction: Introduction,
    way: Way,
    joined: &Joined,
    work: mpsc::Sender<Work>,
    sayings: UnboundedReceiver<Saying>,
    stage: &SharedStage,
    grace: &SharedGrace,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(joined.send(Err(error.into()))),
    };
    runtime.block_on(async {
        let mut session = match Session::open(introduction, way, work, Arc::clone(stage)).await {
            Ok(session) => session,
            Err(error) => return drop(joined.send(Err(error))),
        };
        let _ = joined.send(Ok(()));
        if let Err(why) = session.live(sayings).await {
            let grace = Duration::from_millis(grace.load(Ordering::Relaxed));
            if !grace.is_zero() && session.lets_the_task_save() {
                // Whoever reads this may be gone as well, and the run is saved all the same.
                let _ = writeln!(
                    io::stderr(),
                    "grampus: lost the coordinator: {why}; this worker saves the run and ends"
                );
                // Whoever is done with that finds no more work, and ends by itself: the sleep ends with the process. If the
                // main thread is gone already, nobody needs to be told.
                let _ = session.work.send(Work::Lost { why: why.clone() });
                tokio::time::sleep(grace).await;
            }
            (session.introduction.on_lost)(&why);
            let _ = session.work.send(Work::Lost { why });
        }
        session.sender.close().await;
    });
}

struct Session {
    introduction: Introduction,
    sender: Sender,
    frames: UnboundedReceiver<Result<Option<Frame>, NetError>>,
    /// Bytes that have come, whole frames or not.
    received: Arc<AtomicU64>,
    work: mpsc::Sender<Work>,
    stage: SharedStage,
    /// The coordinator's process cannot be seen from here, so its silence counts.
    remote: bool,
    address: IpAddr,
    generation: Option<Arc<Generation>>,
    /// Ports of the running task, kept from others until the next one.
    current: Vec<Reservation>,
    next: Vec<Reservation>,
}

impl Session {
    async fn open(
        introduction: Introduction,
        way: Way,
        work: mpsc::Sender<Work>,
        stage: SharedStage,
    ) -> Result<Self, AgentError> {
        let name = format!("worker-{}", introduction.worker);
        let (link, address) = reach(way, &name, introduction.silent_after).await?;
        let remote = link.peer.transport == TransportKind::Tcp;
        let Link {
            sender, mut receiver, ..
        } = link;
        let received = receiver.received();
        let (frames_in, frames) = unbounded_channel();
        // A task of its own: a read that was given up half-way could lose a frame.
        tokio::spawn(async move {
            loop {
                let frame = receiver.recv().await;
                let last = !matches!(frame, Ok(Some(_)));
                if frames_in.send(frame).is_err() || last {
                    return;
                }
            }
        });
        let mut session = Self {
            introduction,
            sender,
            frames,
            received,
            work,
            stage,
            remote,
            address,
            generation: None,
            current: Vec::new(),
            next: Vec::new(),
        };
        session.introduce().await?;
        Ok(session)
    }

    async fn introduce(&mut self) -> Result<(), AgentError> {
        self.reserve()?;
        let Introduction {
            worker,
            slot,
            ranks,
            node,
            host,
            card,
            ..
        } = &self.introduction;
        let mut host = if host.is_empty() {
            host::name()
        } else {
            host.clone()
        };
        if self.remote {
            // Machines made from one image often share a name.
            host = format!("{host} ({})", self.address);
        }
        let join = Join {
            worker: *worker,
            slot: *slot,
            ranks: *ranks,
            node: *node,
            pid: std::process::id(),
            host,
            address: self.address.to_string(),
            ports: self.ports(),
            card: card.clone(),
        };
        self.say(&ToCoordinator::Join(join), Payload::default()).await?;
        Ok(())
    }

    fn reserve(&mut self) -> Result<(), NetError> {
        let fresh: Result<Vec<_>, _> = (0..self.introduction.ranks)
            .map(|_| Reservation::take(self.address))
            .collect();
        self.current = std::mem::replace(&mut self.next, fresh?);
        Ok(())
    }

    fn ports(&self) -> Vec<u16> {
        self.next.iter().map(Reservation::port).collect()
    }

    async fn say(&mut self, message: &ToCoordinator, payload: Payload) -> Result<(), NetError> {
        self.sender.send(payload.onto(Frame::message(message)?)).await
    }

    /// Until the job ends (`Ok`) or the coordinator is lost (`Err`).
    async fn live(&mut self, mut sayings: UnboundedReceiver<Saying>) -> Result<(), String> {
        let silent_after = self.introduction.silent_after;
        let mut beat = interval(Silence::beat(silent_after));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silence = Silence::default();
        loop {
            tokio::select! {
                frame = self.frames.recv() => {
                    let frame = frame.unwrap_or(Ok(None)).map_err(|error| error.to_string())?;
                    let frame = frame.ok_or("it closed the connection")?;
                    if self.hear(frame).await.map_err(|error| error.to_string())? {
                        return Ok(());
                    }
                }
                saying = sayings.recv() => {
                    let Some(saying) = saying else { return Ok(()) };
                    self.pass_on(saying).await.map_err(|error| error.to_string())?;
                }
                _ = beat.tick() => {
                    // A coordinator on this host is watched by the supervisor, not by the clock. A large frame comes in parts.
                    if silence.is_over(self.received.load(Ordering::Relaxed)) && self.remote {
                        return Err(format!("it was silent for {:.1} s", silent_after.as_secs_f64()));
                    }
                    self.say(&ToCoordinator::Heartbeat, Payload::default()).await.map_err(|error| error.to_string())?;
                }
            }
        }
    }

    /// Asks the task that runs to save what it has and to end; false where none does, or it was told to end already.
    fn lets_the_task_save(&self) -> bool {
        let mut stage = lock(&self.stage);
        let (Stage::Running(task) | Stage::Yielding(task, _)) = *stage else {
            return false;
        };
        *stage = Stage::Yielding(task, true);
        true
    }

    async fn pass_on(&mut self, saying: Saying) -> Result<(), NetError> {
        match saying {
            Saying::Report { task, body, written } => {
                let payload = Payload {
                    parts: vec![body],
                    memory: None,
                };
                let said = self.say(&ToCoordinator::Report { task }, payload).await;
                drop(written);
                said
            }
            Saying::Leaves => self.say(&ToCoordinator::Leaves, Payload::default()).await,
            Saying::Nothing { .. } => Ok(()),
            Saying::Done {
                task,
                outcome,
                payload,
                wrote,
            } => {
                let ports = self.ports();
                let message = ToCoordinator::Finished {
                    task,
                    outcome,
                    ports,
                    wrote,
                };
                self.say(&message, payload).await
            }
        }
    }

    /// True when the job is over.
    async fn hear(&mut self, frame: Frame) -> Result<bool, NetError> {
        match frame.read::<ToWorker>()? {
            ToWorker::Heartbeat => {}
            ToWorker::Generation(generation) => self.generation = Some(generation),
            ToWorker::Task(task) => self.assign(task, Payload::of(frame)).await?,
            ToWorker::Cancel { task, why } => {
                // Under the lock, so that the task cannot end between the look and the signal (AG-1).
                let mut stage = lock(&self.stage);
                match *stage {
                    Stage::Running(running) | Stage::Yielding(running, _) if running == task => {
                        *stage = Stage::Cancelled;
                        (self.introduction.on_cancel)(&why);
                    }
                    Stage::Assigned(waiting) | Stage::YieldingEarly(waiting, _) if waiting == task => {
                        *stage = Stage::CancelledEarly(task);
                    }
                    _ => {}
                }
            }
            ToWorker::Yield { task, save } => {
                let mut stage = lock(&self.stage);
                match *stage {
                    Stage::Running(running) if running == task => *stage = Stage::Yielding(task, save),
                    Stage::Assigned(waiting) if waiting == task => *stage = Stage::YieldingEarly(task, save),
                    // Whoever was asked to end may be asked to save as well before he has.
                    Stage::Yielding(running, before) if running == task => {
                        *stage = Stage::Yielding(task, before || save);
                    }
                    Stage::YieldingEarly(waiting, before) if waiting == task => {
                        *stage = Stage::YieldingEarly(task, before || save);
                    }
                    _ => {}
                }
            }
            ToWorker::Inspect { task, idle_ms } => self.inspect(task, idle_ms).await?,
            ToWorker::Lost { task, rank } => {
                let stage = lock(&self.stage);
                if matches!(*stage, Stage::Running(now)
                    | Stage::Yielding(now, _)
                    | Stage::Assigned(now)
                    | Stage::YieldingEarly(now, _) if now == task)
                {
                    (self.introduction.on_rank_lost)(task, rank);
                }
            }
            ToWorker::Stop { why } => {
                let _ = self.work.send(Work::Stop { why });
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Answers for the main thread, which may never come back to do so itself.
    async fn inspect(&mut self, task: TaskId, idle_ms: u64) -> Result<(), NetError> {
        let runs = match *lock(&self.stage) {
            Stage::Running(running) | Stage::Yielding(running, _) => running == task,
            _ => false,
        };
        if !runs {
            return Ok(());
        }
        let body = (self.introduction.on_inspect)(Duration::from_millis(idle_ms));
        let payload = Payload {
            parts: vec![body.into()],
            memory: None,
        };
        self.say(&ToCoordinator::Report { task }, payload).await
    }

    async fn assign(&mut self, task: Task, payload: Payload) -> Result<(), NetError> {
        let worker = self.introduction.worker;
        let generation = self.generation.clone().unwrap_or_default();
        let seat = generation.members.iter().find(|seat| seat.worker == worker);
        let first = seat.map_or(0, |seat| seat.rank.0);
        let end = task.world.min(first + self.introduction.ranks).max(first + 1);
        let places: Result<Vec<Place>, _> = (first..end)
            .map(|rank| Place::of(Rank(rank), &task, &generation))
            .collect();
        match places {
            Ok(places) => {
                *lock(&self.stage) = Stage::Assigned(task.id);
                let _ = self.work.send(Work::Task(Box::new(Assignment {
                    cards: cards(&generation, task.world),
                    task,
                    places,
                    payload,
                })));
                // While the task runs: ports for the next one.
                self.reserve()
            }
            Err(error) => {
                let failure = Failure::NotStarted {
                    why: error.to_string(),
                };
                let outcome = Outcome::Failed {
                    local: 0,
                    pid: None,
                    failure,
                };
                let message = ToCoordinator::Finished {
                    task: task.id,
                    outcome,
                    ports: self.ports(),
                    wrote: false,
                };
                self.say(&message, Payload::default()).await
            }
        }
    }
}

/// Address and card of the first `world` ranks.
fn cards(generation: &Generation, world: u32) -> Vec<(String, Vec<u8>)> {
    generation
        .members
        .iter()
        .flat_map(|member| {
            std::iter::repeat_n(
                (member.address.clone(), member.card.clone()),
                member.ranks as usize,
            )
        })
        .take(world as usize)
        .collect()
}

/// A connection, and the address under which other members reach this one.
async fn reach(way: Way, name: &str, silent_after: Duration) -> Result<(Link, IpAddr), AgentError> {
    let join = match way {
        Way::Here(link, address) => return Ok((*link, address)),
        Way::Connect(join) => join,
    };
    let mut limits = patience::limits(silent_after);
    if !matches!(join.address, Address::Tcp { .. }) {
        limits.io = NEVER;
    }
    let link = dial(&join, name, &limits).await?;
    let address = local_address_for(&join.address)?;
    Ok((link, address))
}

/// Connects; where many do at once, a listener may have given a slow one up.
async fn dial(join: &JoinString, name: &str, limits: &Limits) -> Result<Link, NetError> {
    for pause in AGAIN {
        match connect(join, name, limits).await {
            Err(NetError::Closed { .. }) => tokio::time::sleep(pause).await,
            answer => return answer,
        }
    }
    connect(join, name, limits).await
}
