//! Meetings: a member says how far it is, and waits until all others are there, or are known to never come.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::roster::Roster;
use crate::call::{Call, Said, differing};
use crate::shared::word::{Word, publish, reached, sleep_until};
use crate::shared::{Segment, monotonic};
use crate::{CollectiveError, Loss, Settings};

/// How long a sleeper sleeps before it looks at the others' health.
pub(super) const NAP: Duration = Duration::from_millis(20);
/// How often a member without a core of its own lets others run before it sleeps.
const YIELDS: u32 = 16;

/// How long a thread spins that others of its process may need the core of.
const GLANCE: Duration = Duration::from_micros(50);

/// How long to wait at a meeting.
#[derive(Clone, Copy)]
pub(crate) enum Patience<'a> {
    /// Spin a little, then come back later.
    Brief,
    /// Until all are there, or the group ends, or this moment has come; then come back later.
    For(Duration),
    /// Until all are there, or the group ends, or this says that the caller gives up.
    Until(&'a dyn Fn() -> bool),
    /// The same for the group's own thread, beside which the caller goes on computing.
    Aside(&'a dyn Fn() -> bool),
}

impl Patience<'_> {
    /// Whether the time is over for now.
    pub fn is_over(self) -> bool {
        match self {
            Self::Brief => true,
            Self::For(end) => monotonic() >= end,
            Self::Until(_) | Self::Aside(_) => false,
        }
    }

    /// Whether the caller gives up.
    pub fn gives_up(self) -> bool {
        match self {
            Self::Brief | Self::For(_) => false,
            Self::Until(gives_up) | Self::Aside(gives_up) => gives_up(),
        }
    }
}

/// One member's way from meeting to meeting.
pub(crate) struct Pace {
    segment: Arc<Segment>,
    roster: Arc<Roster>,
    settings: Settings,
    /// Members on this host.
    locals: usize,
    /// Members may spin: there is a core for each.
    cores: bool,
    phase: u32,
    /// Members before this one have been seen at the meeting.
    cursor: usize,
    /// When the present wait became long.
    since: Option<Duration>,
    /// The others know for whom this member waits.
    is_known: bool,
}

impl Pace {
    pub fn new(segment: Arc<Segment>, roster: Arc<Roster>, settings: Settings) -> Self {
        segment.expect_beats(settings.silence / 2);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            locals: roster.topology.locals().len(),
            cores: roster.topology.locals().len() <= cores,
            segment,
            roster,
            settings,
            phase: 0,
            cursor: 0,
            since: None,
            is_known: false,
        }
    }

    /// Lets others know for whom this member waits, so that they do not take it for the one that is late.
    pub fn waits_for(&mut self, rank: Option<usize>) {
        if rank.is_some() || self.is_known {
            let block = self.segment.block(self.segment.me());
            let awaits = rank.map_or(0, |rank| rank as u32 + 1);
            block.awaits.store(awaits, Ordering::Relaxed);
            self.is_known = rank.is_some();
        }
    }

    /// Who is late where a rank is waited for: the rank itself, or the one that it said it waits for.
    pub fn culprit(&self, rank: usize, told: Option<usize>) -> usize {
        let is_other = |told: &usize| *told < self.roster.size() && *told != self.roster.me;
        told.filter(is_other).unwrap_or(rank)
    }

    /// The last meeting.
    pub fn phase(&self) -> u32 {
        self.phase
    }

    /// Says that this member has come to the next meeting, and in which call.
    pub fn arrive(&mut self, call: &Call, place: u64) {
        self.phase = self.phase.wrapping_add(1);
        self.cursor = 0;
        self.since = None;
        let block = self.segment.block(self.segment.me());
        let line = &block.lines[self.phase as usize & 1];
        line.say(call, place);
        publish(&line.word, &block.sleepers, self.phase);
    }

    /// Whether all are there; with patience, waits until they are. All have called the same then.
    pub fn all_there(&mut self, call: &Call, patience: Patience<'_>) -> Result<bool, CollectiveError> {
        while self.cursor < self.locals {
            if self.there(self.cursor) || self.spin(patience) {
                self.cursor += 1;
            } else if patience.is_over() {
                return Ok(false);
            } else {
                self.sleep(call, patience)?;
            }
        }
        self.compare()?;
        Ok(true)
    }

    fn there(&self, member: usize) -> bool {
        let line = self.segment.line(member, self.phase);
        reached(Word::load(&line.word, Ordering::Acquire), self.phase)
    }

    /// Spins for the next missing member; true when it came.
    fn spin(&self, patience: Patience<'_>) -> bool {
        if !self.cores {
            for _ in 0..YIELDS {
                std::thread::yield_now();
                if self.there(self.cursor) {
                    return true;
                }
            }
            return false;
        }
        // A member that sleeps is woken late, so whoever has nothing else to do spins longer.
        let length = match patience {
            Patience::Brief | Patience::Aside(_) => GLANCE.min(self.settings.spin),
            Patience::For(_) | Patience::Until(_) => self.settings.spin,
        };
        let end = monotonic() + length;
        loop {
            for _ in 0..64 {
                if self.there(self.cursor) {
                    return true;
                }
                std::hint::spin_loop();
            }
            if monotonic() >= end {
                return false;
            }
        }
    }

    fn sleep(&mut self, call: &Call, patience: Patience<'_>) -> Result<(), CollectiveError> {
        let since = *self.since.get_or_insert_with(monotonic);
        let block = self.segment.block(self.cursor);
        let line = self.segment.line(self.cursor, self.phase);
        sleep_until(&line.word, &block.sleepers, self.phase, NAP);
        self.segment.beat();
        if self.there(self.cursor) {
            self.waits_for(None);
            return Ok(());
        }
        self.check()?;
        if let Some((member, how)) = self.loss(since) {
            return Err(self.end(self.lost(member, how, call)));
        }
        self.waits_for(Some(self.awaited(self.cursor)));
        if patience.gives_up() {
            let rank = self.roster.labels[self.roster.me];
            let during = call.to_string();
            return Err(self.end(CollectiveError::GaveUp { rank, during }));
        }
        Ok(())
    }

    /// The cause that ended the group, if something did.
    pub fn check(&self) -> Result<(), CollectiveError> {
        if !self.segment.fault().is_set() {
            return Ok(());
        }
        // Whoever set it may be writing it right now, or have died over it.
        let end = monotonic() + NAP;
        loop {
            if let Some(cause) = self.segment.fault().get() {
                return Err(cause);
            }
            if monotonic() > end {
                return Err(CollectiveError::Ended {
                    why: "a member died while it told why".into(),
                });
            }
            std::thread::yield_now();
        }
    }

    /// Who of the missing will never come. All of them are looked at: the first may only take its time while another
    /// is gone.
    fn loss(&self, since: Duration) -> Option<(usize, Loss)> {
        (self.cursor..self.locals)
            .filter(|member| !self.there(*member))
            .find_map(|member| Some((member, self.loss_of(member, since)?)))
    }

    fn loss_of(&self, member: usize, since: Duration) -> Option<Loss> {
        let block = self.segment.block(member);
        if block.left.load(Ordering::Acquire) != 0 && !self.there(member) {
            return Some(Loss::Left);
        }
        // It may have come and ended between two looks.
        if !self.segment.lives(member) {
            return (!self.there(member)).then_some(Loss::Died);
        }
        // Where this process stood still itself, the others may have done so too, as when a job is suspended: that time
        // is nobody's fault, and they get some to show that they live.
        let (now, resumed) = (monotonic(), self.segment.resumed());
        let silence = self.settings.silence;
        if self.segment.last_seen(member) > silence && now.saturating_sub(resumed) > silence / 4 {
            return Some(Loss::Silent);
        }
        // It may wait for bytes that cross a slow network, or for another member that does.
        let since = since.max(resumed).max(self.segment.moved_at());
        (now.saturating_sub(since) > self.settings.deadline).then_some(Loss::Late)
    }

    /// That all members of this host are there to come to the meeting that follows what other hosts send.
    pub fn check_members(&self, call: &Call) -> Result<(), CollectiveError> {
        for member in 0..self.locals {
            let left = self.segment.block(member).left.load(Ordering::Acquire) != 0;
            if left || !self.segment.lives(member) {
                let how = if left { Loss::Left } else { Loss::Died };
                return Err(self.end(self.lost(member, how, call)));
            }
        }
        Ok(())
    }

    /// Whom this member waits for where another of this host has not come.
    fn awaited(&self, member: usize) -> usize {
        let told = self.segment.block(member).awaits.load(Ordering::Relaxed) as usize;
        self.culprit(self.roster.topology.locals()[member], told.checked_sub(1))
    }

    fn lost(&self, member: usize, how: Loss, call: &Call) -> CollectiveError {
        let topology = &self.roster.topology;
        let rank = match how {
            Loss::Late => self.awaited(member),
            _ => topology.locals()[member],
        };
        // Of a member of another host its neighbour says that it lives.
        let seen = topology.locals().contains(&rank).then(|| topology.seat(rank));
        CollectiveError::PeerLost {
            rank: self.roster.labels[rank],
            host: self.roster.hosts[rank].clone(),
            last_seen: seen.map_or(Duration::ZERO, |seat| self.segment.last_seen(seat)),
            how,
            during: call.to_string(),
        }
    }

    /// Ends the group for all members of this host; the cause that they all get.
    pub fn end(&self, cause: CollectiveError) -> CollectiveError {
        if self.segment.end(&cause) {
            cause
        } else {
            self.check().err().unwrap_or(cause)
        }
    }

    fn compare(&self) -> Result<(), CollectiveError> {
        let mine = self.segment.line(self.segment.me(), self.phase);
        let equal = (0..self.locals).all(|member| self.segment.line(member, self.phase).says(mine));
        if equal {
            return Ok(());
        }
        let said = |(member, rank): (usize, &usize)| {
            let call = self.segment.line(member, self.phase).said()?;
            Some(Said {
                rank: self.roster.labels[*rank],
                call,
            })
        };
        let calls = self.roster.topology.locals().iter().enumerate().filter_map(said);
        match differing(calls) {
            None => Ok(()),
            Some((first, second)) => Err(self.end(CollectiveError::Mismatch { first, second })),
        }
    }
}
