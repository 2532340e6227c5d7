use serde::Deserialize;

use super::{Mode, OneCycle, Plateau, PlateauState, Schedule, Stage};

#[derive(Deserialize)]
struct Expected {
    base: f64,
    cases: Vec<Case>,
    scores: Vec<f64>,
    plateaus: Vec<PlateauCase>,
}

#[derive(Deserialize)]
struct Case {
    schedule: Schedule,
    rates: Vec<f64>,
}

#[derive(Deserialize)]
struct PlateauCase {
    plateau: Plateau,
    rates: Vec<f64>,
}

fn expected() -> Expected {
    serde_json::from_str(include_str!("expected.json")).unwrap()
}

fn assert_rates(what: &str, found: impl Iterator<Item = f64>, wanted: &[f64]) {
    let found: Vec<f64> = found.collect();
    assert_eq!(found.len(), wanted.len());
    for (step, (rate, wanted)) in found.iter().zip(wanted).enumerate() {
        assert!(
            (rate - wanted).abs() <= 1e-12 * wanted.abs().max(1e-3),
            "{what} at {step}: {rate}, not {wanted}"
        );
    }
}

#[test]
fn schedules_are_as_pytorch_has_them() {
    let expected = expected();
    assert!(expected.cases.len() >= 9);
    for Case { schedule, rates } in &expected.cases {
        assert_eq!(schedule.check(), Ok(()));
        let steps = 0..rates.len() as u64;
        assert_rates(
            &format!("{schedule:?}"),
            steps.clone().map(|step| schedule.rate(expected.base, step, 0)),
            rates,
        );
        let by_epoch = Schedule::PerEpoch {
            of: Box::new(schedule.clone()),
        };
        assert_rates(
            "by epoch",
            steps.map(|epoch| by_epoch.rate(expected.base, 1000 * epoch, epoch)),
            rates,
        );
    }
}

#[test]
fn plateaus_are_as_pytorch_has_them() {
    let expected = expected();
    for PlateauCase { plateau, rates } in &expected.plateaus {
        let schedule = Schedule::Plateau(plateau.clone());
        assert_eq!(schedule.check(), Ok(()));
        let mut state = PlateauState::new(plateau.clone());
        let mut before = 0;
        let found = expected.scores.iter().map(|score| {
            let is_cut = state.observe(*score);
            assert_eq!(state.cuts(), before + u32::from(is_cut));
            before = state.cuts();
            // As a checkpoint would hold it.
            state = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
            schedule.rate_after_cuts(state.cuts(), expected.base, 5, 1)
        });
        assert_rates(&format!("{plateau:?}"), found, rates);
        assert!(state.cuts() > 0);
    }
}

#[test]
fn the_rate_gets_smaller_by_the_count_of_steps() {
    let schedule = Schedule::Default { decay: 0.5 };
    assert_rates(
        "decay",
        (0..4).map(|step| schedule.rate(1.0, step, 9)),
        &[1.0, 1.0 / 1.5, 0.5, 1.0 / 2.5],
    );
    let constant: Schedule = serde_json::from_str(r#"{"kind":"Default"}"#).unwrap();
    assert_eq!(constant.rate(0.3, 1_000_000, 7), 0.3);
}

#[test]
fn exponentials_come_in_stairs_or_not() {
    let of = |stair_case| Schedule::Exponential {
        decay_step: 2,
        decay_rate: 0.25,
        stair_case,
    };
    assert_rates(
        "smooth",
        (0..5).map(|step| of(false).rate(1.0, step, 0)),
        &[1.0, 0.5, 0.25, 0.125, 0.0625],
    );
    assert_rates(
        "stairs",
        (0..5).map(|step| of(true).rate(1.0, step, 0)),
        &[1.0, 1.0, 0.25, 0.25, 0.0625],
    );
}

#[test]
fn rates_stay_where_a_schedule_ends() {
    assert_eq!(
        Schedule::Poly {
            power: 2.0,
            max_iteration: 10
        }
        .rate(1.0, 11, 0),
        0.0
    );
    assert_eq!(
        Schedule::Poly {
            power: 2.0,
            max_iteration: 10
        }
        .rate(1.0, 5, 0),
        0.25
    );
    assert_eq!(
        Schedule::Cosine {
            total: 10,
            floor: 0.125
        }
        .rate(1.0, 11, 0),
        0.125
    );
    assert_rates(
        "cosine",
        [Schedule::Cosine {
            total: 10,
            floor: 0.5,
        }
        .rate(1.0, 5, 0)]
        .into_iter(),
        &[0.75],
    );
    let cycle = Schedule::OneCycle(OneCycle::new(1.0, 10));
    assert_eq!(cycle.rate(5.0, 99, 0), cycle.rate(5.0, 9, 0));
    assert_rates(
        "cycle",
        [cycle.rate(5.0, 9, 0), cycle.rate(5.0, 2, 0)].into_iter(),
        &[1.0 / 25.0 / 1e4, 1.0],
    );
}

#[test]
fn a_warm_up_ends_with_the_full_rate() {
    let then = Box::new(Schedule::Step {
        step_size: 2,
        gamma: 0.5,
    });
    let schedule = Schedule::WarmUp { steps: 4, then };
    let wanted = [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 0.5, 0.5, 0.25];
    assert_rates("warm-up", (0..9).map(|step| schedule.rate(1.0, step, 0)), &wanted);
}

fn warm_then(schedule: Schedule) -> Schedule {
    let stages = vec![
        Stage {
            schedule: Schedule::Increase { delta: 0.5 },
            steps: 4,
        },
        Stage { schedule, steps: 100 },
    ];
    Schedule::Sequence {
        steps_per_epoch: 2,
        stages,
    }
}

#[test]
fn a_stage_begins_with_the_rate_that_the_last_one_ended_with() {
    let schedule = warm_then(Schedule::Step {
        step_size: 2,
        gamma: 0.5,
    });
    let wanted = [1.0, 1.5, 2.0, 2.5, 3.0, 3.0, 1.5, 1.5, 0.75];
    assert_rates(
        "sequence",
        (0..9).map(|step| schedule.rate(1.0, step, step / 2)),
        &wanted,
    );
    // The last goes on.
    assert_eq!(schedule.rate(1.0, 4 + 2 * 60, 62), 3.0 * 0.5f64.powi(60));
}

#[test]
fn a_polynomial_in_a_sequence_counts_the_whole_run() {
    let schedule = warm_then(Schedule::Poly {
        power: 1.0,
        max_iteration: 10,
    });
    let wanted = [2.5, 3.0, 1.5, 1.2];
    assert_rates(
        "poly",
        (3..7).map(|step| schedule.rate(1.0, step, step / 2)),
        &wanted,
    );
}

#[test]
fn epochs_of_a_stage_count_from_its_begin() {
    let schedule = warm_then(Schedule::PerEpoch {
        of: Box::new(Schedule::Step {
            step_size: 1,
            gamma: 0.5,
        }),
    });
    // The first stage takes two epochs of two steps.
    let wanted = [3.0, 3.0, 1.5, 1.5, 0.75];
    assert_rates(
        "epochs",
        (4..9).map(|step| schedule.rate(1.0, step, step / 2)),
        &wanted,
    );
}

#[test]
fn a_plateau_sees_the_metric_when_its_stage_holds() {
    let plateau = Plateau {
        patience: 0,
        factor: 0.5,
        ..Plateau::new("accuracy")
    };
    let schedule = warm_then(Schedule::Plateau(plateau.clone()));
    assert_eq!(schedule.plateau(4, 2), None);
    assert_eq!(schedule.plateau(5, 2), Some(&plateau));
    assert_eq!(schedule.rate_after_cuts(2, 1.0, 5, 2), 0.75);
    let warm = Schedule::WarmUp {
        steps: 3,
        then: Box::new(Schedule::Plateau(plateau.clone())),
    };
    assert_eq!(warm.plateau(2, 0), None);
    assert_eq!(warm.plateau(3, 0), Some(&plateau));
    assert_eq!(Schedule::Default { decay: 0.0 }.plateau(3, 0), None);
}

#[test]
fn scores_that_are_no_numbers_are_never_better() {
    let mut state = PlateauState::new(Plateau {
        patience: 1,
        mode: Mode::Max,
        ..Plateau::default()
    });
    assert!(!state.observe(f64::NAN));
    assert_eq!(state.best(), None);
    assert!(state.observe(f64::INFINITY));
    assert!(!state.observe(0.5));
    assert_eq!((state.best(), state.cuts()), (Some(0.5), 1));
}

#[test]
fn a_plateau_takes_the_direction_of_its_metric() {
    let inside = |monitor: &str| Schedule::WarmUp {
        steps: 3,
        then: Box::new(Schedule::Plateau(Plateau::new(monitor))),
    };
    let mode = |schedule: &Schedule| schedule.plateau(3, 0).unwrap().mode;
    let direction = |name: &str| match name {
        "val_accuracy" => Some(true),
        "loss" => Some(false),
        _ => None,
    };
    for (monitor, expected) in [("val_accuracy", Mode::Max), ("loss", Mode::Min)] {
        let mut schedule = inside(monitor);
        schedule.settle(&direction).unwrap();
        assert_eq!(mode(&schedule), expected);
    }
    let refused = inside("speed").settle(&direction).unwrap_err().to_string();
    assert!(refused.contains("more or less of \"speed\""), "{refused}");
    let mut told = Schedule::Plateau(Plateau {
        mode: Mode::Min,
        ..Plateau::new("val_accuracy")
    });
    told.settle(&direction).unwrap();
    assert_eq!(mode(&told), Mode::Min);
}

#[test]
fn schedules_are_written_and_read() {
    let schedule = warm_then(Schedule::WarmUp {
        steps: 1,
        then: Box::new(Schedule::Plateau(Plateau::default())),
    });
    let text = serde_json::to_string(&schedule).unwrap();
    assert_eq!(serde_json::from_str::<Schedule>(&text).unwrap(), schedule);
    assert!(
        serde_json::from_str::<Schedule>(r#"{"kind":"Step","step_size":1,"gamma":1,"power":2}"#).is_err()
    );
    assert!(serde_json::from_str::<Schedule>(r#"{"kind":"Plateau","patient":1}"#).is_err());
    assert!(serde_json::from_str::<Schedule>(r#"{"kind":"OneCycle","max_lr":1}"#).is_err());
}

fn assert_refused(schedules: impl IntoIterator<Item = Schedule>) {
    for schedule in schedules {
        assert!(schedule.check().is_err(), "{schedule:?}");
    }
}

fn zero() -> Schedule {
    Schedule::Step {
        step_size: 0,
        gamma: 0.5,
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let exponential = |decay_step, decay_rate| Schedule::Exponential {
        decay_step,
        decay_rate,
        stair_case: false,
    };
    assert_refused([
        Schedule::Default { decay: -1.0 },
        Schedule::Poly {
            power: -1.0,
            max_iteration: 3,
        },
        Schedule::Poly {
            power: 1.0,
            max_iteration: 0,
        },
        exponential(0, 0.5),
        exponential(1, -0.5),
        zero(),
        Schedule::Step {
            step_size: 1,
            gamma: f64::NAN,
        },
        Schedule::MultiStep {
            step_sizes: vec![3, 2],
            gamma: 0.5,
        },
        Schedule::Increase { delta: -1.0 },
        Schedule::Cosine { total: 0, floor: 0.0 },
        Schedule::Cosine {
            total: 1,
            floor: -1.0,
        },
    ]);
    // Nothing divides by zero even if nobody checks.
    assert_eq!(zero().rate(1.0, 5, 0), 1.0);
}

#[test]
fn cycles_and_plateaus_that_cannot_be_are_refused() {
    let cycle = OneCycle::new(1.0, 10);
    let cycles = [
        OneCycle {
            pct_start: 1.0,
            ..cycle
        },
        OneCycle {
            total_steps: 0,
            ..cycle
        },
        OneCycle {
            max_lr: f64::NAN,
            ..cycle
        },
    ];
    assert_refused(cycles.map(Schedule::OneCycle));
    let plateaus = [
        Plateau {
            factor: 1.0,
            ..Plateau::default()
        },
        Plateau {
            epsilon: f64::NAN,
            ..Plateau::default()
        },
    ];
    assert_refused(plateaus.map(Schedule::Plateau));
}

#[test]
fn what_is_wrong_inside_is_refused_outside() {
    let stage = |schedule| Stage { schedule, steps: 5 };
    let sequence = |steps_per_epoch, stages| Schedule::Sequence {
        steps_per_epoch,
        stages,
    };
    let constant = Schedule::Default { decay: 0.0 };
    let plateau = || Schedule::Plateau(Plateau::default());
    assert_refused([
        Schedule::WarmUp {
            steps: 0,
            then: Box::new(constant.clone()),
        },
        Schedule::WarmUp {
            steps: 1,
            then: Box::new(zero()),
        },
        Schedule::PerEpoch { of: Box::new(zero()) },
        sequence(1, vec![stage(constant.clone()), stage(zero())]),
        sequence(1, Vec::new()),
        sequence(0, vec![stage(constant)]),
        sequence(1, vec![stage(warm_then(plateau())), stage(plateau())]),
    ]);
}
