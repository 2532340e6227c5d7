//! What the events around a fault say of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use grampus_core::Time;

pub use super::driver::{Event, Heard};
use super::fault::Kind;

/// A fault that came, and all that was heard from then on until the next one.
#[derive(Clone, Debug)]
pub struct Struck {
    /// Of which kind.
    pub kind: Kind,
    /// When it came.
    pub at: Time,
    /// When the last part of it came.
    pub last: Time,
    /// The last step that was heard of before.
    pub step: u64,
    /// How many workers it took.
    pub victims: u64,
    /// When all workers were back, where that was waited for.
    pub whole: Option<Time>,
    /// How often the workers had been called for the run before.
    pub attempts: u64,
    /// What it asks for did not come in time.
    pub hung: bool,
    /// When it was noticed that a driver has ended, and another went on from the last checkpoint.
    pub noticed: Option<Time>,
    /// What was heard.
    pub heard: Vec<Heard>,
}

/// The figures of a fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// From the fault to the event that tells of it.
    pub detection: Option<Duration>,
    /// From its last part to the first step that is committed once the run goes on.
    pub recovery: Option<Duration>,
    /// From its last part to the moment in which all workers are in the run again.
    pub whole: Option<Duration>,
    /// Committed steps that the run has gone back by.
    pub back: u64,
    /// How often the run had to go on anew.
    pub losses: u64,
    /// Steps that were begun again, by the ledger.
    pub repeated: u64,
    /// The run stood still.
    pub hung: bool,
}

/// Takes the figures of one fault.
pub fn figures(struck: &Struck) -> Figures {
    let mut figures = Figures {
        detection: struck.noticed.map(|at| at.since(struck.at)),
        whole: struck.whole.map(|at| at.since(struck.last)),
        hung: struck.hung,
        ..Figures::default()
    };
    let (mut furthest, mut from) = (struck.step, None);
    // Where nothing was lost, the run begins anew because workers have come back: it had recovered before.
    let mut lost = struck.noticed.is_some();
    for Heard { at, event } in &struck.heard {
        match event {
            Event::Lost { .. } => {
                figures.losses += 1;
                lost = true;
                figures.detection.get_or_insert(at.since(struck.at));
            }
            Event::Recovered { step, .. } | Event::Begin { step, .. } => {
                figures.back = figures.back.max(furthest.saturating_sub(*step));
                // A run may recover from the first part of a fault before it is hit by the second.
                if std::mem::take(&mut lost) || *at < struck.last {
                    (from, figures.recovery) = (Some(*step), None);
                }
            }
            Event::Steps { step } => {
                furthest = furthest.max(*step);
                if from.is_some_and(|from| *step > from) && figures.recovery.is_none() {
                    figures.recovery = Some(at.since(struck.last));
                }
            }
            _ => {}
        }
    }
    figures
}

/// The figures of all faults, by kind.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    by_kind: BTreeMap<Kind, KindTally>,
}

/// The figures of one kind.
#[derive(Clone, Debug, Default)]
pub struct KindTally {
    /// Of each fault.
    pub figures: Vec<Figures>,
    /// Runs to which it came.
    pub runs: u64,
    /// Those of them that made what the undisturbed run made.
    pub equal: u64,
}

impl Tally {
    /// Adds the faults of one run.
    pub fn add(&mut self, faults: &[(Kind, Figures)], equal: bool) {
        for (kind, figures) in faults {
            let of_kind = self.by_kind.entry(*kind).or_default();
            of_kind.figures.push(figures.clone());
        }
        let kinds: BTreeSet<Kind> = faults.iter().map(|(kind, _)| *kind).collect();
        for kind in kinds {
            let of_kind = self.by_kind.entry(kind).or_default();
            of_kind.runs += 1;
            of_kind.equal += u64::from(equal);
        }
    }

    /// Kind by kind.
    pub fn kinds(&self) -> impl Iterator<Item = (Kind, &KindTally)> {
        self.by_kind.iter().map(|(kind, tally)| (*kind, tally))
    }

    /// How many faults there were.
    pub fn faults(&self) -> usize {
        self.by_kind.values().map(|tally| tally.figures.len()).sum()
    }

    /// How many of them made a run stand still.
    pub fn hangs(&self) -> usize {
        let figures = self.by_kind.values().flat_map(|tally| &tally.figures);
        figures.filter(|one| one.hung).count()
    }
}

/// The smallest of the values that so many of a hundred do not exceed; nothing of nothing.
///
/// ```
/// use std::time::Duration;
/// use grampus_chaos::real::measure::percentile;
/// let times: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
/// assert_eq!(percentile(&times, 50), Some(Duration::from_millis(100)));
/// assert_eq!(percentile(&times, 99), Some(Duration::from_millis(198)));
/// assert_eq!(percentile(&[], 50), None);
/// ```
pub fn percentile(times: &[Duration], of_hundred: usize) -> Option<Duration> {
    let mut sorted = times.to_vec();
    sorted.sort();
    let rank = (sorted.len() * of_hundred).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn struck(heard: Vec<(u64, Event)>) -> Struck {
        Struck {
            kind: Kind::Kill,
            at: at(1000),
            last: at(1100),
            step: 40,
            victims: 1,
            attempts: 1,
            whole: None,
            hung: false,
            noticed: None,
            heard: heard
                .into_iter()
                .map(|(time, event)| Heard { at: at(time), event })
                .collect(),
        }
    }

    fn recovered(step: u64) -> Event {
        Event::Recovered { step, workers: 3 }
    }

    fn lost() -> Event {
        Event::Lost {
            text: "rank 1 was killed".into(),
        }
    }

    #[test]
    fn a_run_that_recovers_twice_has_recovered_the_second_time() {
        let heard = vec![
            (1010, Event::Steps { step: 42 }),
            (1050, lost()),
            (1150, recovered(42)),
            (1160, Event::Steps { step: 43 }),
            (1200, lost()),
            (1300, recovered(43)),
            (1350, Event::Steps { step: 43 }),
            (1400, Event::Steps { step: 44 }),
            (1500, Event::Steps { step: 54 }),
        ];
        let wanted = Figures {
            detection: Some(Duration::from_millis(50)),
            recovery: Some(Duration::from_millis(300)),
            losses: 2,
            ..Figures::default()
        };
        assert_eq!(figures(&struck(heard)), wanted);
    }

    #[test]
    fn workers_that_come_back_are_no_recovery() {
        let heard = vec![
            (1150, lost()),
            (1250, recovered(42)),
            (1300, Event::Steps { step: 43 }),
            (9000, recovered(80)),
            (9100, Event::Steps { step: 81 }),
        ];
        assert_eq!(figures(&struck(heard)).recovery, Some(Duration::from_millis(200)));
    }

    #[test]
    fn steps_that_are_done_again_are_counted() {
        let heard = vec![(1050, lost()), (1150, recovered(37))];
        let found = figures(&struck(heard));
        assert_eq!((found.back, found.recovery), (3, None));
    }

    #[test]
    fn one_value_is_all_percentiles() {
        let one = [Duration::from_millis(7)];
        assert_eq!(percentile(&one, 50), Some(one[0]));
        assert_eq!(percentile(&one, 99), Some(one[0]));
        assert_eq!(percentile(&one, 100), Some(one[0]));
    }
}
