//! What a ledger proves.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use thiserror::Error;

use super::coverage::{Coverage, NAMED, Span, coverage};
use super::history::{Attempt, History, Step, history};
use super::read::Page;
use super::record::{Open, Part};

/// A step and a lane, the step counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Which step of the epoch.
    pub step: u64,
    /// Which lane used the row.
    pub lane: u32,
}

/// What is wrong. Epochs and steps count from 0, and from 1 where they are shown.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// Workers of one attempt began differently.
    #[error(
        "attempt {attempt}: ranks {first} and {second} did not begin at the same step, with the same lanes and seed"
    )]
    Heads {
        /// Which attempt.
        attempt: u64,
        /// A rank.
        first: u32,
        /// One that says otherwise.
        second: u32,
    },
    /// The data became another within an epoch.
    #[error("epoch {}: it had {} in attempt {attempt}, and another number in a later one", epoch + 1, counted(*rows))]
    Changed {
        /// Which epoch.
        epoch: u64,
        /// The attempt that had other rows than the last.
        attempt: u64,
        /// How many, where that is known.
        rows: Option<u64>,
    },
    /// Steps that nobody has written down as done.
    #[error("epoch {}: nobody has done {}", epoch + 1, steps(*first, *end))]
    StepsMissing {
        /// Which epoch.
        epoch: u64,
        /// The first of them.
        first: u64,
        /// The one after the last.
        end: u64,
    },
    /// A lane without a record in a step that was done.
    #[error("epoch {}, step {}: lane {lane} is missing, though attempt {attempt} has done the step", epoch + 1, step + 1)]
    LaneMissing {
        /// Which epoch.
        epoch: u64,
        /// Which step.
        step: u64,
        /// Which lane.
        lane: u32,
        /// Which attempt.
        attempt: u64,
    },
    /// Two workers drove one lane.
    #[error("epoch {}, step {}: lane {lane} was driven twice in attempt {attempt}", epoch + 1, step + 1)]
    LaneTwice {
        /// Which epoch.
        epoch: u64,
        /// Which step.
        step: u64,
        /// Which lane.
        lane: u32,
        /// Which attempt.
        attempt: u64,
    },
    /// A row that was used more than once.
    #[error("epoch {}: {what} {row} was used in step {} by lane {}, and in step {} by lane {}", epoch + 1, first.step + 1, first.lane, second.step + 1, second.lane)]
    Doubled {
        /// Which epoch.
        epoch: u64,
        /// A row, or a place where rows may be chosen twice.
        what: &'static str,
        /// Its number.
        row: i64,
        /// Where it was used.
        first: Use,
        /// Where it was used again.
        second: Use,
    },
    /// Rows that were not used.
    #[error("epoch {}: {} not used", epoch + 1, numbers(what, *first, *end))]
    Lost {
        /// Which epoch.
        epoch: u64,
        /// A row, or a place where nobody knows which row stood there.
        what: &'static str,
        /// The first of them.
        first: i64,
        /// The one after the last.
        end: i64,
    },
    /// A row that the epoch does not have.
    #[error("epoch {}: {what} {row} was used in step {} by lane {}, and there is none", epoch + 1, used.step + 1, used.lane)]
    Stranger {
        /// Which epoch.
        epoch: u64,
        /// A row, or a place.
        what: &'static str,
        /// Its number.
        row: i64,
        /// Where it was used.
        used: Use,
    },
}

fn counted(rows: Option<u64>) -> String {
    rows.map_or_else(|| "unknown rows".into(), |rows| format!("{rows} rows"))
}

fn steps(first: u64, end: u64) -> String {
    if end - first == 1 {
        format!("step {end}")
    } else {
        format!("steps {} to {end}", first + 1)
    }
}

fn numbers(what: &str, first: i64, end: i64) -> String {
    if end - first == 1 {
        format!("{what} {first} was")
    } else {
        format!("{what}s {first} to {} were", end - 1)
    }
}

/// What came of one epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EpochAudit {
    /// Counted from 1.
    pub epoch: u64,
    /// Rows that the steps used.
    pub rows: u64,
    /// Rows that had their turn and were left out, because they were bad.
    pub left_out: u64,
    /// Rows that the epoch has, where that is known.
    pub expected: Option<u64>,
    /// Steps that count.
    pub steps: u64,
    /// How often a step was begun: more than there are steps where some were repeated.
    pub begun: u64,
    /// Parts of each batch.
    pub lanes: u32,
    /// Whether it was brought to its end.
    pub ended: bool,
    /// Rows that were not used; nothing where rows have no numbers.
    pub lost: Option<u64>,
    /// Uses of rows beyond the first; nothing where rows have no numbers.
    pub doubled: Option<u64>,
}

/// What a ledger proves, and what speaks against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Each epoch of which anything counts.
    pub epochs: Vec<EpochAudit>,
    /// How often the workers were called for the run.
    pub attempts: usize,
    /// Reasons why it proves nothing; of rows, the first few of each epoch.
    pub faults: Vec<Fault>,
}

impl Audit {
    /// Whether each row was used once per epoch, none lost, none doubled.
    pub fn is_proof(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Holds a ledger against the promise that each row is used once per epoch.
pub fn audit(pages: &[Page]) -> Audit {
    let mut history = history(pages);
    let mut faults = std::mem::take(&mut history.faults);
    let mut known: BTreeSet<u64> = history.counted.keys().map(|place| place.epoch).collect();
    known.extend(&history.over);
    let epochs = known
        .into_iter()
        .map(|number| Epoch::of(&history, number).audit(&mut faults))
        .collect();
    Audit {
        epochs,
        attempts: history.attempts.len(),
        faults,
    }
}

/// The steps of an epoch that count.
struct Epoch<'a> {
    number: u64,
    steps: BTreeMap<u64, (&'a Attempt<'a>, &'a Step<'a>)>,
    begun: u64,
    /// The newest word on its rows.
    open: Option<&'a Open>,
    ended: bool,
}

impl<'a> Epoch<'a> {
    fn of(history: &'a History<'a>, number: u64) -> Self {
        let mut steps = BTreeMap::new();
        for (place, attempt) in history.counted.iter().filter(|(place, _)| place.epoch == number) {
            let attempt = &history.attempts[attempt];
            steps.insert(place.step, (attempt, &attempt.steps[place]));
        }
        let attempts = || history.attempts.values();
        let all = attempts().flat_map(|attempt| &attempt.steps);
        Self {
            number,
            steps,
            begun: all
                .filter(|(place, step)| place.epoch == number && !step.is_empty())
                .count() as u64,
            open: attempts()
                .rev()
                .find_map(|attempt| attempt.opened.get(&number).copied()),
            ended: history.over.contains(&number),
        }
    }

    fn audit(&self, faults: &mut Vec<Fault>) -> EpochAudit {
        self.check_steps(faults);
        self.check_data(faults);
        for (&step, &(attempt, parts)) in &self.steps {
            self.check_lanes(step, attempt, parts, faults);
        }
        let (lost, doubled) = self.check_rows(faults).unzip();
        let parts = || self.steps.values().flat_map(|(_, step)| &step.parts);
        // Files may say anything.
        let sum = |counts: &mut dyn Iterator<Item = u64>| counts.fold(0, u64::saturating_add);
        EpochAudit {
            epoch: self.number + 1,
            rows: sum(&mut parts().map(|part| part.count - part.left_out)),
            left_out: sum(&mut parts().map(|part| part.left_out)),
            expected: self.open.and_then(|open| open.rows),
            steps: self.steps.len() as u64,
            begun: self.begun,
            lanes: self
                .steps
                .values()
                .last()
                .map_or(0, |(attempt, _)| attempt.head.lanes),
            ended: self.ended,
            lost,
            doubled,
        }
    }

    /// Steps follow each other without a gap.
    fn check_steps(&self, faults: &mut Vec<Fault>) {
        let mut next = 0;
        for &step in self.steps.keys() {
            if step > next {
                faults.push(Fault::StepsMissing {
                    epoch: self.number,
                    first: next,
                    end: step,
                });
            }
            next = step.saturating_add(1);
        }
    }

    /// Whoever goes on within an epoch has the rows of whoever began it.
    fn check_data(&self, faults: &mut Vec<Fault>) {
        let of = |open: &Open| (open.rows, open.of);
        let opened = self.steps.values().map(|(attempt, _)| attempt);
        let other = opened
            .filter_map(|attempt| Some((attempt, *attempt.opened.get(&self.number)?)))
            .find(|(_, open)| Some(of(open)) != self.open.map(of));
        if let Some((attempt, open)) = other {
            faults.push(Fault::Changed {
                epoch: self.number,
                attempt: attempt.head.attempt,
                rows: open.rows,
            });
        }
    }

    /// Every lane has said what it uses, once.
    fn check_lanes(&self, step: u64, attempt: &Attempt<'_>, begun: &Step<'_>, faults: &mut Vec<Fault>) {
        let (epoch, number) = (self.number, attempt.head.attempt);
        let mut lanes: Vec<u32> = begun.parts.iter().map(|part| part.lane).collect();
        lanes.sort_unstable();
        if let Some(pair) = lanes.windows(2).find(|pair| pair[0] == pair[1]) {
            faults.push(Fault::LaneTwice {
                epoch,
                step,
                lane: pair[0],
                attempt: number,
            });
        }
        lanes.dedup();
        let missing = (0..attempt.head.lanes).find(|lane| lanes.get(*lane as usize) != Some(lane));
        if let Some(lane) = missing {
            faults.push(Fault::LaneMissing {
                epoch,
                step,
                lane,
                attempt: number,
            });
        }
    }

    /// How many rows are lost and doubled; nothing where a lane has rows without numbers.
    fn check_rows(&self, faults: &mut Vec<Fault>) -> Option<(u64, u64)> {
        let uses: Vec<(Use, &Part)> = self.uses().collect();
        let spans: Option<Vec<Span>> = uses
            .iter()
            .enumerate()
            .map(|(user, (_, part))| placed(part, user))
            .collect();
        let rows = self
            .open
            .and_then(|open| open.rows)
            .and_then(|rows| i64::try_from(rows).ok());
        let of = self
            .open
            .and_then(|open| open.of)
            .and_then(|of| i64::try_from(of).ok());
        let places = coverage(spans?, rows.filter(|_| self.ended));
        let named = of.and_then(|_| {
            uses.iter()
                .enumerate()
                .map(|(user, (_, part))| numbered(part, user))
                .collect()
        });
        let Some(named): Option<Vec<Vec<Span>>> = named else {
            self.tell("place", &places, &uses, faults);
            self.tell_lost("place", &places, faults);
            return Some((places.lost, places.doubled));
        };
        let named = coverage(named.concat(), of);
        self.tell("row", &named, &uses, faults);
        if !self.ended {
            // The rows of the steps to come are not lost.
            self.tell_lost("place", &places, faults);
            return Some((places.lost, named.doubled));
        }
        let (what, known) = if rows == of {
            ("row", &named)
        } else {
            ("place", &places)
        };
        self.tell_lost(what, known, faults);
        let lost = rows.map_or(0, |rows| rows.unsigned_abs().saturating_sub(named.distinct));
        Some((lost, named.doubled))
    }

    /// Parts with rows, and where they were used.
    fn uses(&self) -> impl Iterator<Item = (Use, &'a Part)> {
        self.steps.iter().flat_map(|(&step, (_, begun))| {
            let parts = begun.parts.iter().filter(|part| part.count > 0);
            parts.map(move |&part| {
                (
                    Use {
                        step,
                        lane: part.lane,
                    },
                    part,
                )
            })
        })
    }

    /// Names numbers that were used too often, or do not exist.
    fn tell(&self, what: &'static str, found: &Coverage, uses: &[(Use, &Part)], faults: &mut Vec<Fault>) {
        let epoch = self.number;
        faults.extend(found.doubles.iter().map(|&(row, first, second)| Fault::Doubled {
            epoch,
            what,
            row,
            first: uses[first.min(second)].0,
            second: uses[first.max(second)].0,
        }));
        faults.extend(found.stranger.map(|(row, user)| Fault::Stranger {
            epoch,
            what,
            row,
            used: uses[user].0,
        }));
    }

    fn tell_lost(&self, what: &'static str, found: &Coverage, faults: &mut Vec<Fault>) {
        let gaps = found.gaps.iter().take(NAMED);
        faults.extend(gaps.map(|gap| Fault::Lost {
            epoch: self.number,
            what,
            first: gap.start,
            end: gap.end,
        }));
    }
}

/// The places of a part among all rows of the epoch.
fn placed(part: &Part, user: usize) -> Option<Span> {
    let start = i64::try_from(part.first?).ok()?;
    let end = start.checked_add_unsigned(part.count)?;
    Some(Span { start, end, user })
}

/// The numbers of its rows.
fn numbered(part: &Part, user: usize) -> Option<Vec<Span>> {
    if let Some((start, end)) = part.range {
        return Some(vec![Span { start, end, user }]);
    }
    let one = |&row: &i64| {
        Some(Span {
            start: row,
            end: row.checked_add(1)?,
            user,
        })
    };
    part.rows.as_ref()?.iter().map(one).collect()
}
