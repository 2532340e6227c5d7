//! The third wire of two peers: signs of life, and the news of an end.

use std::sync::Arc;

use grampus_net::{NetError, Ready, Wire};

use super::health::{PeerEnd, PeerHealth};
use crate::CollectiveError;

/// Bytes of a kind and two numbers, before the text where there is one.
const HEAD: usize = 16;
/// The longest news that is read.
const LONGEST: usize = 1 << 16;

const BEAT: u8 = 1;
const LEAVE: u8 = 2;
const FAULT: u8 = 3;

/// What came from the peer.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Why the group ended.
    pub cause: Option<CollectiveError>,
    /// What it knows of bytes that moved.
    pub moved: Option<u64>,
    /// How its end of the wire ended.
    pub end: Option<PeerEnd>,
}

/// The wire, with what is on its way in both directions. It is always read, so that it is never full.
pub(crate) struct ControlWire {
    pub health: Arc<PeerHealth>,
    /// The peer's rank and host, for people.
    name: String,
    wire: Wire,
    out: Vec<u8>,
    come: Vec<u8>,
    is_open: bool,
    has_greeted: bool,
}

impl ControlWire {
    pub fn new(health: Arc<PeerHealth>, name: String, wire: Wire) -> Self {
        Self {
            health,
            name,
            wire,
            out: Vec::new(),
            come: Vec::new(),
            is_open: true,
            has_greeted: false,
        }
    }

    /// The peer has said something: it is as far as this member.
    pub fn has_greeted(&self) -> bool {
        self.has_greeted
    }

    /// Shows that this process lives, for which rank, counted from 1, it waits, and what it knows of bytes that moved.
    pub fn beat(&mut self, awaits: u32, moved: u64) {
        // What waits to go out shows it as well.
        if self.out.is_empty() {
            self.say(BEAT, awaits, moved, &[]);
        }
    }

    /// Tells why the group ended.
    pub fn tell(&mut self, cause: &CollectiveError) {
        let text = postcard::to_stdvec(cause).unwrap_or_default();
        self.say(FAULT, text.len() as u32, 0, &text);
    }

    /// What it is to be waited for.
    pub fn wanted(&self) -> Option<(&Wire, Ready)> {
        let want = Ready {
            read: true,
            write: !self.out.is_empty(),
        };
        self.is_open.then_some((&self.wire, want))
    }

    /// Hands on what can be handed on now.
    pub fn push(&mut self) {
        while self.is_open && !self.out.is_empty() {
            match self.wire.send(&self.out) {
                Ok(0) => break,
                Ok(sent) => drop(self.out.drain(..sent)),
                // What the peer said before its end is still to be read, and the end with it.
                Err(_) => self.out.clear(),
            }
        }
        let _ = self.wire.flush();
    }

    /// Reads all that has come.
    pub fn take_in(&mut self) -> News {
        let mut news = News::default();
        let mut some = [0; 1024];
        while self.is_open {
            match self.wire.receive(&mut some) {
                Ok(0) => break,
                Ok(came) => {
                    self.come.extend_from_slice(&some[..came]);
                    self.health.see();
                }
                Err(error) => {
                    self.is_open = false;
                    news.end = Some(match error {
                        NetError::Closed { when: "in order", .. } => PeerEnd::Left,
                        _ => PeerEnd::Cut,
                    });
                }
            }
            while let Some(message) = self.next_message() {
                self.has_greeted = true;
                match message {
                    Ok(Message::Beat { awaits, moved }) => {
                        self.health.set_awaits(awaits);
                        news.moved = news.moved.max(Some(moved));
                    }
                    Ok(Message::Leave) => news.end = Some(PeerEnd::Left),
                    Ok(Message::Fault(cause)) | Err(cause) => news.cause = news.cause.or(Some(cause)),
                }
            }
        }
        news
    }

    /// Says that this member leaves in good order.
    pub fn close(mut self) {
        self.say(LEAVE, 0, 0, &[]);
        self.push();
        self.wire.close();
    }

    fn say(&mut self, kind: u8, number: u32, moved: u64, text: &[u8]) {
        self.out.extend_from_slice(&[kind, 0, 0, 0]);
        self.out.extend_from_slice(&number.to_le_bytes());
        self.out.extend_from_slice(&moved.to_le_bytes());
        self.out.extend_from_slice(text);
    }

    fn next_message(&mut self) -> Option<Result<Message, CollectiveError>> {
        let head: [u8; HEAD] = *self.come.first_chunk()?;
        let number = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let moved = head.last_chunk().map_or(0, |moved| u64::from_le_bytes(*moved));
        let text = if head[0] == FAULT { number as usize } else { 0 };
        if text > LONGEST {
            self.come.clear();
            return Some(Err(self.nonsense()));
        }
        let text = self.come.get(HEAD..HEAD + text)?.to_vec();
        self.come.drain(..HEAD + text.len());
        Some(match head[0] {
            BEAT => Ok(Message::Beat {
                awaits: number,
                moved,
            }),
            LEAVE => Ok(Message::Leave),
            FAULT => postcard::from_bytes(&text)
                .map(Message::Fault)
                .map_err(|_| self.nonsense()),
            _ => Err(self.nonsense()),
        })
    }

    fn nonsense(&self) -> CollectiveError {
        CollectiveError::Disagree(format!(
            "{} sent what makes no sense: run the same version of grampus everywhere",
            self.name
        ))
    }
}

enum Message {
    Beat { awaits: u32, moved: u64 },
    Leave,
    Fault(CollectiveError),
}
