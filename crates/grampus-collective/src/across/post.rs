//! The connections of one member with ranks of other hosts, driven by whoever drives the call.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use grampus_net::{NetError, Ready, Wire, wait_ready};

use super::head::{Head, Kind};
use super::health::{PeerEnd, PeerHealth};
use crate::call::Call;
use crate::exchange::Place;
use crate::shared::monotonic;

/// How long after a connection ended its peer may still be telling why on another.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The streams with each peer. Sums never wait behind what has yet to be summed, and signs of life and the news of an end
/// behind nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Bulk,
    Sums,
    Control,
}

impl Stream {
    pub const ALL: [Self; 3] = [Self::Bulk, Self::Sums, Self::Control];
}

/// What went wrong with a peer, by its rank.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The connection ended; in good order or not.
    Gone { rank: usize, left: bool },
    /// It called something else.
    Differs { rank: usize, call: Call },
    /// It sent what makes no sense.
    Garbage { rank: usize },
    /// The wires cannot be waited for.
    System(NetError),
}

/// What is to come next on a stream.
pub(crate) struct Expect {
    pub kind: Kind,
    pub call: Call,
    /// Where its bytes go, one after the other. Fewer may come, as many as the head says.
    pub into: Vec<(Place, usize)>,
}

/// A peer without which the call does not get on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub rank: usize,
    /// How long ago it gave a sign of life.
    pub silence: Duration,
    /// How long no byte of the call has moved between it and this member.
    pub length: Duration,
}

enum Out {
    Owned(Vec<u8>),
    Lent(Place, usize),
}

struct Lane {
    wire: Wire,
    out: VecDeque<(Out, usize)>,
    /// The wire has handed all that it took to the kernel.
    flushed: bool,
    /// There may be something to read, or room to write: not to be asked again before the kernel says so.
    ready: Ready,
    head: [u8; Head::BYTES],
    /// Bytes of the head that have come.
    begun: usize,
    /// A head whose bytes have not all come, and how many have.
    current: Option<(Head, usize)>,
    expect: Option<Expect>,
    /// Bytes that have come of what was expected last, and whether it is all.
    got: usize,
    whole: bool,
    /// When the other end was seen to be closed, and whether in good order.
    closed: Option<(Duration, bool)>,
}

struct Peer {
    health: Arc<PeerHealth>,
    lanes: [Lane; 2],
    /// Since when the call waits for it; nothing where bytes have moved since the last look.
    since: Option<Duration>,
}

/// The connections of a member that carry the bytes of calls; none where the group is on one host.
pub(crate) struct Post {
    peers: Vec<Peer>,
}

impl Post {
    /// `wires` are those of each peer for bulk and for sums.
    pub fn new(wires: Vec<(Arc<PeerHealth>, [Wire; 2])>) -> Self {
        let lane = |wire| Lane {
            wire,
            out: VecDeque::new(),
            flushed: true,
            ready: Ready::BOTH,
            head: [0; Head::BYTES],
            begun: 0,
            current: None,
            expect: None,
            got: 0,
            whole: true,
            closed: None,
        };
        let peer = |(health, wires): (Arc<PeerHealth>, [Wire; 2])| Peer {
            health,
            lanes: wires.map(lane),
            since: None,
        };
        Self {
            peers: wires.into_iter().map(peer).collect(),
        }
    }

    /// Announces a message; its bytes follow with [`Post::send`].
    pub fn announce(&mut self, rank: usize, stream: Stream, head: &Head) {
        let lane = self.lane(rank, stream);
        lane.out.push_back((Out::Owned(head.encode().to_vec()), 0));
    }

    /// Sends bytes that stay valid until [`Post::is_quiet`] or [`Post::abandon`].
    pub fn send(&mut self, rank: usize, stream: Stream, from: Place, len: usize) {
        if len > 0 {
            self.lane(rank, stream).out.push_back((Out::Lent(from, len), 0));
        }
    }

    /// Says what comes next on a stream on which all that was expected has come.
    pub fn expect(&mut self, rank: usize, stream: Stream, expect: Expect) {
        let lane = self.lane(rank, stream);
        debug_assert!(lane.whole && lane.expect.is_none());
        lane.expect = Some(expect);
        lane.ready.read = true;
        lane.got = 0;
        lane.whole = false;
    }

    /// Bytes that have come of what was expected last.
    pub fn got(&mut self, rank: usize, stream: Stream) -> usize {
        self.lane(rank, stream).got
    }

    /// Everything was sent and everything has come.
    pub fn is_quiet(&self) -> bool {
        self.peers
            .iter()
            .all(|peer| peer.lanes.iter().all(|lane| !lane.is_busy()))
    }

    /// Moves what can be moved now; true where something moved.
    pub fn pump(&mut self) -> Result<bool, Trouble> {
        let mut moved = false;
        for peer in &mut self.peers {
            if peer.pump().map_err(|fault| fault.of(peer.health.rank))? {
                peer.since = None;
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Waits until something can be moved, at most `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<(), Trouble> {
        let lanes = || self.peers.iter().flat_map(|peer| &peer.lanes);
        let wanted: Vec<(&Wire, Ready)> = lanes()
            .filter(|lane| lane.want().any())
            .map(|lane| (&lane.wire, lane.want()))
            .collect();
        let found = wait_ready(&wanted, limit).map_err(Trouble::System)?;
        let lanes = self.peers.iter_mut().flat_map(|peer| &mut peer.lanes);
        for (lane, found) in lanes.filter(|lane| lane.want().any()).zip(found) {
            // An end shows as something to read, whatever was asked.
            lane.ready.read |= found.read;
            lane.ready.write |= found.any();
        }
        Ok(())
    }

    /// The peers without which the call does not get on.
    pub fn awaited(&mut self) -> impl Iterator<Item = Waiting> {
        let now = monotonic();
        let busy = |peer: &&mut Peer| peer.lanes.iter().any(Lane::is_busy);
        self.peers.iter_mut().filter(busy).map(move |peer| Waiting {
            rank: peer.health.rank,
            silence: peer.health.last_seen(),
            length: now.saturating_sub(*peer.since.get_or_insert(now)),
        })
    }

    /// How long ago a peer gave a sign of life.
    pub fn last_seen(&self, rank: usize) -> Duration {
        self.health(rank).map_or(Duration::ZERO, PeerHealth::last_seen)
    }

    /// The rank that a peer said it waits for.
    pub fn awaited_by(&self, rank: usize) -> Option<usize> {
        self.health(rank)?.awaits()
    }

    /// Forgets memory that was lent.
    pub fn abandon(&mut self) {
        for lane in self.peers.iter_mut().flat_map(|peer| &mut peer.lanes) {
            lane.out.retain(|(out, _)| matches!(out, Out::Owned(_)));
            lane.expect = None;
        }
    }

    /// Leaves all peers in good order.
    pub fn close(&mut self) {
        for lane in self.peers.drain(..).flat_map(|peer| peer.lanes) {
            lane.wire.close();
        }
    }

    fn health(&self, rank: usize) -> Option<&PeerHealth> {
        let peer = self.peers.iter().find(|peer| peer.health.rank == rank);
        peer.map(|peer| &*peer.health)
    }

    fn lane(&mut self, rank: usize, stream: Stream) -> &mut Lane {
        let at = self
            .peers
            .iter()
            .position(|peer| peer.health.rank == rank)
            .unwrap_or(0);
        &mut self.peers[at].lanes[stream as usize]
    }
}

/// Trouble before it is known with whom.
enum Fault {
    Net(NetError),
    Differs(Call),
    Gone { left: bool },
    Garbage,
}

impl Fault {
    fn of(self, rank: usize) -> Trouble {
        match self {
            Self::Net(_) => Trouble::Gone { rank, left: false },
            Self::Gone { left } => Trouble::Gone { rank, left },
            Self::Differs(call) => Trouble::Differs { rank, call },
            Self::Garbage => Trouble::Garbage { rank },
        }
    }
}

impl From<NetError> for Fault {
    fn from(error: NetError) -> Self {
        Self::Net(error)
    }
}

impl Peer {
    fn pump(&mut self) -> Result<bool, Fault> {
        let mut moved = false;
        for lane in &mut self.lanes {
            if lane.take_in()? {
                self.health.see();
                moved = true;
            }
            moved |= lane.give_out()?;
            let Some((at, left)) = lane.closed.filter(|_| lane.is_busy()) else {
                continue;
            };
            // What it tells is heard before its end shows.
            let end = self.health.end();
            if end.is_some() || monotonic().saturating_sub(at) > LAST_WORDS {
                let left = left || end == Some(PeerEnd::Left);
                return Err(Fault::Gone { left });
            }
        }
        Ok(moved)
    }
}

impl Lane {
    /// Something is still to come or to go.
    fn is_busy(&self) -> bool {
        !self.whole || !self.out.is_empty() || !self.flushed
    }

    /// What the kernel is to be asked for. What nobody expects stays there.
    fn want(&self) -> Ready {
        let is_open = self.closed.is_none();
        Ready {
            read: is_open && self.expect.is_some(),
            write: is_open && (!self.out.is_empty() || !self.flushed),
        }
    }

    fn take_in(&mut self) -> Result<bool, Fault> {
        let mut moved = false;
        while self.closed.is_none() && self.ready.read {
            match self.take_some() {
                Ok(true) => moved = true,
                Ok(false) => break,
                Err(fault) => self.close(fault)?,
            }
        }
        Ok(moved)
    }

    /// A peer may leave when it has all that it needs; whether this side has, too, is for [`Post::pump`] to say.
    fn close(&mut self, fault: Fault) -> Result<(), Fault> {
        match fault {
            Fault::Net(NetError::Closed { when, .. }) => {
                self.closed = Some((monotonic(), when == "in order"));
                Ok(())
            }
            fault => Err(fault),
        }
    }

    /// One read; false where nothing is there, or nobody asked for it.
    fn take_some(&mut self) -> Result<bool, Fault> {
        let Some(expect) = &self.expect else {
            return Ok(false);
        };
        let Some((head, done)) = self.current else {
            let came = self.wire.receive(&mut self.head[self.begun..])?;
            self.ready.read = came > 0;
            self.begun += came;
            if self.begun == Head::BYTES {
                self.begun = 0;
                self.current = Some((Head::decode(&self.head).ok_or(Fault::Garbage)?, 0));
            }
            return Ok(came > 0);
        };
        if done == 0 && (expect.kind != head.kind || !expect.call.agrees(&head.call)) {
            return Err(Fault::Differs(head.call));
        }
        if head.len == 0 {
            self.finish();
            return Ok(true);
        }
        let Some((at, room)) = place(&expect.into, done) else {
            return Err(Fault::Garbage);
        };
        let room = room.min(head.len as usize - done);
        // SAFETY: whoever expects lends the memory until it has come or is abandoned.
        let into = unsafe { std::slice::from_raw_parts_mut(at, room) };
        let came = self.wire.receive(into)?;
        self.ready.read = came > 0;
        self.got += came;
        self.current = Some((head, done + came));
        self.finish();
        Ok(came > 0)
    }

    fn finish(&mut self) {
        if let Some((head, done)) = self.current
            && done as u64 == head.len
            && self.expect.is_some()
        {
            self.current = None;
            self.expect = None;
            self.whole = true;
        }
    }

    fn give_out(&mut self) -> Result<bool, Fault> {
        let mut moved = false;
        if self.closed.is_some() || !self.ready.write || self.out.is_empty() && self.flushed {
            return Ok(false);
        }
        while let Some((out, done)) = self.out.front_mut() {
            let bytes = match out {
                Out::Owned(bytes) => &bytes[*done..],
                // SAFETY: whoever sends lends the memory until it is sent or abandoned.
                Out::Lent(from, len) => unsafe { std::slice::from_raw_parts(from.add(*done), *len - *done) },
            };
            let sent = match self.wire.send(bytes) {
                Ok(0) => {
                    self.ready.write = false;
                    self.flushed = false;
                    return Ok(moved);
                }
                Ok(sent) => sent,
                Err(error) => return self.close(error.into()).map(|()| moved),
            };
            moved = true;
            *done += sent;
            if sent == bytes.len() {
                self.out.pop_front();
            }
        }
        match self.wire.flush() {
            Ok(flushed) => {
                self.ready.write = flushed;
                let before = std::mem::replace(&mut self.flushed, flushed);
                Ok(moved || before != flushed)
            }
            Err(error) => self.close(error.into()).map(|()| moved),
        }
    }
}

impl Drop for Post {
    /// Peers are told that this member left in good order.
    fn drop(&mut self) {
        self.close();
    }
}

/// Where byte `done` of a message goes, and how many fit there.
fn place(into: &[(Place, usize)], done: usize) -> Option<(*mut u8, usize)> {
    let mut before = 0;
    for (start, len) in into {
        if done < before + len {
            return Some((start.add(done - before), before + len - done));
        }
        before += len;
    }
    None
}
