//! A group of processes that call collectives together.

mod acceptor;
mod buffer;
mod calls;
mod card;
mod dialling;
mod engine;
mod gathering;
mod handle;
mod lobby;
mod losses;
mod mail;
mod mirror;
mod notice;
mod pace;
mod roster;
mod runner;
#[cfg(test)]
mod tests;
mod ticket;

use std::any::Any;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

pub use buffer::{SharedBuffer, SharedBytes};
pub use card::Card;
pub use handle::{Handle, RawHandle};
pub use lobby::{GroupId, Hope, Lobby};
pub use losses::Losses;
pub use mail::{Letter, Way};
pub use notice::Notice;

use crate::across::{ControlWire, Heartbeat, Post};
use crate::exchange::Shape;
use crate::numerics::{DType, Op};
use crate::request::{Request, Terms, Work};
use crate::shared::Segment;
use crate::{CollectiveError, Element, Settings};
use engine::Engine;
use mail::Mail;
use pace::NAP;
use roster::Roster;
use runner::{Runner, Running, Waits, closed};

/// A sign of life is given this many times within the time that a member may be silent, or late.
const BEATS: u32 = 10;

/// A group of processes that call collectives together: all the same calls in the same order.
///
/// Calls block, or are started and give a handle. Calls of one group run one after the other in the order in which
/// they were made. After an error the group has ended: every further call says so, and the members can form a new
/// one with [`Lobby::form`] in a higher generation, without new processes.
pub struct Group {
    inner: Arc<Inner>,
    /// `None` once the group was closed.
    threads: Mutex<Option<Threads>>,
}

/// The threads of a member, which end when it leaves the group.
struct Threads {
    engine: JoinHandle<()>,
    /// Where the group is on several hosts.
    heartbeat: Option<Heartbeat>,
}

/// The connections of a member with ranks of other hosts.
pub(crate) struct Connections {
    pub post: Post,
    pub control: Vec<ControlWire>,
}

pub(crate) struct Inner {
    id: GroupId,
    engine: Engine,
    segment: Arc<Segment>,
    roster: Arc<Roster>,
    mail: Mail,
    shapes: Mutex<Vec<(DType, Op, Arc<Shape>)>>,
}

impl Group {
    fn start(
        id: GroupId,
        segment: Arc<Segment>,
        roster: Arc<Roster>,
        mail: Mail,
        connections: Connections,
        settings: Settings,
    ) -> Result<Self, CollectiveError> {
        let Connections { post, control } = connections;
        let beat = (settings.silence.min(settings.deadline) / BEATS).max(NAP);
        let heartbeat = match control.is_empty() {
            true => None,
            false => Some(Heartbeat::start(control, Arc::clone(&segment), beat)?),
        };
        let bell = heartbeat.as_ref().map(Heartbeat::bell);
        let runner = Runner::new(Arc::clone(&segment), Arc::clone(&roster), post, bell, settings);
        let inner = Arc::new(Inner {
            id,
            engine: Engine::new(runner),
            segment,
            roster,
            mail,
            shapes: Mutex::default(),
        });
        let served = Arc::clone(&inner);
        let engine = std::thread::Builder::new()
            .name("grampus-group".into())
            .spawn(move || served.engine.serve(&served.segment, beat))
            .map_err(|error| CollectiveError::System(format!("cannot start a thread: {error}")))?;
        Ok(Self {
            inner,
            threads: Mutex::new(Some(Threads { engine, heartbeat })),
        })
    }

    /// This member's rank.
    pub fn rank(&self) -> usize {
        self.inner.roster.me
    }

    /// Number of members.
    pub fn size(&self) -> usize {
        self.inner.roster.size()
    }

    /// Its name and generation.
    pub fn id(&self) -> &GroupId {
        &self.inner.id
    }

    /// For other threads that hear from elsewhere that a member is lost.
    pub fn notice(&self) -> Notice {
        Notice::to(&self.inner)
    }

    /// The ranks that share this member's host.
    pub fn locals(&self) -> &[usize] {
        self.inner.roster.topology.locals()
    }

    /// A buffer in shared memory that is reduced without a copy.
    pub fn shared<T: Element>(&self, count: usize) -> Result<SharedBuffer<T>, CollectiveError> {
        // A product that overflows is more than any host has, and refused as such.
        let bytes = count.saturating_mul(size_of::<T>());
        Ok(SharedBuffer::new(self.shared_bytes(bytes)?))
    }

    /// Bytes in shared memory, for front ends that hold buffers of other languages.
    pub fn shared_bytes(&self, len: usize) -> Result<SharedBytes, CollectiveError> {
        SharedBytes::take(Arc::clone(&self.inner.segment), len)
    }

    /// Makes a call and waits for its end. Where `gives_up` says so, the call is given up and the group ends.
    ///
    /// # Safety
    /// All memory of the request is valid, and not used otherwise, until this returns.
    pub unsafe fn call(&self, request: Request, gives_up: &dyn Fn() -> bool) -> Result<(), CollectiveError> {
        let running = self.plan(request)?;
        self.inner.engine.call(running, gives_up)
    }

    /// Starts a call. `keep` is dropped when it is through, in any thread.
    ///
    /// # Safety
    /// All memory of the request is valid until `keep` is dropped, and not used otherwise.
    pub unsafe fn start_call(
        &self,
        request: Request,
        keep: Box<dyn Any + Send>,
    ) -> Result<RawHandle, CollectiveError> {
        let running = self.plan(request)?;
        let ticket = self.inner.engine.start(running, keep);
        Ok(self.raw_handle(ticket))
    }

    /// Sends or receives memory, and waits until it has arrived; see [`Group::send`] and [`Group::recv`].
    ///
    /// # Safety
    /// The memory is valid, and not used otherwise, until this returns.
    pub unsafe fn mail(&self, letter: Letter, gives_up: &dyn Fn() -> bool) -> Result<(), CollectiveError> {
        self.inner.mail.call(letter, gives_up)
    }

    /// Like [`Group::mail`], but returns at once. `keep` is dropped when the memory has arrived.
    ///
    /// # Safety
    /// The memory is valid, and not used otherwise, until `keep` is dropped.
    pub unsafe fn start_mail(
        &self,
        letter: Letter,
        keep: Box<dyn Any + Send>,
    ) -> Result<RawHandle, CollectiveError> {
        self.inner.mail.start(letter, keep)
    }

    /// Leaves the group, however many references to it there are. The other members are told. Calls on their way are
    /// given up, and further ones end with [`CollectiveError::Ended`]. Closing a second time does nothing.
    pub fn close(&self) {
        // In a fork the parent is still in the group.
        if self.inner.segment.is_inherited() {
            return;
        }
        let block = self.inner.segment.block(self.inner.segment.me());
        block.left.store(1, Ordering::Release);
        self.inner.mail.close();
        self.inner.engine.close();
        // The lock is held to the end, so that a second caller returns only when the group has been left.
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Threads { engine, heartbeat }) = threads.take() {
            // It cannot panic with anything that is not printed already.
            let _ = engine.join();
            // Last of all: peers hear why the group ended, or that this member left it.
            drop(heartbeat);
        }
    }

    fn plan(&self, request: Request) -> Result<Running<Work>, CollectiveError> {
        let inner = &*self.inner;
        if inner.engine.is_closed() {
            return Err(closed());
        }
        if inner.segment.is_inherited() {
            return Err(CollectiveError::Argument(
                "this process was forked from a member of the group: form a group of its own".into(),
            ));
        }
        let call = request.call(inner.roster.me);
        let place = request
            .in_place()
            .and_then(|(buffer, len)| inner.segment.place_of(buffer, len))
            .map_or(0, |offset| offset as u64 + 1);
        let terms = Terms {
            me: inner.roster.me,
            ranks: inner.roster.size(),
            shape: &|dtype, op| inner.shape(dtype, op),
        };
        Ok(Running {
            exchange: request.plan(&terms)?,
            call,
            place,
            waits: Waits::Nothing,
        })
    }
}

impl Inner {
    /// One lane of every rank, made when first asked for.
    fn shape(&self, dtype: DType, op: Op) -> Result<Arc<Shape>, CollectiveError> {
        let mut shapes = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, _, shape)) = shapes.iter().find(|known| (known.0, known.1) == (dtype, op)) {
            return Ok(Arc::clone(shape));
        }
        let shape = Arc::new(Shape::plain(dtype, op, self.roster.size())?);
        shapes.push((dtype, op, Arc::clone(&shape)));
        Ok(shape)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.inner.segment.is_inherited() {
            // The parent is still in the group, and its threads are not here.
            let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(threads.take());
            return;
        }
        self.close();
    }
}
