//! Settings, clipping, groups, states, and what is refused.

use std::ops::Range;

use crate::error::NativeError;
use crate::optim::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, Clip, Ftrl, Group, Lamb, Optimizer, RmsProp, Sgd, State, Step,
    prepare, trust_ratios, update, update_alone,
};

/// One tensor.
fn one(length: usize) -> [Range<usize>; 1] {
    std::array::from_fn(|_| 0..length)
}

fn refused(optimizer: impl Into<Optimizer>, about: &str) {
    let optimizer = optimizer.into();
    match optimizer.check() {
        Err(NativeError::Description(told)) => {
            assert!(told.contains(about), "{told:?} says nothing of {about}")
        }
        other => panic!("{optimizer:?}: {other:?}"),
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    refused(Sgd::new(-0.1), "lr must be 0 or more, it is -0.1");
    refused(Sgd::new(f64::NAN), "lr");
    refused(Sgd::new(f64::INFINITY), "lr");
    refused(Sgd::new(0.1).weight_decay(-1.0), "weight_decay");
    refused(Sgd::new(0.1).momentum(-0.1), "momentum");
    refused(Sgd::new(0.1).dampening(f64::NAN), "dampening");
    refused(Sgd::new(0.1).nesterov(true), "nesterov");
    refused(
        Sgd::new(0.1).nesterov(true).momentum(0.9).dampening(0.1),
        "nesterov",
    );
    refused(Adam::new(0.1).betas([1.0, 0.9]), "betas");
    refused(Adam::new(0.1).betas([0.9, -0.1]), "betas");
    refused(Adam::new(0.1).eps(-1.0), "eps");
    refused(AdamW::new(0.1).betas([0.9, f64::NAN]), "betas");
    refused(AdamW::new(-1.0), "AdamW: lr");
    refused(Adagrad::new(0.1).lr_decay(-1.0), "lr_decay");
    refused(
        Adagrad::new(0.1).initial_accumulator_value(-1.0),
        "initial_accumulator_value",
    );
    refused(Adadelta::new(0.1).rho(1.1), "rho");
    refused(Adadelta::new(0.1).eps(-1.1), "eps");
    refused(Adamax::new(0.1).betas([0.9, 1.0]), "betas");
    refused(RmsProp::new(0.1).alpha(-0.1), "alpha");
    refused(RmsProp::new(0.1).momentum(-0.1), "momentum");
    refused(Ftrl::new(0.1).learning_rate_power(0.5), "learning_rate_power");
    refused(
        Ftrl::new(0.1).initial_accumulator_value(-0.1),
        "initial_accumulator_value",
    );
    refused(Ftrl::new(0.1).l1(-0.1), "l1");
    refused(Ftrl::new(0.1).l2(-0.1), "l2");
    refused(Ftrl::new(0.1).l2_shrinkage(-0.1), "l2_shrinkage");
    refused(Lamb::new(0.1).betas([0.9, 1.0]), "betas");
    refused(Lamb::new(0.1).weight_decay(-0.1), "weight_decay");
}

#[test]
fn settings_are_written_and_read() {
    let optimizer: Optimizer = Sgd::new(0.25).momentum(0.5).into();
    let text = serde_json::to_string(&optimizer).unwrap();
    assert_eq!(
        text,
        r#"{"kind":"Sgd","lr":0.25,"momentum":0.5,"nesterov":false,"dampening":0.0,"weight_decay":0.0}"#
    );
    assert_eq!(serde_json::from_str::<Optimizer>(&text).unwrap(), optimizer);
    for kind in Optimizer::KINDS {
        let read: Optimizer = serde_json::from_str(&format!(r#"{{"kind":"{kind}"}}"#)).unwrap();
        assert_eq!(read.told(), *kind);
        assert_eq!(read.check(), Ok(()));
    }
    assert!(serde_json::from_str::<Optimizer>(r#"{"kind":"Adam","beta":0.9}"#).is_err());
    assert!(serde_json::from_str::<Optimizer>(r#"{"kind":"Adamm"}"#).is_err());
}

/// One step of SGD with a rate of one from zeros: gradients as they are used, with their sign turned.
fn used(clip: Clip, gradient: &[f64]) -> Vec<f64> {
    let mut parameters = vec![0.0; gradient.len()];
    let optimizer = Sgd::new(1.0).into();
    let mut state = State::new(&optimizer, gradient.len());
    let tensors = one(gradient.len());
    let step = Step {
        clip,
        ..Step::new(1.0, &tensors)
    };
    update_alone(&optimizer, step, &mut state, &mut parameters, gradient).unwrap();
    parameters.iter().map(|value| -value).collect()
}

#[test]
fn gradients_are_scaled_then_kept_between_values() {
    let gradient = [-4.0, -1.0, 0.5, 2.0, 4.0];
    assert_eq!(used(Clip::NONE, &gradient), gradient);
    assert_eq!(
        used(Clip::by_value(-1.5, 1.0).unwrap(), &gradient),
        [-1.5, -1.0, 0.5, 1.0, 1.0]
    );
    let both = Clip {
        scale: 0.5,
        least: -1.5,
        most: 1.0,
    };
    assert_eq!(used(both, &gradient), [-1.5, -0.5, 0.25, 1.0, 1.0]);
}

#[test]
fn clipping_does_not_hide_what_is_no_number() {
    let clipped = used(
        Clip::by_value(-1.0, 1.0).unwrap(),
        &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY],
    );
    assert!(clipped[0].is_nan());
    assert_eq!(clipped[1..], [1.0, -1.0]);
}

#[test]
fn norms_are_only_made_smaller() {
    assert_eq!(Clip::by_norm(2.0, 1.0).unwrap(), Clip::NONE);
    assert_eq!(Clip::by_norm(2.0, 0.0).unwrap(), Clip::NONE);
    let clip = Clip::by_norm(2.0, 8.0).unwrap();
    assert!((clip.scale - 0.25).abs() < 1e-6 && clip.scale < 0.25);
    assert!(Clip::by_norm(2.0, f64::NAN).unwrap().scale.is_nan());
    assert!(Clip::by_norm(0.0, 1.0).is_err());
    assert!(Clip::by_norm(f64::NAN, 1.0).is_err());
    assert!(Clip::by_value(1.0, -1.0).is_err());
    assert!(Clip::by_value(f64::NAN, 1.0).is_err());
}

#[test]
fn groups_have_rates_and_decays_of_their_own() {
    let groups = [
        Group {
            tensors: vec![1],
            lr_factor: 0.5,
            weight_decay: None,
        },
        Group {
            tensors: vec![2, 3],
            lr_factor: 2.0,
            weight_decay: Some(0.0),
        },
    ];
    let tensors = [0..1, 8..9, 16..17, 24..25];
    let optimizer: Optimizer = Sgd::new(0.25).weight_decay(1.0).into();
    let mut parameters = vec![1.0; 32];
    let mut state = State::new(&optimizer, 32);
    let step = Step {
        groups: &groups,
        ..Step::new(0.25, &tensors)
    };
    update_alone(&optimizer, step, &mut state, &mut parameters, &[1.0; 32]).unwrap();
    let found: Vec<f64> = tensors.iter().map(|place| parameters[place.start]).collect();
    assert_eq!(found, [0.5, 0.75, 0.5, 0.5]);
    assert_eq!(parameters[1..8], [1.0; 7]);
}

#[test]
fn groups_that_cannot_be_are_refused() {
    let group = |tensors: &[usize], lr_factor, weight_decay| Group {
        tensors: tensors.to_vec(),
        lr_factor,
        weight_decay,
    };
    let sgd: Optimizer = Sgd::new(0.1).into();
    assert_eq!(sgd.check_groups(&[group(&[0, 2], 0.0, Some(0.1))], 3), Ok(()));
    for wrong in [
        vec![group(&[3], 1.0, None)],
        vec![group(&[0], -1.0, None)],
        vec![group(&[0], 1.0, Some(-1.0))],
        vec![group(&[0, 0], 1.0, None)],
        vec![group(&[1], 1.0, None), group(&[1], 2.0, None)],
    ] {
        assert!(
            matches!(sgd.check_groups(&wrong, 3), Err(NativeError::Description(_))),
            "{wrong:?}"
        );
    }
    let ftrl: Optimizer = Ftrl::new(0.1).into();
    assert!(ftrl.check_groups(&[group(&[0], 1.0, Some(0.1))], 3).is_err());
    assert_eq!(ftrl.check_groups(&[group(&[0], 2.0, None)], 3), Ok(()));
    let read: Group = serde_json::from_str(r#"{"tensors":[1]}"#).unwrap();
    assert_eq!(read, group(&[1], 1.0, None));
}

#[test]
fn a_state_can_be_saved_and_goes_on() {
    let optimizer: Optimizer = Adam::new(0.1).into();
    let tensors = one(4);
    let step = Step::new(0.1, &tensors);
    let gradient = |round: usize| [0.5, -1.0, 0.25, round as f64];
    let mut parameters = vec![1.0; 4];
    let mut state = State::new(&optimizer, 4);
    for round in 0..3 {
        update_alone(&optimizer, step, &mut state, &mut parameters, &gradient(round)).unwrap();
    }
    let mut again = State::new(&optimizer, 4);
    again.set_steps(state.steps());
    for ((name, to), (other, from)) in again.slots_mut().zip(state.slots()) {
        assert_eq!(name, *other);
        to.copy_from_slice(from);
    }
    assert_eq!(again, state);
    let mut resumed = parameters.clone();
    update_alone(&optimizer, step, &mut state, &mut parameters, &gradient(3)).unwrap();
    update_alone(&optimizer, step, &mut again, &mut resumed, &gradient(3)).unwrap();
    assert_eq!(resumed, parameters);
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let adam: Optimizer = Adam::new(0.1).into();
    let mut parameters = vec![1.0; 8];
    let gradient = vec![1.0; 8];
    let mut run =
        |of: &Optimizer, length: usize, steps: u64, lr: f64, tensors: &[Range<usize>], end: usize| {
            let mut state = State::new(of, length);
            state.set_steps(steps);
            update(
                &adam,
                Step::new(lr, tensors),
                &mut state,
                0..end,
                &mut parameters,
                &gradient,
            )
        };
    assert_eq!(run(&adam, 8, 1, 0.1, &one(8), 8), Ok(()));
    let others = [
        Adadelta::new(0.1).into(),
        Sgd::new(0.1).into(),
        Adam::new(0.1).amsgrad(true).into(),
    ];
    for other in others {
        assert!(run(&other, 8, 1, 0.1, &one(8), 8).is_err(), "{other:?}");
    }
    assert!(run(&adam, 7, 1, 0.1, &one(8), 8).is_err());
    assert!(run(&adam, 8, 0, 0.1, &one(8), 8).is_err());
    assert!(run(&adam, 8, 1, f64::NAN, &one(8), 8).is_err());
    assert!(run(&adam, 8, 1, 0.1, &one(9), 8).is_err());
    assert!(run(&adam, 8, 1, 0.1, &[4..8, 0..4], 8).is_err());
    assert!(run(&adam, 8, 1, 0.1, &one(8), 9).is_err());
    let mut state = State::new(&adam, 8);
    assert!(
        update_alone(
            &adam,
            Step::new(0.1, &one(8)),
            &mut state,
            &mut [1.0; 8],
            &[1.0; 7]
        )
        .is_err()
    );
}

#[test]
fn lamb_needs_trust_ratios() {
    let lamb: Optimizer = Lamb::new(0.1).into();
    let tensors = one(8);
    let mut state = State::new(&lamb, 8);
    state.begin_step();
    let (mut parameters, gradient) = (vec![1.0; 8], vec![1.0; 8]);
    let step = Step::new(0.1, &tensors);
    assert!(
        prepare(&lamb, step, &mut state, 0..8, &parameters, &gradient)
            .unwrap()
            .is_some()
    );
    assert!(update(&lamb, step, &mut state, 0..8, &mut parameters, &gradient).is_err());
    let step = Step {
        trust: &[1.0],
        ..step
    };
    assert_eq!(
        update(&lamb, step, &mut state, 0..8, &mut parameters, &gradient),
        Ok(())
    );
    assert_eq!(trust_ratios(&[16.0, 0.0, 4.0], &[4.0, 1.0, 0.0]), [2.0, 1.0, 1.0]);
}

#[test]
fn ftrl_makes_zeros_and_rests_without_a_rate() {
    let ftrl: Optimizer = Ftrl::new(0.5).l1(10.0).into();
    let mut state = State::new(&ftrl, 2);
    let mut parameters = vec![0.5, -0.5];
    update_alone(
        &ftrl,
        Step::new(0.0, &one(2)),
        &mut state,
        &mut parameters,
        &[1.0, 1.0],
    )
    .unwrap();
    assert_eq!(parameters, [0.5, -0.5]);
    update_alone(
        &ftrl,
        Step::new(0.5, &one(2)),
        &mut state,
        &mut parameters,
        &[1.0, f64::NAN],
    )
    .unwrap();
    assert_eq!(parameters[0], 0.0);
    assert!(parameters[1].is_nan());
}

#[test]
fn a_variance_of_almost_nothing_has_a_root() {
    let optimizer: Optimizer = RmsProp::new(0.01).alpha(0.5).centered(true).into();
    let mut state = State::new(&optimizer, 64);
    let gradient: Vec<f32> = (1..=64).map(|number| number as f32 / 7.0).collect();
    let mut parameters = vec![0.0f32; 64];
    for _ in 0..200 {
        update_alone(
            &optimizer,
            Step::new(1e-9, &one(64)),
            &mut state,
            &mut parameters,
            &gradient,
        )
        .unwrap();
    }
    assert!(parameters.iter().all(|value| value.is_finite()));
}
