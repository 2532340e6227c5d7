//! From one rank to another.
//!
//! Each sender, receiver and tag have a group of two of their own, in which a buffer that is sent is broadcast. It is
//! formed when first used, by both sides; until then what was started waits in line. So a slow receiver holds up
//! nothing else, and all that groups promise holds for letters too.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::handle::RawHandle;
use super::roster::Roster;
use super::runner::closed;
use super::ticket::Ticket;
use super::{Card, Group, GroupId, Lobby};
use crate::numerics::DType;
use crate::request::{RawPart, Request};
use crate::shared::Segment;
use crate::{CollectiveError, Loss, Settings};

/// From, to, tag.
pub(crate) type Route = (usize, usize, u32);

/// Memory that travels from one rank to another.
#[derive(Clone, Copy, Debug)]
pub struct Letter {
    /// Type of the elements.
    pub dtype: DType,
    /// In or out.
    pub buffer: RawPart,
    /// Where it goes, or where it comes from.
    pub way: Way,
    /// Letters of one tag arrive in the order in which they were sent.
    pub tag: u32,
}

/// Where a letter goes, or where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// This member sends it to a rank.
    To(usize),
    /// This member receives it from a rank.
    From(usize),
}

// SAFETY: the caller promises that the memory stays valid, for all threads that work on it.
unsafe impl Send for Letter {}
// SAFETY: as above.
unsafe impl Sync for Letter {}

impl Letter {
    fn route(self, me: usize) -> Route {
        match self.way {
            Way::To(rank) => (me, rank, self.tag),
            Way::From(rank) => (rank, me, self.tag),
        }
    }

    /// The sender is rank 0 of the group of two.
    fn request(self) -> Request {
        Request::Broadcast {
            dtype: self.dtype,
            buffer: self.buffer,
            root: 0,
        }
    }
}

/// What waits for the group of two to form.
pub(crate) struct Waiting {
    letter: Letter,
    keep: Box<dyn Any + Send>,
    ticket: Arc<Ticket>,
}

pub(crate) enum Channel {
    Forming(VecDeque<Waiting>),
    Open(Arc<Group>),
    Failed(CollectiveError),
}

/// The letters of a group.
pub(crate) struct Mail(Arc<Office>);

pub(crate) struct Office {
    pub lobby: Lobby,
    pub id: GroupId,
    pub cards: Vec<Card>,
    pub roster: Arc<Roster>,
    pub segment: Arc<Segment>,
    pub settings: Settings,
    pub closed: AtomicBool,
    pub channels: Mutex<HashMap<Route, Channel>>,
}

impl Mail {
    pub fn new(office: Office) -> Self {
        Self(Arc::new(office))
    }

    /// Leaves all groups of two; what waits for one to form is given up.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
        let mut channels = self.0.channels();
        let open: Vec<_> = channels
            .extract_if(|_, channel| !matches!(channel, Channel::Forming(_)))
            .collect();
        // Leaving a group takes its time, and a thread that forms one needs the channels to say how that ended.
        drop(channels);
        for (_, channel) in open {
            if let Channel::Open(group) = channel {
                // A call of another thread may hold it, too.
                group.close();
            }
        }
    }

    /// Sends or receives, and waits for the end.
    pub fn call(&self, letter: Letter, gives_up: &dyn Fn() -> bool) -> Result<(), CollectiveError> {
        let route = self.0.check(letter)?;
        let open = match self.0.channels().get(&route) {
            Some(Channel::Open(group)) => Some(Arc::clone(group)),
            _ => None,
        };
        match open {
            // SAFETY: by contract of the caller.
            Some(group) => unsafe { group.call(letter.request(), gives_up) },
            None => self.start(letter, Box::new(()))?.wait(gives_up),
        }
    }

    /// Starts sending or receiving.
    pub fn start(&self, letter: Letter, keep: Box<dyn Any + Send>) -> Result<RawHandle, CollectiveError> {
        let route = self.0.check(letter)?;
        let mut channels = self.0.channels();
        // Under the lock: channels that are opened before are closed with the rest.
        if self.0.closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        let ticket = Arc::new(Ticket::default());
        let waiting = Waiting {
            letter,
            keep,
            ticket: Arc::clone(&ticket),
        };
        match channels.get_mut(&route) {
            // SAFETY: by contract of the caller.
            Some(Channel::Open(group)) => return unsafe { group.start_call(letter.request(), waiting.keep) },
            Some(Channel::Failed(error)) => return Err(error.clone()),
            Some(Channel::Forming(line)) => line.push_back(waiting),
            None => {
                let office = Arc::clone(&self.0);
                std::thread::Builder::new()
                    .name("grampus-mail".into())
                    .spawn(move || office.open(route))
                    .map_err(|error| CollectiveError::System(format!("cannot start a thread: {error}")))?;
                channels.insert(route, Channel::Forming(VecDeque::from([waiting])));
            }
        }
        Ok(RawHandle { group: None, ticket })
    }
}

impl Office {
    fn channels(&self) -> MutexGuard<'_, HashMap<Route, Channel>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The letter's route, where there is one.
    fn check(&self, letter: Letter) -> Result<Route, CollectiveError> {
        let route @ (from, to, _) = letter.route(self.roster.me);
        let size = self.cards.len();
        if from == to || from.max(to) >= size {
            return Err(CollectiveError::Argument(format!(
                "rank {from} cannot send to rank {to} in a group of {size}: name another rank"
            )));
        }
        Ok(route)
    }

    /// Whether a group of two may still form: someone wants it, and the other side can come.
    fn hope(&self, route: Route) -> Result<(), CollectiveError> {
        let during = format!("a letter from rank {} to rank {}", route.0, route.1);
        if self.closed.load(Ordering::Acquire) {
            let why = format!("it was closed during {during}");
            return Err(CollectiveError::Ended { why });
        }
        let unwanted = match self.channels().get(&route) {
            Some(Channel::Forming(line)) => line.iter().all(|waiting| waiting.ticket.given_up()),
            _ => true,
        };
        if unwanted {
            let rank = self.roster.labels[self.roster.me];
            return Err(CollectiveError::GaveUp { rank, during });
        }
        let other = if route.0 == self.roster.me {
            route.1
        } else {
            route.0
        };
        let topology = &self.roster.topology;
        if !topology.locals().contains(&other) {
            return Ok(());
        }
        let seat = topology.seat(other);
        let left = self.segment.block(seat).left.load(Ordering::Acquire) != 0;
        if !left && self.segment.lives(seat) {
            return Ok(());
        }
        Err(CollectiveError::PeerLost {
            rank: self.roster.labels[other],
            host: self.roster.hosts[other].clone(),
            last_seen: self.segment.last_seen(seat),
            how: if left { Loss::Left } else { Loss::Died },
            during,
        })
    }

    /// Forms the group of two, then does what waited for it, in order.
    fn open(&self, route: Route) {
        let (from, to, tag) = route;
        let id = GroupId {
            name: format!("{} {from}>{to} {tag}", self.id.name),
            generation: self.id.generation,
        };
        let cards = [self.cards[from].clone(), self.cards[to].clone()];
        let labels = [self.roster.labels[from], self.roster.labels[to]];
        let me = usize::from(!cards[0].is_of(self.lobby.card()));
        // A receiver may come much later than the sender: that is a call's wait, not a forming's.
        let settings = Settings {
            forming: self.settings.deadline,
            ..self.settings
        };
        let formed = self
            .lobby
            .form_while(&id, me, &cards, &labels, &settings, &|| self.hope(route));
        let mut channels = self.channels();
        let Some(Channel::Forming(line)) = channels.remove(&route) else {
            return;
        };
        let formed = match self.closed.load(Ordering::Acquire) {
            true => Err(closed()),
            false => formed,
        };
        match formed {
            Err(error) => {
                for waiting in line {
                    drop(waiting.keep);
                    waiting.ticket.settle(Err(error.clone()));
                }
                channels.insert(route, Channel::Failed(error));
            }
            Ok(group) => {
                let started: Vec<_> = line
                    .into_iter()
                    .map(|waiting| {
                        // SAFETY: by contract of the caller that started it.
                        let handle = unsafe { group.start_call(waiting.letter.request(), waiting.keep) };
                        (handle, waiting.ticket)
                    })
                    .collect();
                channels.insert(route, Channel::Open(Arc::new(group)));
                drop(channels);
                for (handle, ticket) in started {
                    let outcome = handle.and_then(|handle| handle.wait(&|| ticket.given_up()));
                    ticket.settle(outcome);
                }
            }
        }
    }
}
