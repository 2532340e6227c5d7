//! Which attempt each step counts in.

use std::collections::{BTreeMap, BTreeSet};

use super::read::Page;
use super::record::{Head, Line, Open, Part, Place};
use super::verdict::Fault;

/// What the workers of one attempt have written, together.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    pub(super) head: &'a Head,
    pub(super) steps: BTreeMap<Place, Step<'a>>,
    pub(super) opened: BTreeMap<u64, &'a Open>,
    /// The furthest that any of them has come.
    reached: Place,
    /// Where the run ended as it was to end.
    ended: Option<Place>,
}

/// A step as one attempt began it.
#[derive(Debug, Default)]
pub(super) struct Step<'a> {
    /// Of all workers.
    pub(super) parts: Vec<&'a Part>,
    /// Whether any worker did it.
    pub(super) done: bool,
}

impl Step<'_> {
    /// Streams are asked for one more step, to learn that there is none: all lanes say that they have no rows.
    pub(super) fn is_empty(&self) -> bool {
        !self.parts.is_empty() && self.parts.iter().all(|part| part.count == 0)
    }

    /// Whether all of its rows were left out, so that there was nothing to do.
    fn is_idle(&self) -> bool {
        !self.is_empty() && self.parts.iter().all(|part| part.count == part.left_out)
    }
}

/// What counts in the end.
#[derive(Debug)]
pub(super) struct History<'a> {
    pub(super) attempts: BTreeMap<u64, Attempt<'a>>,
    /// The steps that count, and the attempt of each.
    pub(super) counted: BTreeMap<Place, u64>,
    /// Epochs that were brought to their end.
    pub(super) over: BTreeSet<u64>,
    /// Where the workers contradict each other.
    pub(super) faults: Vec<Fault>,
}

/// Goes through the attempts in their order. Each says from which step on it went: what others had done before it counts
/// up to there, and nothing from there on, since the weights had gone with whoever had it.
pub(super) fn history(pages: &[Page]) -> History<'_> {
    let (attempts, faults) = gathered(pages);
    let mut counted: BTreeMap<Place, u64> = BTreeMap::new();
    let mut over: BTreeSet<u64> = BTreeSet::new();
    // Epochs within which a run was ended, the rest of which the next call left out.
    let mut cut: BTreeSet<u64> = BTreeSet::new();
    for (&number, attempt) in &attempts {
        let begin = attempt.head.at;
        counted.split_off(&begin);
        over.split_off(&begin.epoch);
        cut.split_off(&begin.epoch);
        let before = counted.keys().map(|place| place.epoch);
        over.extend(before.filter(|epoch| *epoch < begin.epoch && !cut.contains(epoch)));
        counted.extend(attempt.done().map(|place| (place, number)));
        let opened = attempt.opened.keys().copied();
        over.extend(opened.filter(|epoch| *epoch < attempt.reached.epoch));
        cut.extend(
            attempt
                .ended
                .filter(|place| place.step > 0)
                .map(|place| place.epoch),
        );
    }
    History {
        attempts,
        counted,
        over,
        faults,
    }
}

/// The pages of each attempt, brought together.
fn gathered(pages: &[Page]) -> (BTreeMap<u64, Attempt<'_>>, Vec<Fault>) {
    let mut attempts: BTreeMap<u64, Attempt<'_>> = BTreeMap::new();
    let mut faults = Vec::new();
    for page in pages {
        let head = &page.head;
        let attempt = attempts.entry(head.attempt).or_insert_with(|| Attempt {
            head,
            steps: BTreeMap::new(),
            opened: BTreeMap::new(),
            reached: head.at,
            ended: None,
        });
        let first = attempt.head;
        if (first.at, first.lanes, first.seed) != (head.at, head.lanes, head.seed) {
            faults.push(Fault::Heads {
                attempt: head.attempt,
                first: first.rank,
                second: head.rank,
            });
        }
        attempt.add(page);
    }
    (attempts, faults)
}

impl<'a> Attempt<'a> {
    /// Steps that a worker did, or passed over because there was nothing to do.
    fn done(&self) -> impl Iterator<Item = Place> {
        let passed = |place: &Place, step: &Step<'_>| step.is_idle() && *place < self.reached;
        let done =
            move |(place, step): &(&Place, &Step<'_>)| (step.done && !step.is_empty()) || passed(place, step);
        self.steps.iter().filter(done).map(|(&place, _)| place)
    }

    fn add(&mut self, page: &'a Page) {
        // What this worker has begun last, and may have done without telling.
        let mut last: Option<Place> = None;
        for line in &page.lines {
            match line {
                Line::Head(_) => {}
                Line::Open(open) => {
                    self.opened.insert(open.at.epoch, open);
                    self.reached = self.reached.max(open.at);
                }
                Line::Begun(begun) => {
                    self.steps.entry(begun.at).or_default().parts.extend(&begun.parts);
                    self.reached = self.reached.max(begun.at);
                    last = Some(begun.at);
                }
                Line::Done(place) => self.steps.entry(*place).or_default().done = true,
                Line::Left(place) | Line::End(place) => {
                    self.reached = self.reached.max(*place);
                    if let Some(begun) = last.filter(|begun| begun < place) {
                        self.steps.entry(begun).or_default().done = true;
                    }
                    if matches!(line, Line::End(_)) {
                        self.ended = Some(*place);
                    }
                }
            }
        }
    }
}
