//! Against numbers from PyTorch: see `expected.py`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::optim::{Clip, Group, Optimizer, State, Step, combine, norm, squares, update_alone};
use crate::real::Real;

use super::layout;

#[derive(Deserialize)]
struct Expected {
    sizes: Vec<usize>,
    start: Vec<f64>,
    gradients: Vec<Vec<f64>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    optimizer: Optimizer,
    clip_norm: Option<f64>,
    clip_value: Option<f64>,
    #[serde(default)]
    groups: Vec<Group>,
    double: Vec<f64>,
    single: Vec<f64>,
    slots: BTreeMap<String, Vec<f64>>,
}

fn expected() -> Expected {
    serde_json::from_str(include_str!("../expected.json")).unwrap()
}

/// Parameters and state after all steps.
fn train<T: Real>(expected: &Expected, case: &Case) -> (Vec<T>, State<T>) {
    let (tensors, length) = layout::<T>(&expected.sizes);
    let spread = |numbers: &[f64]| {
        let mut flat = vec![T::zero(); length];
        let places = tensors.iter().cloned().flatten();
        places
            .zip(numbers)
            .for_each(|(place, number)| flat[place] = T::of(*number));
        flat
    };
    let mut parameters = spread(&expected.start);
    let mut state = State::new(&case.optimizer, length);
    for gradient in &expected.gradients {
        let gradient = spread(gradient);
        let mut step = Step {
            groups: &case.groups,
            ..Step::new(case.optimizer.lr(), &tensors)
        };
        if let Some(most) = case.clip_norm {
            let all = (0..length, squares(&tensors, 0..length, &gradient));
            step.clip = Clip::by_norm(most, norm(&combine(&tensors, &[all]).unwrap())).unwrap();
        }
        if let Some(most) = case.clip_value {
            step.clip = Clip::by_value(-most, most).unwrap();
        }
        update_alone(&case.optimizer, step, &mut state, &mut parameters, &gradient).unwrap();
    }
    let is_padding = |place: usize| !tensors.iter().any(|tensor| tensor.contains(&place));
    assert!(
        (0..length)
            .filter(|place| is_padding(*place))
            .all(|place| parameters[place] == T::zero())
    );
    (parameters, state)
}

/// Without the padding.
fn compact<T: Real>(expected: &Expected, flat: &[T]) -> Vec<f64> {
    let (tensors, _) = layout::<T>(&expected.sizes);
    tensors
        .into_iter()
        .flatten()
        .map(|place| flat[place].wide())
        .collect()
}

fn assert_close(what: &str, found: &[f64], wanted: &[f64], tolerance: f64) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (place, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        // A sum of numbers around one that comes out near zero is as exact as those numbers are, and not
        // more.
        let size = wanted.abs().max(0.01);
        assert!(
            (found - wanted).abs() <= tolerance * size,
            "{what} [{place}]: {found}, not {wanted}"
        );
    }
}

#[test]
fn double_precision_is_as_pytorch_has_it() {
    let expected = expected();
    for case in &expected.cases {
        let (parameters, state) = train::<f64>(&expected, case);
        assert_close(&case.name, &compact(&expected, &parameters), &case.double, 1e-12);
        let names: Vec<&str> = state.slots().iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), case.slots.len(), "{}: {names:?}", case.name);
        for (name, numbers) in state.slots() {
            let what = format!("{name} of {}", case.name);
            assert_close(&what, &compact(&expected, numbers), &case.slots[*name], 1e-12);
        }
        assert_eq!(state.steps(), 20);
    }
}

#[test]
fn single_precision_is_as_pytorch_has_it() {
    let expected = expected();
    for case in &expected.cases {
        let (parameters, _) = train::<f32>(&expected, case);
        assert_close(&case.name, &compact(&expected, &parameters), &case.single, 1e-5);
    }
}

#[test]
fn all_kinds_are_compared() {
    let expected = expected();
    let told = |kind: &&&str| !expected.cases.iter().any(|case| case.optimizer.told() == **kind);
    let missing: Vec<&&str> = Optimizer::KINDS.iter().filter(told).collect();
    assert_eq!(missing, Vec::<&&str>::new());
}
