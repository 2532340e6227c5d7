//! Drives one call at a time from meeting to meeting.

use std::sync::Arc;

use super::pace::{Pace, Patience};
use super::roster::Roster;
use crate::call::Call;
use crate::exchange::{Deck, Exchange, Step};
use crate::shared::Segment;
use crate::{CollectiveError, Settings};

/// Every so many meetings a member shows that it lives, also where it never has to sleep.
const BEAT: u32 = 64;

/// A call on its way.
pub(crate) struct Running<E> {
    pub exchange: E,
    pub call: Call,
    /// Where the buffer lies in the arena, counted from 1; 0 for a private one.
    pub place: u64,
    /// Waiting at a meeting.
    pub waits: bool,
}

/// The state between calls.
pub(crate) struct Runner {
    segment: Arc<Segment>,
    roster: Arc<Roster>,
    pace: Pace,
    flat: usize,
    turn: usize,
    calls: u64,
    ended: Option<CollectiveError>,
}

impl Runner {
    pub fn new(segment: Arc<Segment>, roster: Arc<Roster>, settings: Settings) -> Self {
        Self {
            pace: Pace::new(Arc::clone(&segment), Arc::clone(&roster), settings),
            segment,
            roster,
            flat: settings.flat,
            turn: 0,
            calls: 0,
            ended: None,
        }
    }

    /// Goes on with a call; true when it is through. After an error the group has ended.
    pub fn drive<E: Exchange>(
        &mut self,
        running: &mut Running<E>,
        patience: Patience<'_>,
    ) -> Result<bool, CollectiveError> {
        if let Some(why) = &self.ended {
            return Err(CollectiveError::Ended { why: why.to_string() });
        }
        running.call.number = self.calls;
        let driven = self.go_on(running, patience);
        match &driven {
            Ok(true) => self.calls += 1,
            Ok(false) => {}
            Err(error) => {
                self.ended = Some(error.clone());
                self.detach(running);
            }
        }
        driven
    }

    /// A buffer that others write to belongs to the caller again, who may use it for something else.
    fn detach<E>(&self, running: &Running<E>) {
        let bytes = running.call.count as usize * running.call.dtype.size();
        if let (Some(offset), Ok(arena)) = (running.place.checked_sub(1), self.segment.arena()) {
            arena.detach(offset as usize, bytes);
        }
    }

    fn go_on<E: Exchange>(
        &mut self,
        running: &mut Running<E>,
        patience: Patience<'_>,
    ) -> Result<bool, CollectiveError> {
        loop {
            if running.waits && !self.pace.all_there(&running.call, patience)? {
                return Ok(false);
            }
            running.waits = false;
            let mut deck = Deck {
                segment: &self.segment,
                ranks: self.roster.size(),
                me: self.roster.me,
                flat: self.flat,
                phase: self.pace.phase(),
                turn: &mut self.turn,
            };
            match running.exchange.step(&mut deck) {
                Ok(Step::Done) => return Ok(true),
                Ok(Step::Meet) => {
                    // A group that has ended must not look as if this member waited for the others.
                    self.pace.check()?;
                    if self.pace.phase().is_multiple_of(BEAT) {
                        self.segment.beat();
                    }
                    self.pace.arrive(&running.call, running.place);
                    running.waits = true;
                }
                Err(error) => return Err(self.pace.end(error)),
            }
        }
    }
}
