//! How members come together.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use grampus_core::{Address, JobId, JobKey, JoinString};
use grampus_net::{Limits, Reservation, Security, Wire, connect_wire};

use super::acceptor::{Acceptor, Door};
use super::gathering::Gathering;
use super::mail::{Mail, Office};
use super::roster::Roster;
use super::{Card, Group, card};
use crate::across::{Post, Stream, Topology};
use crate::shared::monotonic;
use crate::{CollectiveError, Settings};

const RETRY: Duration = Duration::from_millis(3);
/// How often a group that is forming asks whether there is hope.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes of a slot where turns wait for other hosts: longer turns, fewer waits.
const FAR_SLOT: usize = 2 << 20;

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
    /// Keeps the port free until other hosts are to be met.
    _port: Reservation,
    /// Once other hosts are met, and what protects the bytes of those that come.
    acceptor: Mutex<Option<(Security, Arc<Acceptor>)>>,
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
    /// A lobby for the members of a job. `host` is the name of this host, for people.
    pub fn open(job: JobId, key: JobKey, host: &str) -> Result<Self, CollectiveError> {
        Self::open_at(job, key, host, card::place())
    }

    /// `place` is what the host is told by.
    pub(crate) fn open_at(job: JobId, key: JobKey, host: &str, place: u64) -> Result<Self, CollectiveError> {
        let any = |address: IpAddr| Reservation::take(address);
        let port = any(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| any(Ipv4Addr::UNSPECIFIED.into()))?;
        Ok(Self(Arc::new(Inner {
            job,
            key,
            card: Card::new(host, place, port.port())?,
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
        let mut settings = *settings;
        if !roster.topology.is_one_host() {
            settings.slot = settings.slot.max(FAR_SLOT);
        }
        let gathering = Gathering {
            job: self.0.job,
            key: &self.0.key,
            door: cards[roster.topology.locals()[0]].door(hash(id)),
            roster: &roster,
            settings: &settings,
            hope,
        };
        let runtime = runtime()?;
        let segment = runtime.block_on(gathering.segment())?;
        let post = Post::new(self.wires(&gathering, cards, hash(id), &runtime)?);
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
        Group::start(id.clone(), segment, roster, mail, post, settings)
    }

    /// The connections with ranks of other hosts: the higher rank dials.
    fn wires(
        &self,
        gathering: &Gathering<'_>,
        cards: &[Card],
        group: u64,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<Vec<(usize, [Wire; 3])>, CollectiveError> {
        let Gathering {
            roster,
            settings,
            hope,
            ..
        } = *gathering;
        if roster.topology.is_one_host() {
            return Ok(Vec::new());
        }
        let acceptor = self.acceptor(settings.security)?;
        let end = monotonic() + settings.forming;
        let (lower, higher): (Vec<usize>, Vec<usize>) = roster
            .topology
            .peers()
            .into_iter()
            .partition(|peer| *peer < roster.me);
        let mut all = Vec::new();
        for peer in lower.into_iter().chain(higher) {
            let wire = |stream: Stream| {
                let left = end.saturating_sub(monotonic());
                if peer < roster.me {
                    let name = wire_name(roster.me, stream, group);
                    let dialling = self.dial(&cards[peer], &name, settings.security);
                    let dialled = runtime.block_on(async {
                        tokio::select! {
                            dialled = tokio::time::timeout(left, dialling) => dialled,
                            lost = lost(hope) => Ok(Err(lost)),
                        }
                    });
                    dialled.unwrap_or_else(|_| Err(late(roster, peer, settings)))
                } else {
                    let name = wire_name(peer, stream, group);
                    loop {
                        hope()?;
                        let left = end.saturating_sub(monotonic());
                        if let Some(wire) = acceptor.take(&name, left.min(LOOK)) {
                            break Ok(wire);
                        }
                        if left.is_zero() {
                            break Err(late(roster, peer, settings));
                        }
                    }
                }
            };
            let [bulk, sums, control] = Stream::ALL;
            all.push((peer, [wire(bulk)?, wire(sums)?, wire(control)?]));
        }
        Ok(all)
    }

    async fn dial(&self, card: &Card, name: &str, security: Security) -> Result<Wire, CollectiveError> {
        let join = JoinString {
            job: self.0.job,
            key: self.0.key.clone(),
            address: Address::Tcp {
                host: card.address.clone(),
                port: card.port,
            },
        };
        loop {
            match connect_wire(&card.lobby(), &join, name, security, &Limits::default()).await {
                // Not open yet, or too busy to answer.
                Err(error) if error.is_transient() => tokio::time::sleep(RETRY).await,
                wire => return Ok(wire?),
            }
        }
    }

    fn acceptor(&self, security: Security) -> Result<Arc<Acceptor>, CollectiveError> {
        let mut acceptor = self.0.acceptor.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((listens, acceptor)) = &*acceptor {
            if *listens != security {
                return Err(CollectiveError::Argument(format!(
                    "a group with {security} between hosts was asked for, and this process has formed one with \
                     {listens}: use one of them for all groups"
                )));
            }
            return Ok(Arc::clone(acceptor));
        }
        let started = Arc::new(Acceptor::start(Door {
            port: self.0.card.port,
            name: self.0.card.lobby(),
            job: self.0.job,
            key: self.0.key.clone(),
            security,
        })?);
        *acceptor = Some((security, Arc::clone(&started)));
        Ok(started)
    }
}

fn late(roster: &Roster, peer: usize, settings: &Settings) -> CollectiveError {
    form(format!(
        "there was no connection with {} within {:?}: look for its own error, or for a firewall between",
        roster.name(peer),
        settings.forming
    ))
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

fn wire_name(dialler: usize, stream: Stream, group: u64) -> String {
    format!("r{dialler}-s{}-{group:016x}", stream as usize)
}

fn hash(id: &GroupId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}
