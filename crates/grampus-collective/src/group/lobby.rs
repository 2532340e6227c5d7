//! How members come together: the first of a host makes the memory, the others fetch it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use grampus_core::{Address, JobId, JobKey, JoinString};
use grampus_net::{Frame, Limits, Link, Listener, connect_to};
use serde::{Deserialize, Serialize};

use super::mail::Mail;
use super::roster::Roster;
use super::{Card, Group};
use crate::shared::{Layout, Segment};
use crate::{CollectiveError, Settings};

const RETRY: Duration = Duration::from_millis(3);

/// Where groups are formed. A process opens one, gives its [`Card`] to the others, and takes theirs.
/// Clones are the same lobby.
#[derive(Clone, Debug)]
pub struct Lobby {
    job: JobId,
    key: JobKey,
    card: Card,
}

/// Which group: its name, and how often it was formed before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupId {
    /// Such as `world`.
    pub name: String,
    /// Grows each time that the members change or the group is formed again.
    pub generation: u64,
}

#[derive(Serialize, Deserialize)]
enum Message {
    Hello { rank: u32 },
    Memory { members: u32, ranks: u32, slot: u64 },
    Mapped,
    Go,
}

impl Lobby {
    /// A lobby for the members of a job. `host` is the name of this host, for people.
    pub fn open(job: JobId, key: JobKey, host: &str) -> Result<Self, CollectiveError> {
        Ok(Self {
            job,
            key,
            card: Card::new(host)?,
        })
    }

    /// What others need to know of this process.
    pub fn card(&self) -> &Card {
        &self.card
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
        if cards.get(me) != Some(&self.card) {
            return Err(form(format!("the card of rank {me} is not this process's own")));
        }
        let roster = Roster {
            me,
            labels: labels.to_vec(),
            hosts: cards.iter().map(|card| card.host.clone()).collect(),
            locals: (0..cards.len())
                .filter(|rank| cards[*rank].place == self.card.place)
                .collect(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| CollectiveError::System(format!("cannot start a runtime: {error}")))?;
        let segment = runtime.block_on(self.gather(id, &roster, cards, settings))?;
        let mail = Mail::new(
            self.clone(),
            id.clone(),
            cards.to_vec(),
            labels.to_vec(),
            *settings,
        );
        Group::start(id.clone(), Arc::new(segment), Arc::new(roster), mail, *settings)
    }

    async fn gather(
        &self,
        id: &GroupId,
        roster: &Roster,
        cards: &[Card],
        settings: &Settings,
    ) -> Result<Segment, CollectiveError> {
        let leader = roster.locals[0];
        let door = cards[leader].door(hash(id));
        let limits = Limits {
            handshake: settings.forming,
            ..Limits::default()
        };
        if leader == roster.me {
            let layout = Layout::new(roster.locals.len(), roster.size(), settings.slot);
            let mut come = BTreeMap::new();
            let leading = self.lead(&door, roster, layout, &limits, &mut come);
            let led = tokio::time::timeout(settings.forming, leading).await;
            return led.unwrap_or_else(|_| Err(late(roster, &come, settings.forming)));
        }
        let following = self.follow(&door, leader, roster, &limits);
        let followed = tokio::time::timeout(settings.forming, following).await;
        followed.unwrap_or_else(|_| {
            Err(form(format!(
                "rank {} on {} did not open the group {:?} within {:?}, or waited for others in vain: look \
                 for its own error",
                roster.labels[leader], roster.hosts[leader], id.name, settings.forming
            )))
        })
    }

    async fn lead(
        &self,
        door: &str,
        roster: &Roster,
        layout: Layout,
        limits: &Limits,
        come: &mut BTreeMap<usize, Link>,
    ) -> Result<Segment, CollectiveError> {
        let memory = Segment::create(layout)?;
        if roster.locals.len() > 1 {
            let listener = Listener::hidden(door, self.job, self.key.clone(), limits)
                .await?
                .named(&name(roster.me))?;
            while come.len() + 1 < roster.locals.len() {
                // Strangers and the impatient are not the group's concern: whoever belongs here comes again.
                let Ok(mut link) = listener.accept().await?.handshake().await else {
                    continue;
                };
                if let Ok(Message::Hello { rank }) = hear(&mut link).await {
                    come.insert(rank as usize, link);
                }
            }
        }
        for link in come.values_mut() {
            let message = Message::Memory {
                members: roster.locals.len() as u32,
                ranks: roster.size() as u32,
                slot: layout.slot_bytes() as u64,
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

    async fn follow(
        &self,
        door: &str,
        leader: usize,
        roster: &Roster,
        limits: &Limits,
    ) -> Result<Segment, CollectiveError> {
        let join = JoinString {
            job: self.job,
            key: self.key.clone(),
            address: Address::Abstract(door.to_owned()),
        };
        let mut link = loop {
            match connect_to(&name(leader), &join, &name(roster.me), limits).await {
                // Not open yet, or too busy to answer.
                Err(error) if error.is_transient() => tokio::time::sleep(RETRY).await,
                link => break link?,
            }
        };
        let rank = roster.me as u32;
        link.sender
            .send(Frame::message(&Message::Hello { rank })?)
            .await?;
        let frame = link
            .receiver
            .recv()
            .await?
            .ok_or_else(|| form("the group was given up".into()))?;
        let (Message::Memory { members, ranks, slot }, Some(memory)) = (frame.read()?, frame.memory) else {
            return Err(form("the group's first member sent no memory".into()));
        };
        if (members as usize, ranks as usize) != (roster.locals.len(), roster.size()) {
            return Err(form(format!(
                "rank {leader} forms a group of {ranks} with {members} on this host, this rank one of {} with {}: \
                 give all the same cards",
                roster.size(),
                roster.locals.len()
            )));
        }
        let layout = Layout::new(members as usize, ranks as usize, slot as usize);
        let me = roster
            .locals
            .iter()
            .position(|rank| *rank == roster.me)
            .unwrap_or(0);
        let segment = Segment::join(memory, layout, me)?;
        link.sender.send(Frame::message(&Message::Mapped)?).await?;
        hear(&mut link).await?;
        link.close().await;
        Ok(segment)
    }
}

async fn hear(link: &mut Link) -> Result<Message, CollectiveError> {
    match link.receiver.recv().await? {
        Some(frame) => Ok(frame.read()?),
        None => Err(form(format!(
            "{} left while the group was forming",
            link.peer.name
        ))),
    }
}

fn late(roster: &Roster, come: &BTreeMap<usize, Link>, after: Duration) -> CollectiveError {
    let missing: Vec<String> = roster
        .locals
        .iter()
        .filter(|rank| **rank != roster.me && !come.contains_key(rank))
        .map(|rank| format!("rank {} on {}", roster.labels[*rank], roster.hosts[*rank]))
        .collect();
    form(format!(
        "{} did not come within {after:?}: look for their own errors",
        missing.join(", ")
    ))
}

fn form(why: String) -> CollectiveError {
    CollectiveError::Form { why }
}

fn name(rank: usize) -> String {
    format!("rank-{rank}")
}

fn hash(id: &GroupId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}
