//! How members come together.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use grampus_core::{JobId, JobKey};
use grampus_net::Reservation;

use super::acceptor::{Acceptor, Door};
use super::dialling::Dialling;
use super::gathering::Gathering;
use super::mail::{Mail, Office};
use super::roster::Roster;
use super::{Card, Group, card};
use crate::across::Topology;
use crate::shared::monotonic;
use crate::{CollectiveError, Settings};

/// How often a group that is forming asks whether there is hope.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// How much later a member gives up that only sees that another does not answer: one that knows the missing rank speaks first.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// Bytes of a slot where turns wait for other hosts: longer turns, fewer waits.
const FAR_SLOT: usize = 2 << 20;
/// Bytes of all such slots together.
const FAR_SLOTS: usize = 256 << 20;

/// Where groups are formed. A process opens one, gives its [`Card`] to the others, and takes theirs.
///
/// Clones are the same lobby.
#[derive(Clone, Debug)]
pub struct Lobby(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    job: JobId,
    key: JobKey,
    card: Card,
    /// Where other hosts reach this process.
    address: IpAddr,
    /// Keeps the port free until other hosts are to be met.
    _port: Reservation,
    /// Once other hosts are met.
    acceptor: Mutex<Option<Arc<Acceptor>>>,
}

/// Which group: its name, and how often it was formed before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupId {
    /// Such as `world`.
    pub name: String,
    /// Grows each time that the members change or the group is formed again.
    pub generation: u64,
}

impl Lobby {
    /// A lobby for the members of a job. `host` is the name of this host, for people; other hosts reach this process at
    /// `address`, or, where that is the unspecified one, at every address of this host.
    pub fn open(job: JobId, key: JobKey, host: &str, address: IpAddr) -> Result<Self, CollectiveError> {
        Self::open_at(job, key, host, address, card::place())
    }

    /// `place` is what the host is told by.
    pub(crate) fn open_at(
        job: JobId,
        key: JobKey,
        host: &str,
        address: IpAddr,
        place: u64,
    ) -> Result<Self, CollectiveError> {
        // All addresses are those of both versions of the protocol, where the host has both.
        let any: Option<IpAddr> = address.is_unspecified().then_some(Ipv6Addr::UNSPECIFIED.into());
        let both = any.and_then(|any| Some((any, Reservation::take(any).ok()?)));
        let (address, port) = match both {
            Some(both) => both,
            None if address.is_unspecified() => {
                let any = Ipv4Addr::UNSPECIFIED.into();
                (any, Reservation::take(any)?)
            }
            None => (address, Reservation::take(address)?),
        };
        Ok(Self(Arc::new(Inner {
            job,
            key,
            card: Card::new(host, place, address, port.port())?,
            address,
            _port: port,
            acceptor: Mutex::default(),
        })))
    }

    /// What others need to know of this process.
    pub fn card(&self) -> &Card {
        &self.0.card
    }

    /// Forms a group with all whose cards are given, in order of rank, as rank `me`. All of them must do so.
    pub fn form(
        &self,
        id: &GroupId,
        me: usize,
        cards: &[Card],
        settings: &Settings,
    ) -> Result<Group, CollectiveError> {
        let labels: Vec<u32> = (0..cards.len() as u32).collect();
        self.form_part(id, me, cards, &labels, settings)
    }

    /// Like [`Lobby::form`], for a part of a larger world: `labels` are what errors call the members.
    pub fn form_part(
        &self,
        id: &GroupId,
        me: usize,
        cards: &[Card],
        labels: &[u32],
        settings: &Settings,
    ) -> Result<Group, CollectiveError> {
        self.form_while(id, me, cards, labels, settings, &|| Ok(()))
    }

    /// Like [`Lobby::form_part`], as long as `hope`, asked now and then, finds that there is some.
    pub fn form_while(
        &self,
        id: &GroupId,
        me: usize,
        cards: &[Card],
        labels: &[u32],
        settings: &Settings,
        hope: &Hope<'_>,
    ) -> Result<Group, CollectiveError> {
        if !cards.get(me).is_some_and(|card| card.is_of(&self.0.card)) {
            return Err(form(format!("the card of rank {me} is not this process's own")));
        }
        let places: Vec<u64> = cards.iter().map(|card| card.place).collect();
        let roster = Roster {
            me,
            labels: labels.to_vec(),
            hosts: cards.iter().map(|card| card.host.clone()).collect(),
            topology: Topology::new(&places, me),
        };
        let settings = fit(*settings, &roster);
        let end = monotonic().saturating_add(settings.forming);
        let gathering = Gathering {
            job: self.0.job,
            key: &self.0.key,
            door: cards[roster.topology.locals()[0]].door(hash(id)),
            roster: &roster,
            settings: &settings,
            end,
            hope,
        };
        let runtime = runtime()?;
        self.welcome(hash(id));
        let segment = runtime.block_on(gathering.segment());
        let connected = segment.and_then(|segment| {
            let dialling = Dialling {
                lobby: self,
                roster: &roster,
                segment: &segment,
                cards,
                group: hash(id),
                settings: &settings,
                end: end.saturating_add(GRACE),
                hope,
            };
            dialling.connections(&runtime).map(|made| (segment, made))
        });
        let (segment, connections) = connected.inspect_err(|_| self.give_up(hash(id), &roster))?;
        let (segment, roster) = (Arc::new(segment), Arc::new(roster.clone()));
        let mail = Mail::new(Office {
            lobby: self.clone(),
            id: id.clone(),
            cards: cards.to_vec(),
            roster: Arc::clone(&roster),
            segment: Arc::clone(&segment),
            settings,
            closed: AtomicBool::new(false),
            channels: Mutex::default(),
        });
        Group::start(id.clone(), segment, roster, mail, connections, settings)
    }

    /// Closes the connections for a group that does not form, also those of ranks that come later.
    fn give_up(&self, group: u64, roster: &Roster) {
        if roster.topology.is_one_host() {
            return;
        }
        // Without an acceptor a rank that comes later waits for its deadline; there is nothing else to do about it here.
        if let Ok(acceptor) = self.acceptor() {
            acceptor.give_up(wire_ending(group));
        }
    }

    /// Takes in connections for a group again that was given up before.
    fn welcome(&self, group: u64) {
        let acceptor = self.0.acceptor.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(acceptor) = &*acceptor {
            acceptor.welcome(&wire_ending(group));
        }
    }

    /// Where other hosts' connections come in; it listens from the first time on.
    pub(super) fn acceptor(&self) -> Result<Arc<Acceptor>, CollectiveError> {
        let mut acceptor = self.0.acceptor.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(acceptor) = &*acceptor {
            return Ok(Arc::clone(acceptor));
        }
        let started = Arc::new(Acceptor::start(&Door {
            address: self.0.address,
            port: self.0.card.port,
            name: self.0.card.lobby(),
            job: self.0.job,
            key: self.0.key.clone(),
        })?);
        *acceptor = Some(Arc::clone(&started));
        Ok(started)
    }

    /// What proves that two processes belong to one job.
    pub(super) fn secret(&self) -> (JobId, JobKey) {
        (self.0.job, self.0.key.clone())
    }
}

/// How soon to try again: soon at first, and less often for a member that is late.
#[derive(Default)]
pub(super) struct Retry(u32);

impl Retry {
    pub async fn pause(&mut self) {
        let millis = 3_u64 << (self.0 / 16).min(5);
        self.0 = self.0.saturating_add(1);
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
}

/// Says why a group that is forming never will.
pub type Hope<'a> = dyn Fn() -> Result<(), CollectiveError> + 'a;

/// Ends when there is no hope.
pub(super) async fn lost(hope: &Hope<'_>) -> CollectiveError {
    loop {
        if let Err(why) = hope() {
            return why;
        }
        tokio::time::sleep(LOOK).await;
    }
}

pub(super) fn form(why: String) -> CollectiveError {
    CollectiveError::Form { why }
}

pub(super) fn runtime() -> Result<tokio::runtime::Runtime, CollectiveError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CollectiveError::System(format!("cannot start a runtime: {error}")))
}

/// What the names of all wires of a group end with.
pub(super) fn wire_ending(group: u64) -> String {
    format!("-{group:016x}")
}

/// The part of a wire's name that [`wire_ending`] made.
pub(super) fn wire_ending_of(name: &str) -> &str {
    name.rfind('-').map_or(name, |at| &name[at..])
}

pub(super) fn hash(id: &GroupId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

/// Slots that hold more where hosts exchange them.
fn fit(mut settings: Settings, roster: &Roster) -> Settings {
    if !roster.topology.is_one_host() {
        let shared = FAR_SLOTS / (2 * roster.size());
        settings.slot = settings.slot.max(FAR_SLOT.min(shared));
    }
    settings
}
