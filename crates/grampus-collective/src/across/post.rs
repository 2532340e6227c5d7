//! The connections of one member with ranks of other hosts, driven by whoever drives the call.

use std::collections::VecDeque;
use std::time::Duration;

use grampus_net::{NetError, Ready, Wire, wait_ready};

use super::head::{Head, Kind};
use crate::CollectiveError;
use crate::call::Call;
use crate::exchange::Place;
use crate::shared::monotonic;

/// How long after a connection ended its peer may still be telling why on another.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// The streams with each peer. Sums never wait behind what has yet to be summed, and the news of an end behind
/// nothing.
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
    /// It says why the group ended.
    Told(CollectiveError),
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

enum Out {
    Owned(Vec<u8>),
    Lent(Place, usize),
}

struct Lane {
    wire: Wire,
    control: bool,
    out: VecDeque<(Out, usize)>,
    /// The wire has handed all that it took to the kernel.
    flushed: bool,
    head: [u8; Head::BYTES],
    /// Bytes of the head that have come.
    begun: usize,
    /// A head whose bytes have not all come, and how many have.
    current: Option<(Head, usize)>,
    expect: Option<Expect>,
    /// Bytes that have come of what was expected last, and whether it is all.
    got: usize,
    whole: bool,
    /// What is told on the control stream.
    told: Vec<u8>,
    /// When the other end was seen to be closed, and whether in good order.
    closed: Option<(Duration, bool)>,
}

struct Peer {
    rank: usize,
    lanes: [Lane; 3],
    seen: Duration,
}

/// All connections of a member; none where the group is on one host.
pub(crate) struct Post {
    peers: Vec<Peer>,
}

impl Post {
    /// `wires` are those of each rank, one per stream.
    pub fn new(wires: Vec<(usize, [Wire; 3])>) -> Self {
        let lane = |(stream, wire)| Lane {
            wire,
            control: stream == Stream::Control,
            out: VecDeque::new(),
            flushed: true,
            head: [0; Head::BYTES],
            begun: 0,
            current: None,
            expect: None,
            got: 0,
            whole: true,
            told: Vec::new(),
            closed: None,
        };
        let peer = |(rank, wires): (usize, [Wire; 3])| Peer {
            rank,
            lanes: pair(wires).map(lane),
            seen: monotonic(),
        };
        Self {
            peers: wires.into_iter().map(peer).collect(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
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
            for lane in &mut peer.lanes {
                let came = lane.take_in().map_err(|fault| fault.of(peer.rank))?;
                if came {
                    peer.seen = monotonic();
                }
                moved |= came | lane.give_out().map_err(|fault| fault.of(peer.rank))?;
                if let Some((at, left)) = lane.closed
                    && lane.is_busy()
                    && monotonic().saturating_sub(at) > LAST_WORDS
                {
                    return Err(Trouble::Gone {
                        rank: peer.rank,
                        left,
                    });
                }
            }
        }
        Ok(moved)
    }

    /// Waits until something can be moved, at most `limit`.
    pub fn wait(&self, limit: Duration) -> Result<(), Trouble> {
        let want = |lane: &Lane| Ready {
            // A head that nobody asked for yet waits; to look for more would be to look all the time.
            read: lane.closed.is_none() && (lane.current.is_none() || lane.expect.is_some()),
            write: lane.closed.is_none() && !lane.out.is_empty(),
        };
        let wires: Vec<(&Wire, Ready)> = self
            .peers
            .iter()
            .flat_map(|peer| peer.lanes.iter().map(|lane| (&lane.wire, want(lane))))
            .collect();
        wait_ready(&wires, limit).map_err(Trouble::System)?;
        Ok(())
    }

    /// The peer that something is still expected from, and how long ago it gave a sign of life: the one that has been
    /// silent for longest.
    pub fn awaited(&self) -> Option<(usize, Duration)> {
        let now = monotonic();
        let busy = |peer: &&Peer| peer.lanes.iter().any(Lane::is_busy);
        let silence = |peer: &Peer| (peer.rank, now.saturating_sub(peer.seen));
        self.peers
            .iter()
            .filter(busy)
            .map(silence)
            .max_by_key(|(_, length)| *length)
    }

    /// How long ago a peer gave a sign of life.
    pub fn last_seen(&self, rank: usize) -> Duration {
        let peer = self.peers.iter().find(|peer| peer.rank == rank);
        peer.map_or(Duration::ZERO, |peer| monotonic().saturating_sub(peer.seen))
    }

    /// Takes all peers for just seen.
    pub fn forgive(&mut self) {
        let now = monotonic();
        self.peers.iter_mut().for_each(|peer| peer.seen = now);
    }

    /// Shows all peers that this process lives, with the next [`Post::pump`].
    pub fn beat(&mut self, call: &Call) {
        for peer in &mut self.peers {
            let control = &mut peer.lanes[Stream::Control as usize];
            // Whoever does not read needs no more of it.
            if control.out.is_empty() {
                let head = Head {
                    kind: Kind::Beat,
                    call: *call,
                    len: 0,
                };
                control.out.push_back((Out::Owned(head.encode().to_vec()), 0));
            }
        }
    }

    /// Forgets memory that was lent, and tells all peers why the group ended.
    pub fn abandon(&mut self, call: &Call, cause: &CollectiveError) {
        let text = postcard::to_stdvec(cause).unwrap_or_default();
        let head = Head {
            kind: Kind::Fault,
            call: *call,
            len: text.len() as u64,
        };
        for peer in &mut self.peers {
            for lane in &mut peer.lanes {
                lane.out.retain(|(out, _)| matches!(out, Out::Owned(_)));
                lane.expect = None;
            }
            let control = &mut peer.lanes[Stream::Control as usize];
            control
                .out
                .push_back((Out::Owned([&head.encode()[..], &text].concat()), 0));
            // Where it does not fit into the socket, nobody listens; the end of the connection tells as much.
            let _ = control.give_out();
        }
    }

    fn lane(&mut self, rank: usize, stream: Stream) -> &mut Lane {
        let at = self.peers.iter().position(|peer| peer.rank == rank).unwrap_or(0);
        &mut self.peers[at].lanes[stream as usize]
    }
}

/// Trouble before it is known with whom.
enum Fault {
    Net(NetError),
    Differs(Call),
    Told(CollectiveError),
    Garbage,
}

impl Fault {
    fn of(self, rank: usize) -> Trouble {
        match self {
            Self::Net(_) => Trouble::Gone { rank, left: false },
            Self::Differs(call) => Trouble::Differs { rank, call },
            Self::Told(cause) => Trouble::Told(cause),
            Self::Garbage => Trouble::Garbage { rank },
        }
    }
}

impl From<NetError> for Fault {
    fn from(error: NetError) -> Self {
        Self::Net(error)
    }
}

impl Lane {
    /// Something is still to come or to go.
    fn is_busy(&self) -> bool {
        // A sign of life that does not get through to a peer that has left is no matter.
        !self.control && (!self.whole || !self.out.is_empty() || !self.flushed)
    }

    fn take_in(&mut self) -> Result<bool, Fault> {
        let mut moved = false;
        while self.closed.is_none() {
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
        let Some((head, done)) = self.current else {
            let came = self.wire.receive(&mut self.head[self.begun..])?;
            self.begun += came;
            if self.begun == Head::BYTES {
                self.begun = 0;
                self.begin(Head::decode(&self.head).ok_or(Fault::Garbage)?)?;
            }
            return Ok(came > 0);
        };
        if head.kind == Kind::Fault {
            return self.take_cause(head, done);
        }
        let Some(expect) = &self.expect else {
            return Ok(false);
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
        self.got += came;
        self.current = Some((head, done + came));
        self.finish();
        Ok(came > 0)
    }

    fn begin(&mut self, head: Head) -> Result<(), Fault> {
        match head.kind {
            Kind::Beat => {}
            Kind::Fault if head.len > 1 << 16 => return Err(Fault::Garbage),
            _ => self.current = Some((head, 0)),
        }
        Ok(())
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

    fn take_cause(&mut self, head: Head, done: usize) -> Result<bool, Fault> {
        self.told.resize(head.len as usize, 0);
        let came = self.wire.receive(&mut self.told[done..])?;
        self.current = Some((head, done + came));
        if done + came == head.len as usize {
            return Err(postcard::from_bytes(&self.told).map_or(Fault::Garbage, Fault::Told));
        }
        Ok(came > 0)
    }

    fn give_out(&mut self) -> Result<bool, Fault> {
        let mut moved = false;
        if self.closed.is_some() {
            return Ok(false);
        }
        while let Some((out, done)) = self.out.front_mut() {
            let bytes = match out {
                Out::Owned(bytes) => &bytes[*done..],
                // SAFETY: whoever sends lends the memory until it is sent or abandoned.
                Out::Lent(from, len) => unsafe { std::slice::from_raw_parts(from.add(*done), *len - *done) },
            };
            let sent = match self.wire.send(bytes) {
                Ok(0) => return Ok(moved),
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
        for lane in self.peers.drain(..).flat_map(|peer| peer.lanes) {
            lane.wire.close();
        }
    }
}

/// The wires with their streams.
fn pair([bulk, sums, control]: [Wire; 3]) -> [(Stream, Wire); 3] {
    [
        (Stream::Bulk, bulk),
        (Stream::Sums, sums),
        (Stream::Control, control),
    ]
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
