//! Rows of keepers that are asked for: those on other hosts, and what lies on disk.

use std::collections::HashMap;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use grampus_core::{Address, JoinString};
use grampus_net::{Frame, Link, NetError, Receiver, connect_to};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::timeout;

use super::layout::Layout;
use super::message::{Card, FromKeeper, KEEPER, Pick, ToKeeper, limits, near};
use super::store::mapped;

/// Rows, or why there are none.
type Answer = Result<Vec<Bytes>, String>;

/// What is asked of one keeper.
pub(super) struct Request {
    picks: Vec<Pick>,
    answer: mpsc::Sender<Answer>,
}

/// A keeper that is asked for rows.
pub(super) struct Far(pub UnboundedSender<Request>);

impl Far {
    /// Asks; the answer comes by itself.
    pub fn ask(&self, picks: Vec<Pick>) -> mpsc::Receiver<Answer> {
        let (answer, found) = mpsc::channel();
        // Where nobody takes it, its end is the answer.
        let _ = self.0.send(Request { picks, answer });
        found
    }
}

/// The answer to a question.
pub(super) fn wait_for(answer: &mpsc::Receiver<Answer>, wait: Duration) -> Answer {
    match answer.recv_timeout(wait) {
        Ok(answer) => answer,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            Err(format!("it did not answer within {} s", wait.as_secs_f64()))
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => Err("it has ended".to_owned()),
    }
}

/// What a keeper has: for each deposit its blocks, with their memory where it can be mapped here, or nothing where it is missing.
pub(super) type Found = HashMap<u64, Option<Vec<(Layout, Option<Bytes>)>>>;

/// Looks up some deposits of a keeper, in memory that both share where they can.
pub(super) async fn visit(
    join: &JoinString,
    card: &Card,
    deposits: Vec<u64>,
    wait: Duration,
) -> Result<(Found, Link), String> {
    let looking = async {
        let mut link = reach(join, card, wait).await.map_err(|error| error.to_string())?;
        let found = look(&mut link, deposits)
            .await
            .map_err(|error| error.to_string())?;
        Ok((found, link))
    };
    let late = || format!("it did not answer within {} s", wait.as_secs_f64());
    timeout(wait, looking).await.unwrap_or_else(|_| Err(late()))
}

async fn reach(join: &JoinString, card: &Card, wait: Duration) -> Result<Link, NetError> {
    let limits = limits(wait);
    // A socket of this host that answers has passed a descriptor: so does memory.
    if let Ok(link) = connect_to(KEEPER, &near(join, &card.hidden), "reader", &limits).await {
        return Ok(link);
    }
    let address = card
        .address
        .parse()
        .unwrap_or_else(|_| Address::Abstract(card.hidden.clone()));
    let join = JoinString {
        address,
        ..join.clone()
    };
    connect_to(KEEPER, &join, "reader", &limits).await
}

async fn look(link: &mut Link, deposits: Vec<u64>) -> Result<Found, crate::DataError> {
    let mut left = deposits.len();
    link.sender
        .send(Frame::message(&ToKeeper::Open { deposits })?)
        .await?;
    let mut found = Found::new();
    let mut blocks = Vec::new();
    while left > 0 {
        let Some(frame) = link.receiver.recv().await? else {
            return Err(crate::DataError::option("keeper", "it has ended"));
        };
        match frame.read()? {
            FromKeeper::Block { layout, .. } => {
                // Mapped at once, so that no descriptor stays open.
                let map = frame.memory.as_ref().map(mapped).transpose()?;
                blocks.push((layout, map.map(Bytes::from_owner)));
            }
            FromKeeper::Opened { deposit } => {
                found.insert(deposit, Some(std::mem::take(&mut blocks)));
                left -= 1;
            }
            FromKeeper::Missing { deposit } => {
                found.insert(deposit, None);
                left -= 1;
            }
            _ => {
                return Err(crate::DataError::option(
                    "keeper",
                    "it said something else than was asked",
                ));
            }
        }
    }
    Ok(found)
}

/// Questions that wait for an answer, and why no more can be asked.
#[derive(Default)]
struct Waiting {
    asks: HashMap<u64, mpsc::Sender<Answer>>,
    lost: Option<String>,
}

impl Waiting {
    /// Lets somebody wait for an answer; where none can come any more, that is the answer, and false.
    fn take(&mut self, ask: u64, answer: mpsc::Sender<Answer>) -> bool {
        match &self.lost {
            Some(why) => {
                // Whoever asked may have given up.
                let _ = answer.send(Err(why.clone()));
                false
            }
            None => {
                self.asks.insert(ask, answer);
                true
            }
        }
    }
}

type Shared = Arc<Mutex<Waiting>>;

fn lock(waiting: &Shared) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks a keeper for rows until nobody wants any. Answers are read apart from what is sent: a keeper that waits to be read must not
/// be waited for.
pub(super) async fn talk(link: Link, mut requests: UnboundedReceiver<Request>) {
    let Link {
        mut sender, receiver, ..
    } = link;
    let waiting = Shared::default();
    let reader = tokio::spawn(listen(receiver, Arc::clone(&waiting)));
    let mut ask = 0;
    while let Some(Request { picks, answer }) = requests.recv().await {
        ask += 1;
        if !lock(&waiting).take(ask, answer) {
            continue;
        }
        let sent = match Frame::message(&ToKeeper::Rows { ask, picks }) {
            Ok(frame) => sender.send(frame).await,
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            fail(&waiting, error.to_string());
        }
    }
    sender.close().await;
    reader.abort();
}

async fn listen(mut receiver: Receiver, waiting: Shared) {
    let why = loop {
        let frame = match receiver.recv().await {
            Ok(Some(frame)) => frame,
            Ok(None) => break "it has ended".to_owned(),
            Err(error) => break error.to_string(),
        };
        match frame.read() {
            Ok(FromKeeper::Rows { ask }) => {
                if let Some(answer) = lock(&waiting).asks.remove(&ask) {
                    // Whoever waited may have given up.
                    let _ = answer.send(Ok(frame.parts));
                }
            }
            Ok(FromKeeper::Refused { why }) => break why,
            Ok(_) => break "it said something else than was asked".to_owned(),
            Err(error) => break error.to_string(),
        }
    };
    fail(&waiting, why);
}

fn fail(waiting: &Shared, why: String) {
    let mut waiting = lock(waiting);
    for (_, answer) in waiting.asks.drain() {
        // Whoever waited may have given up.
        let _ = answer.send(Err(why.clone()));
    }
    waiting.lost.get_or_insert(why);
}
