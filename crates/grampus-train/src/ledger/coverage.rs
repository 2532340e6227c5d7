//! How often each number of a range occurs.

use std::ops::Range;

/// Numbers of each kind that are named.
pub(super) const NAMED: usize = 8;

/// Numbers that follow each other, and who used them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) user: usize,
}

/// What a set of spans covers. All are counted; a few are named.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Coverage {
    /// Numbers between 0 and the end that occur.
    pub(super) distinct: u64,
    /// Numbers between 0 and the end that do not occur.
    pub(super) lost: u64,
    pub(super) gaps: Vec<Range<i64>>,
    /// Occurrences beyond the first.
    pub(super) doubled: u64,
    /// A number, who used it first, and who again.
    pub(super) doubles: Vec<(i64, usize, usize)>,
    /// The first number that is below 0 or not below the end, and who used it.
    pub(super) stranger: Option<(i64, usize)>,
}

/// What the spans cover of the numbers from 0 to `end`, or to the last that occurs.
pub(super) fn coverage(mut spans: Vec<Span>, end: Option<i64>) -> Coverage {
    let mut found = Coverage::default();
    for span in &mut spans {
        let inside = span.start.max(0)..span.end.min(end.unwrap_or(i64::MAX));
        if span.start < span.end && inside != (span.start..span.end) && found.stranger.is_none() {
            let number = if span.start < 0 {
                span.start
            } else {
                span.start.max(inside.end)
            };
            found.stranger = Some((number, span.user));
        }
        (span.start, span.end) = (inside.start, inside.end);
    }
    spans.retain(|span| span.start < span.end);
    spans.sort_unstable_by_key(|span| (span.start, span.user));
    // All numbers below this one were looked at; and who used the one before it.
    let (mut covered, mut last) = (0, 0);
    for span in spans {
        found.leaves_out(covered..span.start);
        let again = span.start..span.end.min(covered);
        found.doubled += again.end.saturating_sub(again.start).max(0).unsigned_abs();
        let room = NAMED - found.doubles.len();
        found
            .doubles
            .extend(again.take(room).map(|number| (number, last, span.user)));
        if span.end > covered {
            found.distinct += span.end.abs_diff(covered.max(span.start));
            (covered, last) = (span.end, span.user);
        }
    }
    found.leaves_out(covered..end.unwrap_or(covered));
    found
}

impl Coverage {
    fn leaves_out(&mut self, gap: Range<i64>) {
        if gap.is_empty() {
            return;
        }
        self.lost += gap.end.abs_diff(gap.start);
        if self.gaps.len() < NAMED {
            self.gaps.push(gap);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn spans() -> impl Strategy<Value = Vec<Span>> {
        let span = (-3..30_i64, 0..6_i64).prop_map(|(start, length)| (start, start + length));
        prop::collection::vec(span, 0..12).prop_map(|spans| {
            let numbered = spans.into_iter().enumerate();
            numbered
                .map(|(user, (start, end))| Span { start, end, user })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn it_counts_as_one_would_by_hand(spans in spans(), end in prop::option::of(0..25_i64)) {
            let mut times: BTreeMap<i64, u64> = BTreeMap::new();
            for number in spans.iter().flat_map(|span| span.start..span.end) {
                *times.entry(number).or_default() += 1;
            }
            let until = end.unwrap_or(times.keys().last().map_or(0, |last| last + 1));
            let lost: Vec<i64> = (0..until).filter(|number| !times.contains_key(number)).collect();
            let odd = times.keys().any(|number| *number < 0 || end.is_some_and(|end| *number >= end));
            times.retain(|number, _| (0..until).contains(number));
            let found = coverage(spans, end);
            prop_assert_eq!(found.distinct, times.len() as u64);
            prop_assert_eq!(found.doubled, times.values().map(|count| count - 1).sum::<u64>());
            prop_assert_eq!(found.lost, lost.len() as u64);
            prop_assert!(found.gaps.into_iter().flatten().all(|number| lost.contains(&number)));
            prop_assert_eq!(found.stranger.is_some(), odd);
            for (number, first, again) in found.doubles {
                prop_assert!(times[&number] > 1);
                prop_assert_ne!(first, again);
            }
        }
    }
}
