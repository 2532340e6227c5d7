//! How ranks of `grampus run` come to know each other: each brings a card, and gets those of all.

use std::io;
use std::time::Duration;

use grampus_core::{Address, JobId, JobKey, JoinString};
use grampus_net::{Frame, Limits, Link, Listener, NetError, connect};

use super::RANKS_KEY;

/// How long all ranks may take to meet.
const MEET_WITHIN: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_millis(50);

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
    /// Somebody did not come.
    #[error("the {0} ranks did not meet within {MEET_WITHIN:?}: look for the error of one that ended")]
    Late(usize),
}

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

    /// The cards of all ranks, in order, under a job and key that they share.
    pub fn meet(&self, job: JobId, key: JobKey, card: Vec<u8>) -> Result<Vec<Vec<u8>>, MeetingError> {
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
                0 => self.host(&join, card).await,
                _ => self.visit(&join, card).await,
            }
        };
        let met = runtime.block_on(async { tokio::time::timeout(MEET_WITHIN, meeting).await });
        Ok(met.map_err(|_| MeetingError::Late(self.addresses.len()))??)
    }

    /// Collects the cards of all ranks, and gives all of them to each.
    async fn host(&self, join: &JoinString, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, NetError> {
        let (host, port) = &self.master;
        let address = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
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
    async fn visit(&self, join: &JoinString, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, NetError> {
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
}
