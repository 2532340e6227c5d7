//! How ranks of `grampus run` come to know each other: each brings a card, and gets those of all.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use grampus_core::{Address, JobId, JobKey, JoinString};
use grampus_net::{Frame, Incoming, Limits, Link, Listener, NetError, Sender, connect};
use tokio::task::JoinSet;

use super::RANKS_KEY;

const RETRY: Duration = Duration::from_millis(50);
/// How often a rank that waits asks whether to give up.
const LOOK: Duration = Duration::from_millis(50);
/// How much later the others give up than the first, which knows who is missing and tells them.
const GRACE: Duration = Duration::from_secs(2);

/// Why ranks did not meet.
#[derive(Debug, thiserror::Error)]
pub enum MeetingError {
    /// The variables of this process do not say where it stands.
    #[error(
        "{0} does not fit the other variables of `grampus run`: start the program with it, and leave them as they are"
    )]
    Variable(&'static str),
    /// No runtime, or no key.
    #[error("the ranks cannot meet: {0}")]
    System(#[from] io::Error),
    /// The network.
    #[error("the ranks cannot meet: {0}")]
    Net(#[from] NetError),
    /// Some did not come.
    #[error("{0}")]
    Late(String),
    /// Such as on Ctrl-C.
    #[error("the ranks did not meet: this one gave up")]
    GivenUp,
}

/// The cards of all ranks, or why they did not meet.
type Met = Result<Vec<Vec<u8>>, String>;

/// Where this process stands among the ranks that `grampus run` has started.
pub struct RankPlace {
    /// Its rank.
    pub rank: usize,
    /// The address of each rank, in order.
    pub addresses: Vec<String>,
    /// What all of them know and nobody else.
    pub key: JobKey,
    master: (String, u16),
}

impl RankPlace {
    /// What the variables of this process say; nothing where it was started otherwise.
    pub fn told() -> Result<Option<Self>, MeetingError> {
        let word = |name: &str| std::env::var(name).ok();
        let (Some(place), Some(rank), Some(config)) = (word(RANKS_KEY), word("RANK"), word("TF_CONFIG"))
        else {
            return Ok(None);
        };
        let key = std::fs::read(&place)?;
        let key: [u8; 32] = key.try_into().map_err(|_| MeetingError::Variable(RANKS_KEY))?;
        let port = word("MASTER_PORT").and_then(|port| port.parse().ok());
        Ok(Some(Self {
            rank: rank.parse().map_err(|_| MeetingError::Variable("RANK"))?,
            addresses: addresses(&config).ok_or(MeetingError::Variable("TF_CONFIG"))?,
            key: JobKey::from_bytes(key),
            master: (
                word("MASTER_ADDR").ok_or(MeetingError::Variable("MASTER_ADDR"))?,
                port.ok_or(MeetingError::Variable("MASTER_PORT"))?,
            ),
        }))
    }

    /// Where other hosts reach this rank; every address of this host where its own is a name.
    pub fn address(&self) -> IpAddr {
        let own = self.addresses.get(self.rank);
        let known = own.and_then(|address| address.parse().ok());
        known.unwrap_or(Ipv6Addr::UNSPECIFIED.into())
    }

    /// The cards of all ranks, in order, under a job and key that they share. Waits for those who have not come so long,
    /// and as long as this rank does not give up.
    pub fn meet(
        &self,
        (job, key): (JobId, JobKey),
        card: Vec<u8>,
        within: Duration,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<Vec<Vec<u8>>, MeetingError> {
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
            .build()?;
        let meeting = async {
            match self.rank {
                0 => Ok(self.host(&join, card, within).await?),
                _ => {
                    match tokio::time::timeout(within.saturating_add(GRACE), self.visit(&join, card)).await {
                        Ok(met) => Ok(met?),
                        Err(_) => Ok(Err(late(&[0], within))),
                    }
                }
            }
        };
        let met: Result<Met, MeetingError> = runtime.block_on(async {
            tokio::select! {
                met = meeting => met,
                () = given_up(gives_up) => Err(MeetingError::GivenUp),
            }
        });
        met?.map_err(MeetingError::Late)
    }

    /// Collects the cards of all ranks, and gives all of them to each.
    async fn host(&self, join: &JoinString, mine: Vec<u8>, within: Duration) -> Result<Met, NetError> {
        let (host, port) = &self.master;
        let address = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let listener = Listener::tcp(&address, join.job, join.key.clone(), &Limits::default()).await?;
        let mut cards = vec![None; self.addresses.len()];
        cards[0] = Some(mine);
        // By rank: the number of its visit, and the way to it.
        let mut guests: HashMap<usize, (u64, Sender)> = HashMap::new();
        // Kept until all guests have their answer: it holds the other halves of the ways to them.
        let mut left = JoinSet::new();
        let collecting = collect(&listener, &mut cards, &mut guests, &mut left);
        let met: Met = match tokio::time::timeout(within, collecting).await {
            Err(_) => {
                let is_missing = |rank: &usize| !guests.contains_key(rank);
                Err(late(
                    &(1..cards.len()).filter(is_missing).collect::<Vec<_>>(),
                    within,
                ))
            }
            Ok(collected) => {
                collected?;
                Ok(cards.into_iter().flatten().collect())
            }
        };
        let mut told = JoinSet::new();
        for (_, mut sender) in guests.into_values() {
            let frame = Frame::message(&met)?;
            told.spawn(async move { sender.send(frame).await });
        }
        // A guest that has ended needs no answer.
        told.join_all().await;
        Ok(met)
    }

    /// Gives the first rank this one's card, and gets all.
    async fn visit(&self, join: &JoinString, mine: Vec<u8>) -> Result<Met, NetError> {
        let name = format!("rank-{}", self.rank);
        let mut link = loop {
            match connect(join, &name, &Limits::default()).await {
                // It does not listen yet; how long this may go on, the caller says.
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

/// Waits until every rank has given its card; several are greeted at once.
async fn collect(
    listener: &Listener,
    cards: &mut [Option<Vec<u8>>],
    guests: &mut HashMap<usize, (u64, Sender)>,
    left: &mut JoinSet<(usize, u64)>,
) -> Result<(), NetError> {
    let (mut greeted, mut visits) = (JoinSet::new(), 0);
    while guests.len() + 1 < cards.len() {
        tokio::select! {
            incoming = listener.accept() => drop(greeted.spawn(greet(incoming?))),
            // A stranger who does not know the key is no reason to give up.
            Some(greeting) = greeted.join_next() => {
                if let Ok(Ok((rank @ 1.., card, guest))) = greeting
                    && let Some(place) = cards.get_mut(rank)
                {
                    visits += 1;
                    let Link { sender, mut receiver, .. } = guest;
                    let visit = visits;
                    *place = Some(card);
                    guests.insert(rank, (visit, sender));
                    left.spawn(async move {
                        // It has said all.
                        let _ = receiver.recv().await;
                        (rank, visit)
                    });
                }
            }
            // Nor is a guest that has ended: whoever started it knows how, and ends the others or starts it again.
            Some(gone) = left.join_next() => {
                if let Ok((rank, visit)) = gone {
                    guests.retain(|guest, (last, _)| *guest != rank || *last != visit);
                }
            }
        }
    }
    Ok(())
}

/// The rank and the card of a guest, who may take its time: how long all of them may take, the caller says.
async fn greet(incoming: Incoming) -> Result<(usize, Vec<u8>, Link), NetError> {
    let mut guest = incoming.handshake().await?;
    let Some(frame) = guest.receiver.recv().await? else {
        return Err(NetError::Closed {
            peer: guest.peer.name,
            when: "before it gave its card",
        });
    };
    let (rank, card) = frame.read()?;
    Ok((rank, card, guest))
}

/// Ends when this rank gives up.
async fn given_up(gives_up: &dyn Fn() -> bool) {
    while !gives_up() {
        tokio::time::sleep(LOOK).await;
    }
}

fn late(missing: &[usize], within: Duration) -> String {
    let names: Vec<String> = missing.iter().map(|rank| format!("rank {rank}")).collect();
    format!(
        "{} did not reach rank 0 within {within:?}: look for its own error, or allow more time",
        names.join(", ")
    )
}

/// The address of each rank, from what TensorFlow is told.
fn addresses(config: &str) -> Option<Vec<String>> {
    let config: serde_json::Value = serde_json::from_str(config).ok()?;
    let address = |endpoint: &serde_json::Value| {
        let (host, _) = endpoint.as_str()?.rsplit_once(':')?;
        Some(host.trim_matches(['[', ']']).to_owned())
    };
    config["cluster"]["worker"]
        .as_array()?
        .iter()
        .map(address)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_endpoints() {
        let config = r#"{"cluster": {"worker": ["10.0.0.1:4711", "[::1]:4712"]}, "task": {"index": 0}}"#;
        assert_eq!(
            addresses(config),
            Some(vec!["10.0.0.1".to_owned(), "::1".to_owned()])
        );
        assert_eq!(addresses("{}"), None);
        assert_eq!(addresses("no JSON"), None);
    }

    const JOB: JobId = JobId(0x6e65);
    const WITHIN: Duration = Duration::from_secs(60);

    fn key() -> JobKey {
        JobKey::from_bytes([3; 32])
    }

    fn places(port: u16) -> Vec<RankPlace> {
        let place = |rank| RankPlace {
            rank,
            addresses: vec!["127.0.0.1".to_owned(); 3],
            key: key(),
            master: ("127.0.0.1".to_owned(), port),
        };
        (0..3).map(place).collect()
    }

    /// What each of three ranks has when they have met, while something else happens at their address.
    fn met(beside: impl FnOnce(u16)) -> Vec<Vec<Vec<u8>>> {
        let reserved = grampus_net::Reservation::take([127, 0, 0, 1].into()).unwrap();
        let mut places = places(reserved.port());
        let late = places.split_off(1);
        std::thread::scope(|scope| {
            let meet = |place: RankPlace| {
                scope.spawn(move || {
                    let card = vec![place.rank as u8];
                    place.meet((JOB, key()), card, WITHIN, &|| false).unwrap()
                })
            };
            let mut ranks: Vec<_> = places.into_iter().map(meet).collect();
            beside(reserved.port());
            ranks.extend(late.into_iter().map(meet));
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    /// Somebody who knows the key, and has said nothing yet.
    async fn guest(port: u16, name: &str) -> Link {
        let join = JoinString {
            job: JOB,
            key: key(),
            address: Address::Tcp {
                host: "127.0.0.1".to_owned(),
                port,
            },
        };
        loop {
            match connect(&join, name, &Limits::default()).await {
                // Rank 0 does not listen yet.
                Err(error) if error.is_transient() => tokio::time::sleep(RETRY).await,
                link => return link.unwrap(),
            }
        }
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async { tokio::time::timeout(WITHIN / 2, work).await.unwrap() })
    }

    #[test]
    fn guests_that_say_nothing_hold_up_nobody() {
        let mut silent = Vec::new();
        let cards = met(|port| silent.push(block_on(guest(port, "rank-1"))));
        assert_eq!(cards, vec![vec![vec![0], vec![1], vec![2]]; 3]);
    }

    #[test]
    fn a_guest_that_ends_after_it_was_let_in_ends_nobody_else() {
        let cards = met(|port| {
            block_on(async {
                // Without a farewell, before its card and after it.
                drop(guest(port, "rank-1").await);
                let mut gone = guest(port, "rank-2").await;
                let card = Frame::message(&(2_usize, vec![9_u8])).unwrap();
                gone.sender.send(card).await.unwrap();
            });
        });
        assert_eq!(cards, vec![vec![vec![0], vec![1], vec![2]]; 3]);
    }
}
