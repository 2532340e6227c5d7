//! How members of different hosts come together: the higher rank of two dials, the lower one answers.

use std::sync::Arc;
use std::time::Duration;

use grampus_core::{Address, JoinString};
use grampus_net::{Limits, NetError, Ready, Security, Wire, connect_wire, wait_ready};

use super::acceptor::{Acceptor, Arrival};
use super::lobby::{Hope, LOOK, Lobby, Retry, form, wire_ending};
use super::roster::Roster;
use super::{Card, Connections};
use crate::across::{ControlWire, PeerHealth, Post, Stream};
use crate::shared::{Segment, monotonic};
use crate::{CollectiveError, Settings};

/// How long a host may give no answer at all. One that refuses answers: its process has not come so far.
const UNREACHABLE: Duration = Duration::from_secs(60);

/// One member of a group that is about to form.
pub(super) struct Dialling<'a> {
    pub lobby: &'a Lobby,
    pub roster: &'a Roster,
    /// Members of this host that have their connections already look there for signs of life.
    pub segment: &'a Segment,
    pub cards: &'a [Card],
    pub group: u64,
    pub settings: &'a Settings,
    /// When members that have not come are given up.
    pub end: Duration,
    pub hope: &'a Hope<'a>,
}

impl Dialling<'_> {
    /// The connections with ranks of other hosts, once these have theirs as well: calls wait for no rank that is not
    /// there yet.
    pub fn connections(&self, runtime: &tokio::runtime::Runtime) -> Result<Connections, CollectiveError> {
        let (mut post, mut control) = (Vec::new(), Vec::new());
        if self.roster.topology.is_one_host() {
            return Ok(Connections {
                post: Post::new(post),
                control,
            });
        }
        let acceptor = self.lobby.acceptor()?;
        let me = self.roster.me;
        let (lower, higher): (Vec<usize>, Vec<usize>) = self
            .roster
            .topology
            .peers()
            .into_iter()
            .partition(|peer| *peer < me);
        for peer in lower.into_iter().chain(higher) {
            let mut wire = |stream: Stream| match peer < me {
                true => runtime.block_on(self.dialled(peer, stream, &mut control)),
                false => self.taken(&acceptor, peer, stream, &mut control),
            };
            let [bulk, sums, third] = Stream::ALL;
            let (bulk, sums, third) = (wire(bulk)?, wire(sums)?, wire(third)?);
            let health = Arc::new(PeerHealth::new(peer));
            let security = third.security();
            let mut third = ControlWire::new(Arc::clone(&health), self.roster.name(peer), third);
            if security != self.settings.security {
                let error = self.disagree(peer, security);
                third.tell(&error);
                third.close();
                return Err(error);
            }
            post.push((health, [bulk, sums]));
            control.push(third);
        }
        self.greet(&mut control)?;
        Ok(Connections {
            post: Post::new(post),
            control,
        })
    }

    async fn dialled(
        &self,
        peer: usize,
        stream: Stream,
        control: &mut [ControlWire],
    ) -> Result<Wire, CollectiveError> {
        let left = self.end.saturating_sub(monotonic());
        let name = self.wire_name(self.roster.me, stream);
        tokio::select! {
            dialled = tokio::time::timeout(left, self.dial(peer, &name)) => {
                dialled.unwrap_or_else(|_| Err(self.late(peer)))
            }
            why = self.given_up(control) => Err(why),
        }
    }

    /// Ends when there is no hope, or a peer that has its connections gives the group up.
    async fn given_up(&self, control: &mut [ControlWire]) -> CollectiveError {
        loop {
            if let Err(why) = self.look(control) {
                return why;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn dial(&self, peer: usize, name: &str) -> Result<Wire, CollectiveError> {
        let card = &self.cards[peer];
        let (job, key) = self.lobby.secret();
        let address = Address::Tcp {
            host: card.address.clone(),
            port: card.port,
        };
        let join = JoinString { job, key, address };
        let (mut retry, mut silent_since) = (Retry::default(), None);
        loop {
            let dialled = connect_wire(
                &card.lobby(),
                &join,
                name,
                self.settings.security,
                &Limits::default(),
            )
            .await;
            let error = match dialled {
                Err(error) if error.is_transient() => error,
                wire => return Ok(wire?),
            };
            if !is_silence(&error) {
                silent_since = None;
            } else if monotonic().saturating_sub(*silent_since.get_or_insert_with(monotonic)) > UNREACHABLE {
                return Err(form(format!(
                    "{} cannot be reached: {error}",
                    self.roster.name(peer)
                )));
            }
            retry.pause().await;
        }
    }

    fn taken(
        &self,
        acceptor: &Acceptor,
        peer: usize,
        stream: Stream,
        control: &mut [ControlWire],
    ) -> Result<Wire, CollectiveError> {
        let name = self.wire_name(peer, stream);
        loop {
            self.look(control)?;
            let left = self.end.saturating_sub(monotonic());
            match acceptor.take(&name, left.min(LOOK)) {
                Some(Arrival::Here(wire)) => return Ok(wire),
                Some(Arrival::Gone) => return Err(self.gone(peer)),
                None if left.is_zero() => return Err(self.late(peer)),
                None => {}
            }
        }
    }

    /// Waits until all peers have said that they have all their connections.
    fn greet(&self, control: &mut [ControlWire]) -> Result<(), CollectiveError> {
        control.iter_mut().for_each(|wire| wire.beat(0, 0));
        loop {
            self.hear(control)?;
            let Some(missing) = control.iter().find(|wire| !wire.has_greeted()) else {
                return Ok(());
            };
            self.segment.beat();
            (self.hope)()?;
            if monotonic() > self.end {
                return Err(self.late(missing.health.rank));
            }
            let wanted: Vec<(&Wire, Ready)> = control.iter().filter_map(ControlWire::wanted).collect();
            wait_ready(&wanted, LOOK)?;
        }
    }

    /// Shows that this process lives; an error where there is no hope, or a peer has given the group up.
    fn look(&self, control: &mut [ControlWire]) -> Result<(), CollectiveError> {
        self.segment.beat();
        (self.hope)()?;
        self.hear(control)
    }

    /// Takes in what peers say; an error where one of them has given the group up.
    fn hear(&self, control: &mut [ControlWire]) -> Result<(), CollectiveError> {
        for wire in control {
            wire.push();
            let news = wire.take_in();
            if let Some(cause) = news.cause {
                return Err(cause);
            }
            if news.end.is_some() && !wire.has_greeted() {
                return Err(self.gone(wire.health.rank));
            }
            // The heartbeat hears of it.
            news.end.into_iter().for_each(|end| wire.health.set_end(end));
        }
        Ok(())
    }

    fn wire_name(&self, dialler: usize, stream: Stream) -> String {
        format!("r{dialler}-s{}{}", stream as usize, wire_ending(self.group))
    }

    fn late(&self, peer: usize) -> CollectiveError {
        form(format!(
            "{} did not come within {:?}: look for its own error, or for a firewall between",
            self.roster.name(peer),
            self.settings.forming
        ))
    }

    fn gone(&self, peer: usize) -> CollectiveError {
        form(format!(
            "{} gave the group up before it had formed: look for its own error",
            self.roster.name(peer)
        ))
    }

    fn disagree(&self, peer: usize, theirs: Security) -> CollectiveError {
        form(format!(
            "{} wants {theirs} between hosts and {} wants {}: set the same security on all hosts",
            self.roster.name(peer),
            self.roster.name(self.roster.me),
            self.settings.security
        ))
    }
}

/// Whether nothing at all answered.
fn is_silence(error: &NetError) -> bool {
    use std::io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut};
    match error {
        NetError::Deadline { .. } => true,
        NetError::Io { source, .. } => {
            matches!(source.kind(), HostUnreachable | NetworkUnreachable | TimedOut)
        }
        _ => false,
    }
}
