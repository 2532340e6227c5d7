//! Optimizers whose memory is divided among the workers.
//!
//! Each worker keeps what the optimizer remembers of its own part of the parameters, and of its neighbour's, in case that one is lost. It
//! updates both, and all send each other their own part of the weights.
//!
//! A step is applied in this order: all have the sum of the gradients; all know that (a barrier); each updates its parts; the parts are sent
//! about. So where one worker has updated its parts, every other that lives has at least the sum, and can do the same later:
//! [`heal`] puts a whole together again unless neighbours were lost at once.

use std::ops::Range;

use grampus_collective::{CollectiveError, Element, Group};
use grampus_native::optim::{
    Clip, Group as Tensors, Optimizer, Prepared, State, Step, combine, prepare, trust_ratios, update,
};
use grampus_native::{NativeError, Real};
use serde::{Deserialize, Serialize};

use super::learner::LearnError;

/// Which parameters are whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// How many parameters there are.
    pub count: usize,
    /// Among how many they are divided.
    pub owners: usize,
    /// Which of these this worker is.
    pub me: usize,
}

impl Share {
    /// The parameters of an owner.
    pub fn range(&self, owner: usize) -> Range<usize> {
        let start = |owner: usize| owner * self.count / self.owners;
        start(owner)..start(owner + 1)
    }

    /// Whose parts this worker keeps: its own first.
    pub fn kept(&self) -> Vec<usize> {
        match self.owners {
            1 => vec![0],
            owners => vec![self.me, (self.me + 1) % owners],
        }
    }

    /// Where they lie.
    pub fn kept_ranges(self) -> impl Iterator<Item = Range<usize>> {
        self.kept().into_iter().map(move |owner| self.range(owner))
    }

    /// The bounds of all parts.
    fn bounds(&self) -> impl Iterator<Item = Range<usize>> {
        (0..self.owners).map(|owner| self.range(owner))
    }
}

/// What does not change within a step.
#[derive(Clone, Copy)]
pub(super) struct Rule<'a> {
    pub optimizer: &'a Optimizer,
    pub groups: &'a [Tensors],
    pub tensors: &'a [Range<usize>],
    /// Steps that each of these has missed.
    pub missed: &'a [u64],
}

/// Counts a step that tensors miss that are not used in it; gives what those that are have missed before. Both are in order.
pub(super) fn count_missed(tensors: &[Range<usize>], used: &[Range<usize>], missed: &mut [u64]) -> Vec<u64> {
    let mut used = used.iter().peekable();
    let mut before = Vec::with_capacity(used.len());
    for (tensor, missed) in tensors.iter().zip(missed) {
        match used.next_if(|next| *next == tensor) {
            Some(_) => before.push(*missed),
            None => *missed += 1,
        }
    }
    before
}

impl<'a> Rule<'a> {
    fn step(&self, rate: f64, clip: Clip, trust: &'a [f64]) -> Step<'a> {
        Step {
            lr: rate,
            tensors: self.tensors,
            groups: self.groups,
            clip,
            trust,
            missed: self.missed,
        }
    }
}

/// Updates the parts that a worker keeps. An optimizer that has to know whole tensors asks the others first.
pub(super) fn update_kept<T: Real + Element>(
    rule: Rule<'_>,
    share: &Share,
    (rate, clip): (f64, Clip),
    state: &mut State<T>,
    (parameters, sums): (&mut [T], &[T]),
    group: &Group,
) -> Result<(), LearnError> {
    state.begin_step();
    let mut mine = None;
    for part in share.kept() {
        let step = rule.step(rate, clip, &[]);
        let found = prepare(rule.optimizer, step, state, share.range(part), parameters, sums)?;
        mine = mine.or(found);
    }
    let trust = match mine {
        Some(mine) => agreed(rule, share, &mine, group)?,
        None => Vec::new(),
    };
    for part in share.kept() {
        let step = rule.step(rate, clip, &trust);
        update(rule.optimizer, step, state, share.range(part), parameters, sums)?;
    }
    Ok(())
}

/// The trust ratios of all tensors, from what each owner has of them.
fn agreed(rule: Rule<'_>, share: &Share, mine: &Prepared, group: &Group) -> Result<Vec<f64>, LearnError> {
    let both = (&mine.parameters, &mine.directions);
    let told = group.gather_bytes(&postcard::to_stdvec(&both).map_err(unreadable)?)?;
    let (mut parameters, mut directions) = (Vec::new(), Vec::new());
    for (range, bytes) in share.bounds().zip(&told) {
        let (one, other): (Vec<f64>, Vec<f64>) = postcard::from_bytes(bytes).map_err(unreadable)?;
        parameters.push((range.clone(), one));
        directions.push((range, other));
    }
    Ok(trust_ratios(
        &combine(rule.tensors, &parameters)?,
        &combine(rule.tensors, &directions)?,
    ))
}

fn unreadable(error: postcard::Error) -> LearnError {
    NativeError::Input(format!("what another worker sent cannot be read: {error}")).into()
}

/// Gives all workers what each has in its own part of some numbers.
pub(super) fn spread<T: Element>(
    share: &Share,
    numbers: &mut [T],
    group: &Group,
) -> Result<(), CollectiveError> {
    let own = numbers[share.range(share.me)].to_vec();
    let mut parts = Vec::with_capacity(share.owners);
    let mut rest = numbers;
    for range in share.bounds() {
        let (part, after) = std::mem::take(&mut rest).split_at_mut(range.len());
        parts.push(part);
        rest = after;
    }
    group.all_gather(&own, &mut parts)
}

/// What a worker has of a run whose memory is divided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held<T> {
    share: Share,
    /// Steps that the optimizer has done with these parts.
    pub steps: u64,
    /// How many of them each tensor has missed.
    missed: Vec<u64>,
    parts: Vec<HeldPart<T>>,
    buffers: Vec<T>,
    /// What is needed to do one more: others may have done it.
    next: Option<Next<T>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct HeldPart<T> {
    owner: usize,
    parameters: Vec<T>,
    slots: Vec<Vec<T>>,
}

/// A step whose sum has come and that was not applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Next<T> {
    pub rate: f64,
    pub clip: Clip,
    /// Those that have a gradient.
    pub tensors: Vec<Range<usize>>,
    /// Of each part.
    pub sums: Vec<Vec<T>>,
    pub buffers: Vec<T>,
}

/// A whole again.
#[derive(Clone, Debug, PartialEq)]
pub struct Healed<T> {
    /// Steps that the optimizer has done.
    pub steps: u64,
    /// How many of them each tensor has missed.
    pub missed: Vec<u64>,
    /// All parameters.
    pub parameters: Vec<T>,
    /// What the optimizer remembers, slot by slot.
    pub slots: Vec<Vec<T>>,
    /// What layers keep besides.
    pub buffers: Vec<T>,
}

impl<T: Real + Element> Held<T> {
    pub(super) fn of(
        share: Share,
        (state, missed): (&State<T>, &[u64]),
        parameters: &[T],
        buffers: &[T],
        next: Option<Next<T>>,
    ) -> Self {
        let parts = share.kept().into_iter().map(|owner| {
            let range = share.range(owner);
            let slots = state.slots().iter();
            HeldPart {
                owner,
                parameters: parameters[range.clone()].to_vec(),
                slots: slots
                    .map(|(_, numbers)| numbers[range.clone()].to_vec())
                    .collect(),
            }
        });
        Self {
            share,
            steps: state.steps(),
            missed: missed.to_vec(),
            parts: parts.collect(),
            buffers: buffers.to_vec(),
            next,
        }
    }

    /// Does the step that others have done.
    fn catch_up(&mut self, rule: Rule<'_>) -> Result<(), String> {
        let Some(next) = self.next.take() else {
            return Err("a worker is behind, and has not got the sum of the step".into());
        };
        let missed = count_missed(rule.tensors, &next.tensors, &mut self.missed);
        let rule = Rule {
            tensors: &next.tensors,
            missed: &missed,
            ..rule
        };
        let count = self.share.count;
        let (mut parameters, mut sums) = (vec![T::zero(); count], vec![T::zero(); count]);
        let mut state = State::new(rule.optimizer, count);
        state.set_steps(self.steps);
        state.begin_step();
        for (part, summed) in self.parts.iter_mut().zip(&next.sums) {
            let range = self.share.range(part.owner);
            parameters[range.clone()].copy_from_slice(&part.parameters);
            sums[range.clone()].copy_from_slice(summed);
            for ((_, numbers), kept) in state.slots_mut().zip(&part.slots) {
                numbers[range.clone()].copy_from_slice(kept);
            }
            let step = rule.step(next.rate, next.clip, &[]);
            update(
                rule.optimizer,
                step,
                &mut state,
                range.clone(),
                &mut parameters,
                &sums,
            )
            .map_err(|error| error.to_string())?;
            part.parameters.copy_from_slice(&parameters[range.clone()]);
            for ((_, numbers), kept) in state.slots_mut().zip(&mut part.slots) {
                kept.copy_from_slice(&numbers[range.clone()]);
            }
        }
        self.steps += 1;
        self.buffers = next.buffers;
        Ok(())
    }
}

impl<T: Real> Held<T> {
    /// To travel, or to be kept.
    pub fn to_bytes(&self) -> Result<Vec<u8>, String> {
        postcard::to_stdvec(self).map_err(|error| error.to_string())
    }

    /// What [`Held::to_bytes`] gave.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        postcard::from_bytes(bytes)
            .map_err(|error| format!("what another worker has kept cannot be read: {error}"))
    }
}

/// What all workers that are left have, put together: the newest step that any of them has done. Says which part is lost where owner
/// and neighbour are. Copies from before that step are not needed as long as others have the same parts.
pub(super) fn heal<T: Real + Element>(rule: Rule<'_>, mut held: Vec<Held<T>>) -> Result<Healed<T>, String> {
    let Some(steps) = held.iter().map(|held| held.steps).max() else {
        return Err("no worker is left that has the run".into());
    };
    let mut behind = None;
    for each in held.iter_mut().filter(|held| held.steps + 1 == steps) {
        behind = each.catch_up(rule).err().or(behind);
    }
    held.retain(|held| held.steps == steps);
    let first = &held[0];
    let share = first.share;
    let mut healed = Healed {
        steps,
        missed: first.missed.clone(),
        parameters: vec![T::zero(); share.count],
        slots: vec![vec![T::zero(); share.count]; first.parts[0].slots.len()],
        buffers: first.buffers.clone(),
    };
    for owner in 0..share.owners {
        let parts = held.iter().flat_map(|held| &held.parts);
        let Some(part) = parts.clone().find(|part| part.owner == owner) else {
            return Err(behind.unwrap_or_else(|| {
                format!(
                    "part {owner} of {} of what the optimizer remembers is lost with its owner and his neighbour",
                    share.owners
                )
            }));
        };
        let range = share.range(owner);
        healed.parameters[range.clone()].copy_from_slice(&part.parameters);
        for (slot, kept) in healed.slots.iter_mut().zip(&part.slots) {
            slot[range.clone()].copy_from_slice(kept);
        }
    }
    Ok(healed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use grampus_native::optim::{Adam, update_alone};

    const COUNT: usize = 23;
    const OWNERS: usize = 4;
    const TENSORS: [Range<usize>; 2] = [0..9, 9..COUNT];
    const RATE: f64 = 0.1;

    fn numbers(seed: usize) -> Vec<f64> {
        (0..COUNT)
            .map(|at| ((at * 37 + seed * 11) % 101) as f64 / 50.0 - 1.0)
            .collect()
    }

    fn share(me: usize) -> Share {
        Share {
            count: COUNT,
            owners: OWNERS,
            me,
        }
    }

    fn adam() -> Optimizer {
        Adam::new(RATE).into()
    }

    /// Parameters and memory of one who owns all, after some steps.
    fn alone(steps: usize) -> (Vec<f64>, State<f64>) {
        let (mut parameters, mut state) = (numbers(0), State::new(&adam(), COUNT));
        for step in 1..=steps {
            let tensors = TENSORS;
            let step_of = Step::new(RATE, &tensors);
            update_alone(&adam(), step_of, &mut state, &mut parameters, &numbers(step)).unwrap();
        }
        (parameters, state)
    }

    /// What a worker has after some steps; with the sum of another one, or without.
    fn held(me: usize, steps: usize, with_next: bool) -> Held<f64> {
        let (parameters, state) = alone(steps);
        let next = with_next.then(|| Next {
            rate: RATE,
            clip: Clip::NONE,
            tensors: TENSORS.to_vec(),
            sums: share(me)
                .kept()
                .into_iter()
                .map(|owner| numbers(steps + 1)[share(me).range(owner)].to_vec())
                .collect(),
            buffers: vec![steps as f64 + 1.0],
        });
        Held::of(share(me), (&state, &[0; 2]), &parameters, &[steps as f64], next)
    }

    fn healed(held: Vec<Held<f64>>) -> Result<Healed<f64>, String> {
        let tensors = TENSORS;
        let optimizer = adam();
        let rule = Rule {
            optimizer: &optimizer,
            groups: &[],
            tensors: &tensors,
            missed: &[],
        };
        heal(rule, held)
    }

    fn check(found: Result<Healed<f64>, String>, steps: usize) {
        let found = found.unwrap();
        let (parameters, state) = alone(steps);
        assert_eq!(found.steps, steps as u64);
        assert_eq!(found.parameters, parameters);
        let slots: Vec<Vec<f64>> = state.slots().iter().map(|(_, numbers)| numbers.clone()).collect();
        assert_eq!(found.slots, slots);
        assert_eq!(found.buffers, [steps as f64]);
    }

    #[test]
    fn parts_leave_nothing_out() {
        let all: Vec<usize> = share(0).bounds().flatten().collect();
        assert_eq!(all, (0..COUNT).collect::<Vec<_>>());
        assert_eq!(share(3).kept(), [3, 0]);
    }

    #[test]
    fn neighbours_have_what_was_lost() {
        for lost in 0..OWNERS {
            let left = (0..OWNERS).filter(|me| *me != lost);
            check(healed(left.map(|me| held(me, 5, false)).collect()), 5);
        }
        // Not next to each other.
        check(healed(vec![held(0, 5, false), held(2, 5, false)]), 5);
    }

    #[test]
    fn who_has_the_sum_does_the_step_that_others_have_done() {
        check(
            healed(vec![held(0, 5, true), held(1, 6, false), held(2, 5, true)]),
            6,
        );
    }

    #[test]
    fn tensors_without_a_gradient_are_left_as_they_are() {
        let behind = |me| {
            let mut held = held(me, 5, true);
            held.next.iter_mut().for_each(|next| next.tensors.truncate(1));
            held
        };
        let ahead = Held {
            parts: Vec::new(),
            ..held(1, 6, false)
        };
        let found = healed(vec![behind(0), behind(2), ahead]).unwrap();
        let ((before, _), (after, _)) = (alone(5), alone(6));
        let place = TENSORS[1].start;
        assert_eq!(found.parameters, [&after[..place], &before[place..]].concat());
        assert_eq!(found.missed, [0, 1]);
    }

    #[test]
    fn a_tensor_that_comes_late_begins_as_if_all_did() {
        let late = |me| {
            let mut held = held(me, 5, true);
            held.missed = vec![0, 5];
            held.parts.iter_mut().for_each(|part| {
                part.parameters = numbers(0)[share(me).range(part.owner)].to_vec();
                part.slots
                    .iter_mut()
                    .for_each(|slot| slot.iter_mut().for_each(|number| *number = 0.0));
            });
            held
        };
        let ahead = Held {
            parts: Vec::new(),
            ..held(1, 6, false)
        };
        let found = healed(vec![late(0), late(2), ahead]).unwrap();
        let (mut first, mut state) = (numbers(0), State::new(&adam(), COUNT));
        let tensors = TENSORS;
        update_alone(
            &adam(),
            Step::new(RATE, &tensors),
            &mut state,
            &mut first,
            &numbers(6),
        )
        .unwrap();
        let place = TENSORS[1].start;
        assert_eq!(found.parameters[place..], first[place..]);
        assert_ne!(found.parameters[..place], first[..place]);
    }

    #[test]
    fn a_step_that_nobody_has_done_is_not_done() {
        check(
            healed(vec![held(0, 5, true), held(1, 5, false), held(2, 5, true)]),
            5,
        );
    }

    #[test]
    fn copies_from_before_the_step_do_no_harm() {
        // Handed over before the step, by workers who are lost, and by one who has the sum.
        let copies = [held(0, 5, false), held(1, 5, false)];
        let left = [held(3, 6, false), held(1, 5, true), held(2, 5, true)];
        check(healed([copies.to_vec(), left.to_vec()].concat()), 6);
    }

    #[test]
    fn a_part_that_is_lost_is_named() {
        let told = healed(vec![held(1, 5, false), held(0, 5, false)]).unwrap_err();
        assert_eq!(
            told,
            "part 3 of 4 of what the optimizer remembers is lost with its owner and his neighbour"
        );
        assert!(healed(Vec::new()).is_err());
        let behind = healed(vec![held(0, 5, false), held(1, 6, false)]).unwrap_err();
        assert!(behind.contains("has not got the sum"), "{behind}");
    }

    #[test]
    fn what_is_held_survives_bytes() {
        let one = held(2, 3, true);
        assert_eq!(Held::from_bytes(&one.to_bytes().unwrap()), Ok(one));
        assert!(Held::<f64>::from_bytes(&[1, 2]).is_err());
    }
}
