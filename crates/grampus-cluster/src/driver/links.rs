//! Connections of members: each has a task that reads and one that writes, so that a slow one holds up
//! nobody else.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use grampus_core::{Join, TaskId, ToCoordinator, ToWorker, WorkerId};
use grampus_net::{Frame, Link, Listener, NetError, Receiver, TransportKind};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, timeout};

use crate::launcher::Caller;
use crate::patience::Silence;
use crate::payload::Payload;
use crate::supervisor::Order;

/// How long a connected process may take to introduce itself.
const INTRODUCE_WITHIN: Duration = Duration::from_secs(30);
/// How long the last messages may take to leave.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// What a connection brings.
pub(super) enum LinkEvent {
    Joined {
        link: u64,
        join: Join,
        outbox: Outbox,
    },
    Said {
        link: u64,
        worker: WorkerId,
        message: ToCoordinator,
        payload: Payload,
    },
    Lost {
        link: u64,
        worker: WorkerId,
        why: String,
    },
    /// Somebody starts a supervisor for this job.
    Called(Caller),
    /// Somebody connected who is no member; worth a line for people.
    Stranger {
        why: String,
    },
}

/// The writing side of one connection.
pub(super) struct Outbox {
    frames: UnboundedSender<Frame>,
    writer: JoinHandle<()>,
    remote: bool,
    /// Bytes that have come, and how many there were at the last look.
    received: (Arc<AtomicU64>, u64),
}

/// The connections of all members.
pub(super) struct Links {
    events: UnboundedSender<LinkEvent>,
    /// Whoever calls and is silent for so long is lost.
    silent_after: Duration,
    open: HashMap<WorkerId, (u64, Outbox)>,
    closing: Vec<JoinHandle<()>>,
    next: u64,
}

impl Links {
    pub(super) fn new(silent_after: Duration) -> (Self, UnboundedReceiver<LinkEvent>) {
        let (events, receiver) = unbounded_channel();
        (
            Self {
                events,
                silent_after,
                open: HashMap::new(),
                closing: Vec::new(),
                next: 0,
            },
            receiver,
        )
    }

    /// Takes connections as they come. Each handshake has a task of its own.
    pub(super) fn listen(&self, listener: Listener) -> JoinHandle<()> {
        let (events, silent_after) = (self.events.clone(), self.silent_after);
        tokio::spawn(async move {
            // Even numbers here, odd ones for links that are attached.
            let mut link = 0;
            loop {
                let Ok(incoming) = listener.accept().await else {
                    // Out of descriptors: those who connected are waiting, some will leave.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                link += 2;
                let events = events.clone();
                tokio::spawn(async move {
                    match incoming.handshake().await {
                        Ok(connection) => serve(link, connection, events, silent_after).await,
                        Err(error) => {
                            let why = format!("refused a connection: {error}");
                            let _ = events.send(LinkEvent::Stranger { why });
                        }
                    }
                });
            }
        })
    }

    /// Takes a connection that was made elsewhere.
    pub(super) fn attach(&mut self, connection: Link) {
        self.next += 2;
        let (link, events) = (self.next + 1, self.events.clone());
        tokio::spawn(serve(link, connection, events, self.silent_after));
    }

    pub(super) fn insert(&mut self, worker: WorkerId, link: u64, outbox: Outbox) {
        if let Some((_, old)) = self.open.insert(worker, (link, outbox)) {
            self.closing.push(old.close());
        }
    }

    /// True where this is still the member's connection.
    pub(super) fn is_current(&self, worker: WorkerId, link: u64) -> bool {
        self.open
            .get(&worker)
            .is_some_and(|(current, _)| *current == link)
    }

    /// True where the member has a connection, over which more may come.
    pub(super) fn is_open(&self, worker: WorkerId) -> bool {
        self.open.contains_key(&worker)
    }

    pub(super) fn send(
        &self,
        worker: WorkerId,
        message: &ToWorker,
        payload: Payload,
    ) -> Result<(), NetError> {
        if let Some((_, outbox)) = self.open.get(&worker) {
            outbox.send(message, payload)?;
        }
        Ok(())
    }

    /// Asks all of them where a task stands; those that do not run it say nothing. The coordinator decides nothing by it.
    pub(super) fn inspect(&self, task: TaskId, idle_ms: u64) {
        for (_, outbox) in self.open.values() {
            // Who cannot be told does not answer, and the report says so.
            let _ = outbox.send(&ToWorker::Inspect { task, idle_ms }, Payload::default());
        }
    }

    /// Signs of life for those who cannot see this process.
    pub(super) fn beat(&self) {
        for (_, outbox) in self.open.values().filter(|(_, outbox)| outbox.remote) {
            let _ = outbox.send(&ToWorker::Heartbeat, Payload::default());
        }
    }

    /// Members that sent something since the last call, be it a part of a large frame.
    pub(super) fn heard(&mut self) -> Vec<WorkerId> {
        let grown = self.open.iter_mut().filter_map(|(worker, (_, outbox))| {
            let (count, before) = &mut outbox.received;
            let now = count.load(Ordering::Relaxed);
            (std::mem::replace(before, now) != now).then_some(*worker)
        });
        grown.collect()
    }

    pub(super) fn close(&mut self, worker: WorkerId) {
        if let Some((_, outbox)) = self.open.remove(&worker) {
            self.closing.push(outbox.close());
        }
    }

    /// Refuses a connection that never became a member's.
    pub(super) fn refuse(&mut self, outbox: Outbox, why: String) {
        let _ = outbox.send(&ToWorker::Stop { why }, Payload::default());
        self.closing.push(outbox.close());
    }

    /// Closes everything once the last messages have left.
    pub(super) async fn flush(mut self) {
        let workers: Vec<WorkerId> = self.open.keys().copied().collect();
        workers.into_iter().for_each(|worker| self.close(worker));
        for writer in self.closing {
            let _ = timeout(FLUSH_WITHIN, writer).await;
        }
    }
}

impl Outbox {
    fn send(&self, message: &ToWorker, payload: Payload) -> Result<(), NetError> {
        // A writer that is gone has met an error, which its reader reports.
        let _ = self.frames.send(payload.onto(Frame::message(message)?));
        Ok(())
    }

    fn close(self) -> JoinHandle<()> {
        self.writer
    }
}

async fn serve(link: u64, connection: Link, events: UnboundedSender<LinkEvent>, silent_after: Duration) {
    let remote = connection.peer.transport == TransportKind::Tcp;
    let Link {
        mut sender,
        mut receiver,
        peer,
    } = connection;
    let (frames, mut queue) = unbounded_channel::<Frame>();
    let received = (receiver.received(), 0);
    let (tell, torn) = oneshot::channel();
    let writer = tokio::spawn(async move {
        while let Some(frame) = queue.recv().await {
            if let Err(error) = sender.send(frame).await {
                let _ = tell.send(error.to_string());
                return;
            }
        }
        sender.close().await;
    });
    let first = timeout(INTRODUCE_WITHIN, receiver.recv()).await;
    let Ok(Ok(Some(frame))) = first else {
        let why = format!("{} connected and did not introduce itself", peer.name);
        return drop(events.send(LinkEvent::Stranger { why }));
    };
    let join = match frame.read() {
        Ok(ToCoordinator::Join(join)) => join,
        Ok(ToCoordinator::Calls { slot, host }) => {
            let ((reports, queue), orders) = (mpsc::channel(), frames.downgrade());
            let caller = Caller::new(slot, host, frames, queue);
            // Where the job is over nobody takes it, and with it the reports end; however they do: whoever reads them finds
            // no more, and acts on that.
            let _ = events.send(LinkEvent::Called(caller));
            let _ = carry(&mut receiver, &reports, &orders, silent_after).await;
            return;
        }
        _ => {
            let why = format!("{} sent something else than its introduction", peer.name);
            return drop(events.send(LinkEvent::Stranger { why }));
        }
    };
    let worker = join.worker;
    let outbox = Outbox {
        frames,
        writer,
        remote,
        received,
    };
    if events.send(LinkEvent::Joined { link, join, outbox }).is_err() {
        return;
    }
    let why = tokio::select! {
        why = listen_to(&mut receiver, link, worker, &events) => why,
        // What cannot be written ends the connection too; a writer that was closed in order says nothing.
        Ok(why) = torn => why,
    };
    let _ = events.send(LinkEvent::Lost { link, worker, why });
}

/// Passes on the reports of a supervisor until its link ends, or it is silent: whoever starts it gives signs of life also
/// while the supervisor itself is busy, and gets them.
async fn carry(
    receiver: &mut Receiver,
    reports: &mpsc::Sender<Frame>,
    orders: &WeakUnboundedSender<Frame>,
    silent_after: Duration,
) -> Result<(), NetError> {
    let received = receiver.received();
    let mut beats = tokio::time::interval(Silence::beat(silent_after));
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut silence = Silence::default();
    loop {
        tokio::select! {
            frame = receiver.recv() => {
                if frame?.is_none_or(|frame| reports.send(frame).is_err()) {
                    return Ok(());
                }
            }
            _ = beats.tick() => {
                if silence.is_over(received.load(Ordering::Relaxed)) {
                    return Ok(());
                }
                if let Some(orders) = orders.upgrade() {
                    // A writer that is gone has met an error, which ends the link.
                    let _ = orders.send(Frame::message(&Order::Alive)?);
                }
            }
        }
    }
}

/// Passes on what a member says until its connection ends; returns how.
async fn listen_to(
    receiver: &mut Receiver,
    link: u64,
    worker: WorkerId,
    events: &UnboundedSender<LinkEvent>,
) -> String {
    loop {
        let frame = match receiver.recv().await {
            Ok(Some(frame)) => frame,
            Ok(None) => return "it closed the connection".to_owned(),
            Err(error) => return error.to_string(),
        };
        let message = match frame.read() {
            Ok(message) => message,
            Err(error) => return error.to_string(),
        };
        let payload = Payload::of(frame);
        if events
            .send(LinkEvent::Said {
                link,
                worker,
                message,
                payload,
            })
            .is_err()
        {
            return "the job is over".to_owned();
        }
    }
}
