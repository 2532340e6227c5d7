//! Drives one call at a time from meeting to meeting.

use std::sync::Arc;
use std::time::Duration;

use grampus_net::Bell;

use super::mirror;
use super::pace::{NAP, Pace, Patience};
use super::roster::Roster;
use crate::across::{Post, Trouble, Waiting};
use crate::call::{Call, Said};
use crate::exchange::{Deck, Exchange, Posted, Step};
use crate::shared::{Segment, monotonic};
use crate::{CollectiveError, Loss, Settings};

/// How often the connections are looked at before the thread sleeps over them.
const GLANCES: u32 = 16;

/// Every so many meetings a member shows that it lives, also where it never has to sleep.
const BEAT: u32 = 64;

/// A call on its way.
pub(crate) struct Running<E> {
    pub exchange: E,
    pub call: Call,
    /// Where the buffer lies in the arena, counted from 1; 0 for a private one.
    pub place: u64,
    pub waits: Waits,
}

/// What a call waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Waits {
    #[default]
    Nothing,
    /// The slots of other hosts, then the members of this one.
    Slots,
    /// The members of this host.
    Members,
    /// Anything from other hosts.
    Post,
}

/// The state between calls.
pub(crate) struct Runner {
    segment: Arc<Segment>,
    roster: Arc<Roster>,
    settings: Settings,
    pace: Pace,
    post: Post,
    posted: Posted,
    turn: usize,
    calls: u64,
    ended: Option<CollectiveError>,
    /// When the health of those that are waited for was last looked at.
    looked: Duration,
    /// When others were last told that bytes move.
    told: Duration,
    /// Rung when the group has ended; `None` on one host.
    bell: Option<Arc<Bell>>,
}

impl Runner {
    pub fn new(
        segment: Arc<Segment>,
        roster: Arc<Roster>,
        post: Post,
        bell: Option<Arc<Bell>>,
        settings: Settings,
    ) -> Self {
        Self {
            pace: Pace::new(Arc::clone(&segment), Arc::clone(&roster), settings),
            segment,
            roster,
            settings,
            post,
            posted: Posted::NOTHING,
            turn: 0,
            calls: 0,
            ended: None,
            looked: Duration::ZERO,
            told: Duration::ZERO,
            bell,
        }
    }

    /// Goes on with a call; true when it is through. After an error the group has ended.
    pub fn drive<E: Exchange>(
        &mut self,
        running: &mut Running<E>,
        patience: Patience<'_>,
    ) -> Result<bool, CollectiveError> {
        match &self.ended {
            None => {}
            Some(ended @ CollectiveError::Ended { .. }) => return Err(ended.clone()),
            Some(why) => return Err(CollectiveError::Ended { why: why.to_string() }),
        }
        running.call.number = self.calls;
        let driven = self.go_on(running, patience);
        match &driven {
            Ok(true) => self.calls += 1,
            Ok(false) => {}
            Err(error) => {
                self.end(error.clone());
                self.detach(running);
            }
        }
        driven
    }

    /// A buffer that others write to belongs to the caller again, and may be used for something else.
    fn detach<E>(&self, running: &Running<E>) {
        let bytes = running.call.count as usize * running.call.dtype.size();
        if let (Some(offset), Ok(arena)) = (running.place.checked_sub(1), self.segment.arena()) {
            arena.detach(offset as usize, bytes);
        }
    }

    /// Leaves the group, and the call that is half way: its memory belongs to the caller again.
    pub fn leave<E>(&mut self, half_way: Option<&Running<E>>) {
        self.ended.get_or_insert_with(closed);
        self.post.abandon();
        if let Some(running) = half_way {
            self.detach(running);
        }
        self.post.close();
    }

    fn end(&mut self, error: CollectiveError) {
        // Before the caller frees its memory.
        self.post.abandon();
        if let Some(bell) = &self.bell {
            bell.ring();
        }
        self.ended = Some(error);
    }

    fn go_on<E: Exchange>(
        &mut self,
        running: &mut Running<E>,
        patience: Patience<'_>,
    ) -> Result<bool, CollectiveError> {
        loop {
            if !self.is_there(running, patience)? {
                return Ok(false);
            }
            self.pace.waits_for(None);
            if running.waits == Waits::Slots {
                self.arrive(running);
                continue;
            }
            running.waits = Waits::Nothing;
            let Running {
                exchange,
                call,
                place,
                ..
            } = &mut *running;
            let step = match exchange.step(&mut self.deck(call, *place > 0)) {
                Ok(step) => step,
                Err(error) => return Err(self.pace.end(error)),
            };
            // A group that has ended must not look as if this member waited for the others. A call that is through
            // stays so: it may be through for them, too.
            if step != Step::Done {
                self.pace.check()?;
            }
            match step {
                Step::Done => return Ok(true),
                Step::Meet if !self.roster.topology.is_one_host() => {
                    mirror::begin(&mut self.deck(&running.call, running.place > 0));
                    // Whatever meets next without posting anew has nothing to send.
                    self.posted = Posted::NOTHING;
                    running.waits = Waits::Slots;
                }
                Step::Meet | Step::MeetHere => self.arrive(running),
                Step::Post => running.waits = Waits::Post,
            }
        }
    }

    fn arrive<E>(&mut self, running: &mut Running<E>) {
        if self.pace.phase().is_multiple_of(BEAT) {
            self.segment.beat();
        }
        self.pace.arrive(&running.call, running.place);
        running.waits = Waits::Members;
    }

    fn deck<'a>(&'a mut self, call: &'a Call, is_placed: bool) -> Deck<'a> {
        Deck {
            segment: &self.segment,
            topology: &self.roster.topology,
            post: &mut self.post,
            is_placed,
            call,
            ranks: self.roster.size(),
            me: self.roster.me,
            flat: self.settings.flat,
            phase: self.pace.phase(),
            turn: &mut self.turn,
            posted: &mut self.posted,
        }
    }

    fn is_there<E>(&mut self, running: &Running<E>, patience: Patience<'_>) -> Result<bool, CollectiveError> {
        match running.waits {
            Waits::Nothing => Ok(true),
            Waits::Members => self.pace.all_there(&running.call, patience),
            Waits::Slots | Waits::Post => self.pump(running, patience),
        }
    }

    /// Moves bytes between hosts until what the call waits for has happened.
    fn pump<E>(&mut self, running: &Running<E>, patience: Patience<'_>) -> Result<bool, CollectiveError> {
        let call = &running.call;
        let mut glances = 0;
        loop {
            let moved = self.post.pump().map_err(|trouble| self.trouble(trouble, call))?;
            if moved {
                self.tell_moved();
            }
            let there = match running.waits {
                Waits::Slots => self.post.is_quiet(),
                _ => moved,
            };
            if there {
                return Ok(true);
            }
            if moved {
                continue;
            }
            if glances < GLANCES {
                glances += 1;
                self.post
                    .wait(Duration::ZERO)
                    .map_err(|trouble| self.trouble(trouble, call))?;
                std::thread::yield_now();
            } else if patience.is_over() {
                return Ok(false);
            } else {
                self.wait(call, patience)?;
            }
        }
    }

    /// Tells those who wait for this member that it gets on. Not at every byte, which would cost more than the byte.
    fn tell_moved(&mut self) {
        let now = monotonic();
        if now.saturating_sub(self.told) >= NAP {
            self.told = now;
            self.segment.count_moved();
        }
    }

    fn wait(&mut self, call: &Call, patience: Patience<'_>) -> Result<(), CollectiveError> {
        self.post
            .wait(NAP)
            .map_err(|trouble| self.trouble(trouble, call))?;
        let now = monotonic();
        if now.saturating_sub(self.looked) < NAP {
            return Ok(());
        }
        // Not on every wake-up: these looks cost more than the bytes of a short message.
        self.looked = now;
        self.segment.beat();
        self.pace.check()?;
        self.pace.check_members(call)?;
        self.check_peers(now, call)?;
        if patience.gives_up() {
            let rank = self.roster.labels[self.roster.me];
            let during = call.to_string();
            return Err(self.pace.end(CollectiveError::GaveUp { rank, during }));
        }
        Ok(())
    }

    /// Checks that the ranks of other hosts that the call needs live and are not late.
    fn check_peers(&mut self, now: Duration, call: &Call) -> Result<(), CollectiveError> {
        let resumed = now.saturating_sub(self.segment.resumed());
        let moved = now.saturating_sub(self.segment.moved_at());
        let Settings {
            silence, deadline, ..
        } = self.settings;
        // Where this process stood still itself, what came meanwhile is read first.
        let is_silent = |peer: &Waiting| peer.silence > silence && resumed > silence / 4;
        let awaited: Vec<Waiting> = self.post.awaited().collect();
        let silent = awaited.iter().filter(|peer| is_silent(peer));
        if let Some(peer) = silent.max_by_key(|peer| peer.silence) {
            return Err(self.pace.end(self.lost(peer.rank, Loss::Silent, call)));
        }
        let Some(slowest) = awaited.iter().max_by_key(|peer| peer.length) else {
            return Ok(());
        };
        // A peer that waits itself is not the one to look at.
        let told = self.post.awaited_by(slowest.rank);
        let rank = self.pace.culprit(slowest.rank, told);
        if slowest.length.min(resumed).min(moved) > deadline {
            return Err(self.pace.end(self.lost(rank, Loss::Late, call)));
        }
        self.pace.waits_for(Some(rank));
        Ok(())
    }

    fn lost(&self, rank: usize, how: Loss, call: &Call) -> CollectiveError {
        CollectiveError::PeerLost {
            rank: self.roster.labels[rank],
            host: self.roster.hosts[rank].clone(),
            last_seen: self.post.last_seen(rank),
            how,
            during: call.to_string(),
        }
    }

    /// The cause that all members get.
    fn trouble(&self, trouble: Trouble, call: &Call) -> CollectiveError {
        self.pace.end(self.explain(trouble, call))
    }

    fn explain(&self, trouble: Trouble, call: &Call) -> CollectiveError {
        match trouble {
            Trouble::Gone { rank, left } => {
                let how = if left { Loss::Left } else { Loss::Cut };
                self.lost(rank, how, call)
            }
            Trouble::Differs { rank, call: theirs } => {
                let said = |rank: usize, call: Call| Said {
                    rank: self.roster.labels[rank],
                    call,
                };
                let mut both = [said(self.roster.me, *call), said(rank, theirs)];
                both.sort_by_key(|said| said.rank);
                let [first, second] = both;
                CollectiveError::Mismatch { first, second }
            }
            Trouble::Garbage { rank } => CollectiveError::Disagree(format!(
                "rank {} sent what makes no sense: run the same version of grampus everywhere",
                self.roster.labels[rank]
            )),
            Trouble::System(error) => error.into(),
        }
    }
}

/// Why calls fail after the group was left.
pub(super) fn closed() -> CollectiveError {
    CollectiveError::Ended {
        why: "this member closed it".into(),
    }
}
