//! Whoever owns what, the results are the same, bit for bit.

use std::ops::Range;

use crate::optim::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, Clip, Ftrl, Group, Lamb, Optimizer, Prepared, RmsProp, Sgd,
    State, Step, combine, norm, prepare, squares, trust_ratios, update, update_alone,
};
use crate::real::Real;

use super::layout;

const SIZES: [usize; 5] = [5, 4096, 9001, 0, 130];
const STEPS: u64 = 3;

fn optimizers() -> Vec<Optimizer> {
    vec![
        Sgd::new(0.1).into(),
        Sgd::new(0.1)
            .momentum(0.9)
            .nesterov(true)
            .weight_decay(0.01)
            .into(),
        Sgd::new(0.1).momentum(0.9).dampening(0.1).into(),
        Adam::new(0.01).weight_decay(0.1).into(),
        AdamW::new(0.01).amsgrad(true).into(),
        Adagrad::new(0.01).initial_accumulator_value(0.1).into(),
        Adadelta::new(1.0).into(),
        Adamax::new(0.01).into(),
        RmsProp::new(0.01).into(),
        RmsProp::new(0.01).momentum(0.9).centered(true).into(),
        Ftrl::new(0.1).l1(0.01).into(),
        Ftrl::new(0.1).learning_rate_power(-0.3).into(),
        Lamb::new(0.01).weight_decay(0.1).into(),
    ]
}

fn groups(optimizer: &Optimizer) -> Vec<Group> {
    let weight_decay = (optimizer.told() != "Ftrl").then_some(0.5);
    vec![Group {
        tensors: vec![2],
        lr_factor: 0.5,
        weight_decay,
    }]
}

/// Numbers between -1 and 1, zero in the padding.
fn noise<T: Real>(seed: u64, tensors: &[Range<usize>], length: usize) -> Vec<T> {
    let mut flat = vec![T::zero(); length];
    let mut state = seed;
    for place in tensors.iter().cloned().flatten() {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        flat[place] = T::of((state >> 40) as f64 / (1u64 << 23) as f64 - 1.0);
    }
    flat
}

/// What an owner knows: the rest is no number, so that nobody can use it unseen.
fn only<T: Real>(range: &Range<usize>, values: &[T]) -> Vec<T> {
    let mut known = vec![T::nan(); values.len()];
    known[range.clone()].copy_from_slice(&values[range.clone()]);
    known
}

fn bits<T: Real>(values: &[T]) -> Vec<u64> {
    values.iter().map(|value| value.wide().to_bits()).collect()
}

/// Parameters after some steps of owners whose ranges end at these places.
fn train<T: Real>(optimizer: &Optimizer, ends: &[usize]) -> Vec<T> {
    let (tensors, length) = layout::<T>(&SIZES);
    let bounds: Vec<usize> = [0]
        .into_iter()
        .chain(ends.iter().copied())
        .chain([length])
        .collect();
    let ranges: Vec<Range<usize>> = bounds.windows(2).map(|pair| pair[0]..pair[1]).collect();
    let groups = groups(optimizer);
    let mut parameters: Vec<T> = noise(1, &tensors, length);
    let mut states: Vec<State<T>> = ranges.iter().map(|_| State::new(optimizer, length)).collect();
    for round in 0..STEPS {
        let gradient: Vec<T> = noise(round + 2, &tensors, length);
        let send = |range: &Range<usize>| {
            (
                range.clone(),
                squares(&tensors, range.clone(), &only(range, &gradient)),
            )
        };
        let norm = norm(&combine(&tensors, &ranges.iter().map(send).collect::<Vec<_>>()).unwrap());
        let clip = Clip::by_norm(20.0, norm)
            .unwrap()
            .and_by_value(-0.2, 0.25)
            .unwrap();
        assert!(clip.scale < 1.0);
        let step = Step {
            clip,
            groups: &groups,
            ..Step::new(0.1, &tensors)
        };
        let mut prepared = Vec::new();
        for (range, state) in ranges.iter().zip(&mut states) {
            state.begin_step();
            let (known, gradient) = (only(range, &parameters), only(range, &gradient));
            prepared.extend(prepare(optimizer, step, state, range.clone(), &known, &gradient).unwrap());
        }
        let trust = trust(&tensors, &ranges, prepared);
        let mut next = parameters.clone();
        for (range, state) in ranges.iter().zip(&mut states) {
            let (mut known, gradient) = (only(range, &parameters), only(range, &gradient));
            let step = Step {
                trust: &trust,
                ..step
            };
            update(optimizer, step, state, range.clone(), &mut known, &gradient).unwrap();
            next[range.clone()].copy_from_slice(&known[range.clone()]);
        }
        parameters = next;
    }
    parameters
}

/// What owners compute from what all of them sent.
fn trust(tensors: &[Range<usize>], ranges: &[Range<usize>], prepared: Vec<Prepared>) -> Vec<f64> {
    if prepared.is_empty() {
        return Vec::new();
    }
    let all = |of: fn(&Prepared) -> &Vec<f64>| {
        let sent = ranges
            .iter()
            .zip(&prepared)
            .map(|(range, sent)| (range.clone(), of(sent).clone()));
        combine(tensors, &sent.collect::<Vec<_>>()).unwrap()
    };
    trust_ratios(&all(|sent| &sent.parameters), &all(|sent| &sent.directions))
}

fn compare_owners<T: Real>() {
    for optimizer in optimizers() {
        let alone = train::<T>(&optimizer, &[]);
        assert!(
            alone.iter().all(|value| value.is_finite()),
            "{}",
            optimizer.told()
        );
        let cuts: [&[usize]; 4] = [&[6001], &[3, 4999], &[1, 77, 4100, 4103], &[4096, 8192]];
        for ends in cuts {
            assert_eq!(
                bits(&train::<T>(&optimizer, ends)),
                bits(&alone),
                "{optimizer:?} {ends:?}"
            );
        }
    }
}

#[test]
fn owners_change_nothing_in_double_precision() {
    compare_owners::<f64>();
}

#[test]
fn owners_change_nothing_in_single_precision() {
    compare_owners::<f32>();
}

#[test]
fn one_who_owns_all_needs_one_call() {
    let (tensors, length) = layout::<f64>(&SIZES);
    for optimizer in optimizers() {
        let groups = groups(&optimizer);
        let mut parameters: Vec<f64> = noise(1, &tensors, length);
        let mut state = State::new(&optimizer, length);
        for round in 0..STEPS {
            let gradient: Vec<f64> = noise(round + 2, &tensors, length);
            let norm =
                norm(&combine(&tensors, &[(0..length, squares(&tensors, 0..length, &gradient))]).unwrap());
            let clip = Clip::by_norm(20.0, norm)
                .unwrap()
                .and_by_value(-0.2, 0.25)
                .unwrap();
            let step = Step {
                clip,
                groups: &groups,
                ..Step::new(0.1, &tensors)
            };
            update_alone(&optimizer, step, &mut state, &mut parameters, &gradient).unwrap();
        }
        assert_eq!(
            bits(&parameters),
            bits(&train::<f64>(&optimizer, &[])),
            "{optimizer:?}"
        );
    }
}

#[test]
fn an_owner_can_update_bit_by_bit() {
    let optimizer: Optimizer = Adam::new(0.01).into();
    let (tensors, length) = layout::<f32>(&SIZES);
    let gradient: Vec<f32> = noise(2, &tensors, length);
    let run = |cuts: &[usize]| {
        let mut parameters: Vec<f32> = noise(1, &tensors, length);
        let mut state = State::new(&optimizer, length);
        for _ in 0..STEPS {
            state.begin_step();
            for pair in cuts.windows(2) {
                let step = Step::new(0.01, &tensors);
                update(
                    &optimizer,
                    step,
                    &mut state,
                    pair[0]..pair[1],
                    &mut parameters,
                    &gradient,
                )
                .unwrap();
            }
        }
        (bits(&parameters), state)
    };
    assert_eq!(run(&[0, length]), run(&[0, 11, 5000, 5001, length]));
}

#[test]
fn norms_are_right() {
    let (tensors, length) = layout::<f32>(&SIZES);
    let values: Vec<f32> = noise(9, &tensors, length);
    let sums = combine(&tensors, &[(0..length, squares(&tensors, 0..length, &values))]).unwrap();
    assert_eq!(sums.len(), SIZES.len());
    for (sum, place) in sums.iter().zip(&tensors) {
        let wanted: f64 = values[place.clone()]
            .iter()
            .map(|value| f64::from(*value).powi(2))
            .sum();
        assert!((sum - wanted).abs() <= 1e-12 * wanted, "{sum}, not {wanted}");
    }
    let wanted: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum();
    assert!((norm(&sums) - wanted.sqrt()).abs() < 1e-12 * wanted.sqrt());
}

#[test]
fn owners_of_whole_blocks_send_little() {
    let (tensors, length) = layout::<f32>(&[10_000]);
    let values: Vec<f32> = noise(9, &tensors, length);
    assert_eq!(squares(&tensors, 4096..8192, &values).len(), 1);
    assert_eq!(squares(&tensors, 4096..length, &values).len(), 2);
    assert_eq!(squares(&tensors, 4000..8192, &values).len(), 97);
}

#[test]
fn sums_that_do_not_fit_are_refused() {
    let tensors = [0..5, 16..5000];
    let values = vec![1.0; 5000];
    let of = |range: Range<usize>| (range.clone(), squares(&tensors, range, &values));
    assert_eq!(
        combine(&tensors, &[of(0..2000), of(2000..5000)]),
        Ok(vec![5.0, 4984.0])
    );
    let short = vec![(0..5000, vec![1.0])];
    let long = vec![(0..5000, vec![1.0; 5])];
    let swapped = vec![of(2000..5000), of(0..2000)];
    let gap = vec![of(0..2000), of(2001..5000)];
    let end = vec![of(0..2000)];
    for wrong in [short, long, swapped, gap, end, Vec::new()] {
        assert!(
            combine(&tensors, &wrong).is_err(),
            "{:?}",
            wrong.iter().map(|(range, _)| range).collect::<Vec<_>>()
        );
    }
}
