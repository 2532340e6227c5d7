//! What the events around a fault say of it.

use std::collections::BTreeMap;
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
    /// Committed steps that the run has gone back by.
    pub back: u64,
    /// How often the run had to go on anew.
    pub losses: u64,
}

/// Takes the figures of one fault.
pub fn figures(struck: &Struck) -> Figures {
    let mut figures = Figures {
        detection: struck.noticed.map(|at| at.since(struck.at)),
        ..Figures::default()
    };
    let (mut furthest, mut from) = (struck.step, None);
    for Heard { at, event } in &struck.heard {
        match event {
            Event::Lost { .. } => {
                figures.losses += 1;
                figures.detection.get_or_insert(at.since(struck.at));
            }
            Event::Recovered { step } | Event::Begin { step } => {
                figures.back = figures.back.max(furthest.saturating_sub(*step));
                // A run may recover from the first part of a fault before it is hit by the second.
                (from, figures.recovery) = (Some(*step), None);
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
    by_kind: BTreeMap<Kind, Vec<Figures>>,
}

impl Tally {
    /// Adds those of one fault.
    pub fn add(&mut self, kind: Kind, figures: Figures) {
        self.by_kind.entry(kind).or_default().push(figures);
    }

    /// Kind by kind.
    pub fn kinds(&self) -> impl Iterator<Item = (Kind, &[Figures])> {
        self.by_kind
            .iter()
            .map(|(kind, figures)| (*kind, figures.as_slice()))
    }

    /// How many faults there were.
    pub fn faults(&self) -> usize {
        self.by_kind.values().map(Vec::len).sum()
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
            noticed: None,
            heard: heard
                .into_iter()
                .map(|(time, event)| Heard { at: at(time), event })
                .collect(),
        }
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
            (1150, Event::Recovered { step: 42 }),
            (1160, Event::Steps { step: 43 }),
            (1200, lost()),
            (1300, Event::Recovered { step: 43 }),
            (1350, Event::Steps { step: 43 }),
            (1400, Event::Steps { step: 44 }),
            (1500, Event::Steps { step: 54 }),
        ];
        let wanted = Figures {
            detection: Some(Duration::from_millis(50)),
            recovery: Some(Duration::from_millis(300)),
            back: 0,
            losses: 2,
        };
        assert_eq!(figures(&struck(heard)), wanted);
    }

    #[test]
    fn steps_that_are_done_again_are_counted() {
        let heard = vec![(1050, lost()), (1150, Event::Recovered { step: 37 })];
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
