//! How members of one host come together: the first makes the memory, the others fetch it.

use std::collections::BTreeMap;
use std::time::Duration;

use grampus_core::{Address, JobId, JobKey, JoinString};
use grampus_net::{Frame, Incoming, Limits, Link, Listener, connect_to};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::lobby::{GRACE, Hope, Retry, form, lost};
use super::roster::Roster;
use crate::shared::{Layout, Segment, monotonic};
use crate::{CollectiveError, Settings};

/// How long one handshake may take, however long the group may form.
const HANDSHAKE: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
enum Message {
    Hello {
        rank: u32,
    },
    Memory {
        members: u32,
        ranks: u32,
        slot: u64,
        flat: u64,
    },
    Mapped,
    Go,
    /// Why the group will not form.
    GivenUp {
        why: String,
    },
}

/// One group about to form on this host.
pub(super) struct Gathering<'a> {
    pub job: JobId,
    pub key: &'a JobKey,
    /// Name of the first member's socket.
    pub door: String,
    pub roster: &'a Roster,
    pub settings: &'a Settings,
    /// When members that have not come are given up.
    pub end: Duration,
    pub hope: &'a Hope<'a>,
}

impl Gathering<'_> {
    /// The group's memory on this host, once all its members have it.
    pub async fn segment(&self) -> Result<Segment, CollectiveError> {
        let locals = self.roster.topology.locals();
        let limits = Limits {
            handshake: self.settings.forming.min(HANDSHAKE),
            // The arena is as large as the host's memory for every member; nothing of it is there before it is used.
            memory: u64::MAX,
            ..Limits::default()
        };
        let left = self.end.saturating_sub(monotonic());
        if locals[0] == self.roster.me {
            let mut come = BTreeMap::new();
            let leading = self.lead(&limits, &mut come);
            let led = tokio::select! {
                led = tokio::time::timeout(left, leading) => led,
                lost = lost(self.hope) => Ok(Err(lost)),
            };
            let led = led.unwrap_or_else(|_| Err(self.late(&come)));
            if let Err(error) = &led {
                give_up(&mut come, error).await;
            }
            return led;
        }
        // The first member names those that are missing.
        let followed = tokio::select! {
            followed = tokio::time::timeout(left.saturating_add(GRACE), self.follow(&limits)) => followed,
            lost = lost(self.hope) => Ok(Err(lost)),
        };
        followed.unwrap_or_else(|_| {
            Err(form(format!(
                "{} did not open the group within {:?}: look for its own error",
                self.roster.name(locals[0]),
                self.settings.forming
            )))
        })
    }

    async fn lead(
        &self,
        limits: &Limits,
        come: &mut BTreeMap<usize, Link>,
    ) -> Result<Segment, CollectiveError> {
        let members = self.roster.topology.locals().len();
        let layout = Layout::new(members, self.roster.size(), self.settings.slot);
        let memory = Segment::create(layout)?;
        if members > 1 {
            let listener = Listener::hidden(&self.door, self.job, self.key.clone(), limits)
                .await?
                .named(&name(self.roster.me))?;
            // Side by side: a connection that stalls holds up no other.
            let mut greeted = JoinSet::new();
            while come.len() + 1 < members {
                tokio::select! {
                    incoming = listener.accept() => drop(greeted.spawn(greet(incoming?))),
                    // A broken connection is dropped: a member connects again, and a stranger does not matter.
                    Some(greeting) = greeted.join_next() => {
                        if let Ok(Ok((rank, link))) = greeting {
                            come.insert(rank, link);
                        }
                    }
                }
            }
        }
        for link in come.values_mut() {
            let message = Message::Memory {
                members: members as u32,
                ranks: self.roster.size() as u32,
                slot: layout.slot_bytes() as u64,
                flat: self.settings.flat as u64,
            };
            link.sender
                .send(Frame::message(&message)?.with_memory(memory.clone()))
                .await?;
        }
        let segment = Segment::join(memory, layout, 0)?;
        for link in come.values_mut() {
            hear(link).await?;
        }
        for link in come.values_mut() {
            link.sender.send(Frame::message(&Message::Go)?).await?;
        }
        for (_, link) in std::mem::take(come) {
            link.close().await;
        }
        Ok(segment)
    }

    async fn follow(&self, limits: &Limits) -> Result<Segment, CollectiveError> {
        let roster = self.roster;
        let locals = roster.topology.locals();
        let mut link = self.reach(locals[0], limits).await?;
        let rank = roster.me as u32;
        link.sender
            .send(Frame::message(&Message::Hello { rank })?)
            .await?;
        let frame = link.receiver.recv().await?;
        let frame = frame.ok_or_else(|| form("the group was given up".into()))?;
        let (members, ranks, slot, flat, memory) = match (frame.read()?, frame.memory) {
            (
                Message::Memory {
                    members,
                    ranks,
                    slot,
                    flat,
                },
                Some(memory),
            ) => (members, ranks, slot, flat, memory),
            (Message::GivenUp { why }, _) => return Err(form(why)),
            _ => return Err(form("the group's first member sent no memory".into())),
        };
        self.agree((members as usize, ranks as usize), flat as usize)?;
        let layout = Layout::new(members as usize, ranks as usize, slot as usize);
        let segment = Segment::join(memory, layout, roster.topology.seat(roster.me))?;
        link.sender.send(Frame::message(&Message::Mapped)?).await?;
        hear(&mut link).await?;
        link.close().await;
        Ok(segment)
    }

    /// That this rank and the first speak of the same group and go the same ways.
    fn agree(&self, (members, ranks): (usize, usize), flat: usize) -> Result<(), CollectiveError> {
        let locals = self.roster.topology.locals();
        let leader = self.roster.name(locals[0]);
        if (members, ranks) != (locals.len(), self.roster.size()) {
            return Err(form(format!(
                "{leader} forms a group of {ranks} with {members} on this host, this rank one of {} with {}: give all \
                 the same cards",
                self.roster.size(),
                locals.len()
            )));
        }
        // Which way a sum takes depends on it: members that differ would read what no member wrote.
        if flat != self.settings.flat {
            return Err(form(format!(
                "{leader} sums up to {flat} bytes flat, this rank up to {}: give all the same settings",
                self.settings.flat
            )));
        }
        Ok(())
    }

    async fn reach(&self, leader: usize, limits: &Limits) -> Result<Link, CollectiveError> {
        let join = JoinString {
            job: self.job,
            key: self.key.clone(),
            address: Address::Abstract(self.door.clone()),
        };
        let mut retry = Retry::default();
        loop {
            match connect_to(&name(leader), &join, &name(self.roster.me), limits).await {
                // Not open yet, or too busy to answer.
                Err(error) if error.is_transient() => retry.pause().await,
                link => return Ok(link?),
            }
        }
    }

    fn late(&self, come: &BTreeMap<usize, Link>) -> CollectiveError {
        let missing: Vec<String> = self
            .roster
            .topology
            .locals()
            .iter()
            .filter(|rank| **rank != self.roster.me && !come.contains_key(rank))
            .map(|rank| self.roster.name(*rank))
            .collect();
        form(format!(
            "{} did not come within {:?}: look for their own errors",
            missing.join(", "),
            self.settings.forming
        ))
    }
}

/// Tells the members that came why the group will not form.
async fn give_up(come: &mut BTreeMap<usize, Link>, error: &CollectiveError) {
    let why = match error {
        CollectiveError::Form { why } => why.clone(),
        other => other.to_string(),
    };
    for (_, mut link) in std::mem::take(come) {
        // A member that does not hear it hears the end of the link.
        if let Ok(frame) = Frame::message(&Message::GivenUp { why: why.clone() }) {
            let _ = link.sender.send(frame).await;
        }
        link.sender.close().await;
    }
}

/// A member of this host, with its rank.
async fn greet(incoming: Incoming) -> Result<(usize, Link), CollectiveError> {
    let mut link = incoming.handshake().await?;
    match hear(&mut link).await? {
        Message::Hello { rank } => Ok((rank as usize, link)),
        _ => Err(form(format!("{} did not say its rank", link.peer.name))),
    }
}

async fn hear(link: &mut Link) -> Result<Message, CollectiveError> {
    match link.receiver.recv().await? {
        Some(frame) => match frame.read()? {
            Message::GivenUp { why } => Err(form(why)),
            message => Ok(message),
        },
        None => Err(form(format!(
            "{} left while the group was forming",
            link.peer.name
        ))),
    }
}

fn name(rank: usize) -> String {
    format!("rank-{rank}")
}
