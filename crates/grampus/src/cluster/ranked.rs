//! A rank of `grampus run`: every rank is the user's program, and all of them do everything together.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use grampus_cluster::node::RANKS_KEY;
use grampus_collective::{Card, Group, GroupId, Lobby, Settings};
use grampus_core::{Address, JobKey, JoinString};
use grampus_net::{Frame, Limits, Link, Listener, NetError, connect, derive_job};
use grampus_train::native::{Event, Kept, State};
use grampus_train::whereabouts::Whereabouts;

use super::Wish;
use super::task::{Answer, Performed, Task};
use crate::error::{Error, Result};

/// How long all ranks may take to meet.
const MEET_WITHIN: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_millis(50);

/// Where this process stands among those that `grampus run` has started.
pub(super) struct Ranked {
    rank: usize,
    addresses: Vec<String>,
    master: (String, u16),
    key: JobKey,
    group: Mutex<Option<Arc<Group>>>,
}

impl Ranked {
    /// What the environment says; nothing where this process was started otherwise, or alone.
    pub fn told() -> Result<Option<Self>> {
        let word = |name: &str| std::env::var(name).ok();
        let (Some(place), Some(rank), Some(config)) = (word(RANKS_KEY), word("RANK"), word("TF_CONFIG"))
        else {
            return Ok(None);
        };
        let wrong = |what: &str| {
            Error::Cluster(format!(
                "{what} does not fit the rest of `grampus run`'s variables"
            ))
        };
        let key = std::fs::read(&place).map_err(|error| Error::Cluster(format!("{place}: {error}")))?;
        let key: [u8; 32] = key.try_into().map_err(|_| wrong(RANKS_KEY))?;
        let config: serde_json::Value = serde_json::from_str(&config).map_err(|_| wrong("TF_CONFIG"))?;
        let endpoints = config["cluster"]["worker"]
            .as_array()
            .ok_or_else(|| wrong("TF_CONFIG"))?;
        let address = |endpoint: &serde_json::Value| {
            let (host, _) = endpoint.as_str()?.rsplit_once(':')?;
            Some(host.trim_matches(['[', ']']).to_owned())
        };
        let addresses: Option<Vec<String>> = endpoints.iter().map(address).collect();
        let port = word("MASTER_PORT").and_then(|port| port.parse().ok());
        let ranked = Self {
            rank: rank.parse().map_err(|_| wrong("RANK"))?,
            addresses: addresses.ok_or_else(|| wrong("TF_CONFIG"))?,
            master: (
                word("MASTER_ADDR").ok_or_else(|| wrong("MASTER_ADDR"))?,
                port.ok_or_else(|| wrong("MASTER_PORT"))?,
            ),
            key: JobKey::from_bytes(key),
            group: Mutex::new(None),
        };
        Ok((ranked.size() > 1).then_some(ranked))
    }

    pub fn size(&self) -> u32 {
        self.addresses.len() as u32
    }

    pub fn leads(&self) -> bool {
        self.rank == 0
    }

    /// Does a task with all other ranks; what each of them answers, in order.
    pub fn call(
        &self,
        task: Task,
        state: Option<State>,
        hear: &mut dyn FnMut(Event) -> Wish,
    ) -> Result<Vec<Answer>> {
        let group = self.group()?;
        let hear = std::cell::RefCell::new(hear);
        let ends = std::rc::Rc::new(std::cell::Cell::new(false));
        let wants = std::rc::Rc::clone(&ends);
        let tell = |event: &Event| {
            if (hear.borrow_mut())(event.clone()) == Wish::End {
                ends.set(true);
            }
        };
        let predicts = matches!(task, Task::Predict(_));
        let performed = Performed {
            group: Arc::clone(&group),
            gives_up: Arc::new(|| false),
            tell: &tell,
            wants_to_stop: Box::new(move || wants.get()),
            here: &Whereabouts::default(),
            kept: &mut None::<Kept>,
        };
        let answer = performed.perform(task, state)?;
        if !predicts {
            return Ok(vec![answer]);
        }
        Ok(answer.gathered(&group)?)
    }

    /// All ranks; they meet once.
    fn group(&self) -> Result<Arc<Group>> {
        let mut group = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = &*group {
            return Ok(Arc::clone(group));
        }
        let (job, key) = derive_job(&self.key, "ranks").map_err(Error::cluster)?;
        let host = grampus_cluster::host::name();
        let lobby = Lobby::open(job, key.clone(), &host).map_err(Error::cluster)?;
        let join = JoinString {
            job,
            key,
            address: Address::Tcp {
                host: self.master.0.clone(),
                port: self.master.1,
            },
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::cluster)?;
        let mine = lobby.card().to_bytes();
        let meeting = async {
            match self.leads() {
                true => self.host(&join, mine).await,
                false => self.visit(&join, mine).await,
            }
        };
        let cards = runtime.block_on(async { tokio::time::timeout(MEET_WITHIN, meeting).await });
        let cards = cards
            .map_err(|_| {
                Error::Cluster(format!(
                    "the {} ranks did not meet within {MEET_WITHIN:?}",
                    self.size()
                ))
            })?
            .map_err(Error::cluster)?;
        let cards = cards.iter().zip(&self.addresses);
        let cards: std::result::Result<Vec<Card>, _> = cards
            .map(|(card, address)| Card::from_bytes(card).map(|card| card.at(address)))
            .collect();
        let id = GroupId {
            name: "ranks".to_owned(),
            generation: 1,
        };
        let formed = cards.and_then(|cards| lobby.form(&id, self.rank, &cards, &Settings::default()));
        let formed = Arc::new(formed.map_err(Error::cluster)?);
        *group = Some(Arc::clone(&formed));
        Ok(formed)
    }

    /// Collects the cards of all ranks, and gives all of them to each.
    async fn host(&self, join: &JoinString, mine: Vec<u8>) -> std::result::Result<Vec<Vec<u8>>, NetError> {
        let address = match self.master.0.contains(':') {
            true => format!("[{}]:{}", self.master.0, self.master.1),
            false => format!("{}:{}", self.master.0, self.master.1),
        };
        let listener = Listener::tcp(&address, join.job, join.key.clone(), &Limits::default()).await?;
        let mut cards = vec![Vec::new(); self.addresses.len()];
        cards[0] = mine;
        let mut guests: Vec<Link> = Vec::new();
        while guests.len() + 1 < cards.len() {
            // A stranger who does not know the key is no reason to give up.
            let Ok(mut guest) = listener.accept().await?.handshake().await else {
                continue;
            };
            let Some(frame) = guest.receiver.recv().await? else {
                continue;
            };
            let (rank, card): (usize, Vec<u8>) = frame.read()?;
            if rank > 0 && rank < cards.len() {
                cards[rank] = card;
                guests.push(guest);
            }
        }
        for guest in &mut guests {
            guest.sender.send(Frame::message(&cards)?).await?;
        }
        Ok(cards)
    }

    /// Gives the first rank this one's card, and gets all.
    async fn visit(&self, join: &JoinString, mine: Vec<u8>) -> std::result::Result<Vec<Vec<u8>>, NetError> {
        let name = format!("rank-{}", self.rank);
        let mut link = loop {
            match connect(join, &name, &Limits::default()).await {
                // It does not listen yet.
                Err(error) if error.is_transient() => tokio::time::sleep(RETRY).await,
                link => break link?,
            }
        };
        link.sender.send(Frame::message(&(self.rank, mine))?).await?;
        match link.receiver.recv().await? {
            Some(frame) => frame.read(),
            None => Err(NetError::Closed {
                peer: "rank 0".to_owned(),
                when: "before all ranks had met",
            }),
        }
    }
}
