//! Values worked out by hand.

use grampus_collective::{DType, Element};
use half::{bf16, f16};

use super::{arrays, metric, number, plain, text, update};
use crate::metrics::{Metric, Setting, Values};

const SCORES: [f32; 12] = [0.1, 0.7, 0.2, 0.5, 0.3, 0.2, 0.2, 0.3, 0.5, 0.4, 0.4, 0.2];

/// The value of one batch of floats with integer targets.
fn measure(metric: &Metric, shape: &[usize], predictions: &[f32], of: &[usize], targets: &[i64]) -> f64 {
    let mut state = metric.state();
    update(&mut state, shape, predictions, of, targets);
    number(&state)
}

fn floats(metric: &Metric, shape: &[usize], predictions: &[f64], targets: &[f64]) -> f64 {
    let mut state = metric.state();
    let targets = Values::of(shape, targets).unwrap();
    state
        .update(&Values::of(shape, predictions).unwrap(), &targets)
        .unwrap();
    number(&state)
}

fn near(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-12
}

#[test]
fn the_highest_score_is_right_where_the_target_is() {
    for name in ["Accuracy", "SparseCategoricalAccuracy"] {
        let accuracy = metric(name, &[]);
        // Of equal scores the first counts, as everywhere.
        assert_eq!(measure(&accuracy, &[4, 3], &SCORES, &[4], &[1, 0, 1, 0]), 0.75);
        assert_eq!(measure(&accuracy, &[4, 3], &SCORES, &[4, 1], &[1, 0, 2, 1]), 0.75);
        assert_eq!(
            measure(&accuracy, &[2, 2, 3], &SCORES, &[2, 2], &[1, 0, 2, 0]),
            1.0
        );
    }
}

#[test]
fn nan_is_the_highest_score() {
    let scores = [0.1, f32::NAN, 0.2, f32::NAN, 0.3, f32::NAN];
    assert_eq!(
        measure(&metric("Accuracy", &[]), &[2, 3], &scores, &[2], &[1, 0]),
        1.0
    );
    assert_eq!(
        measure(&metric("Accuracy", &[]), &[2, 3], &scores, &[2], &[2, 2]),
        0.0
    );
}

#[test]
fn labels_count_from_one_if_that_is_said() {
    let accuracy = metric("Accuracy", &[("zero_based_label", Setting::Flag(false))]);
    assert_eq!(measure(&accuracy, &[4, 3], &SCORES, &[4], &[2, 1, 3, 1]), 1.0);
    assert_eq!(measure(&accuracy, &[2], &[0.2, 0.7], &[2], &[1, 2]), 1.0);
    let top = metric("Top5Accuracy", &[("zero_based_label", Setting::Flag(false))]);
    let scores = [0.6, 0.5, 0.4, 0.3, 0.2, 0.1];
    assert_eq!(measure(&top, &[1, 6], &scores, &[1], &[5]), 1.0);
    assert_eq!(measure(&top, &[1, 6], &scores, &[1], &[6]), 0.0);
}

#[test]
fn accuracy_of_pairs_asks_for_half() {
    let accuracy = metric("Accuracy", &[]);
    assert_eq!(
        measure(&accuracy, &[4], &[0.5, 0.49, 0.9, 0.1], &[4], &[1, 0, 0, 0]),
        0.75
    );
    assert_eq!(
        measure(&accuracy, &[4, 1], &[0.5, 0.49, 0.9, 0.1], &[4], &[1, 0, 0, 0]),
        0.75
    );
    assert_eq!(
        measure(&accuracy, &[4], &[0.5, 0.49, 0.9, 0.1], &[4, 1], &[1, 0, 0, 0]),
        0.75
    );
    assert_eq!(
        measure(&accuracy, &[2, 2], &[0.5, 0.49, 0.9, 0.1], &[2, 2], &[1, 0, 0, 0]),
        0.75
    );
}

#[test]
fn integers_are_classes_themselves() {
    let mut state = metric("Accuracy", &[]).state();
    // The last two are equal as floats, and only as floats.
    let predictions = [7i64, 3, (1 << 60) + 1];
    let targets = [7i64, 4, 1 << 60];
    state
        .update(
            &Values::of(&[3], &predictions).unwrap(),
            &Values::of(&[3], &targets).unwrap(),
        )
        .unwrap();
    assert_eq!(number(&state), 1.0 / 3.0);
}

#[test]
fn the_threshold_of_binary_accuracy() {
    let scores = [0.2, 0.6, 0.8, 0.6];
    let accuracy = |options: &[_]| {
        measure(
            &metric("BinaryAccuracy", options),
            &[4],
            &scores,
            &[4],
            &[0, 0, 1, 1],
        )
    };
    assert_eq!(accuracy(&[]), 0.75);
    assert_eq!(accuracy(&[("threshold", Setting::Number(0.7))]), 0.75);
    assert_eq!(accuracy(&[("threshold", Setting::Whole(1))]), 0.5);
}

#[test]
fn one_hot_targets() {
    let accuracy = metric("CategoricalAccuracy", &[]);
    let targets = [0.0, 1.0, 0.0, 1.0, 0.0, 0.0];
    assert_eq!(
        floats(&accuracy, &[2, 3], &[0.1, 0.7, 0.2, 0.2, 0.3, 0.5], &targets),
        0.5
    );
}

#[test]
fn the_five_highest() {
    let scores = [0.9, 0.1, 0.8, 0.2, 0.7, 0.3, 0.6];
    let top = |label| measure(&metric("Top5Accuracy", &[]), &[1, 7], &scores, &[1], &[label]);
    assert_eq!(
        [0, 1, 2, 3, 4, 5, 6].map(top),
        [1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0]
    );
    let flat = |label| measure(&metric("Top5Accuracy", &[]), &[1, 7], &[0.5; 7], &[1], &[label]);
    assert_eq!([0, 4, 5, 6].map(flat), [1.0, 1.0, 0.0, 0.0]);
}

#[test]
fn distances_and_squares() {
    assert_eq!(
        floats(&metric("MAE", &[]), &[3], &[1.0, 2.0, 4.0], &[2.0, 2.0, 1.5]),
        3.5 / 3.0
    );
    assert_eq!(
        floats(&metric("MSE", &[]), &[3], &[1.0, 2.0, 4.0], &[2.0, 2.0, 1.5]),
        7.25 / 3.0
    );
    assert_eq!(
        measure(&metric("MSE", &[]), &[2, 1], &[1.0, 2.0], &[2], &[3, 2]),
        2.0
    );
}

#[test]
fn entropies_of_probabilities() {
    let (p, t) = ([0.25, 0.75, 0.5, 0.5], [0.0, 1.0, 1.0, 0.0]);
    let binary = -(0.75f64.ln() * 2.0 + 0.5f64.ln() * 2.0) / 4.0;
    assert!(near(
        floats(&metric("BinaryCrossEntropy", &[]), &[4], &p, &t),
        binary
    ));
    let rows = -(0.75f64.ln() + 0.5f64.ln()) / 2.0;
    assert!(near(
        floats(&metric("CategoricalCrossEntropy", &[]), &[2, 2], &p, &t),
        rows
    ));
    assert!(near(floats(&metric("KLDivergence", &[]), &[2, 2], &p, &t), rows));
    let sparse = metric("SparseCategoricalCrossEntropy", &[]);
    assert!(near(
        measure(&sparse, &[2, 2], &[0.25, 0.75, 0.5, 0.5], &[2], &[1, 0]),
        rows
    ));
    let poisson = (2.0 - 0.75f64.ln() - 0.5f64.ln()) / 4.0;
    assert!(near(floats(&metric("Poisson", &[]), &[4], &p, &t), poisson));
}

#[test]
fn impossible_probabilities_stay_finite_and_nan_stays() {
    let far = -(1e-7f64.ln());
    for (name, shape) in [
        ("BinaryCrossEntropy", &[2][..]),
        ("CategoricalCrossEntropy", &[1, 2]),
        ("KLDivergence", &[1, 2]),
        ("Poisson", &[2]),
    ] {
        let value = floats(&metric(name, &[]), shape, &[0.0, 1.0], &[1.0, 0.0]);
        assert!(value.is_finite() && value > far / 3.0, "{name}: {value}");
        assert!(floats(&metric(name, &[]), shape, &[f64::NAN, 1.0], &[1.0, 0.0]).is_nan());
    }
    let sparse = metric("SparseCategoricalCrossEntropy", &[]);
    assert!(near(measure(&sparse, &[1, 2], &[0.0, 1.0], &[1], &[0]), far));
}

#[test]
fn precision_recall_and_their_mean() {
    let scores = [0.9, 0.8, 0.7, 0.2, 0.5];
    let targets = [1, 0, 0, 1, 1];
    let value = |name| measure(&metric(name, &[]), &[5], &scores, &[5], &targets);
    assert_eq!(value("Precision"), 0.5);
    assert_eq!(value("Recall"), 2.0 / 3.0);
    assert_eq!(value("F1Score"), 4.0 / 7.0);
    // Nothing found, nothing there: zero, not NaN.
    let nothing = |name| measure(&metric(name, &[]), &[1], &[0.1], &[1], &[0]);
    assert_eq!(["Precision", "Recall", "F1Score"].map(nothing), [0.0; 3]);
}

#[test]
fn several_classes_together_and_apart() {
    // Found: 1, 0, 2, 0; the fourth class is neither found nor there.
    let scores = [
        0.1, 0.7, 0.2, 0.0, 0.5, 0.3, 0.2, 0.0, 0.2, 0.3, 0.5, 0.0, 0.4, 0.4, 0.2, 0.0,
    ];
    let value = |name, average| {
        measure(
            &metric(name, &[("average", text(average))]),
            &[4, 4],
            &scores,
            &[4],
            &[1, 0, 1, 0],
        )
    };
    for name in ["Precision", "Recall", "F1Score"] {
        assert_eq!(value(name, "micro"), 0.75);
    }
    assert!(near(value("Precision", "macro"), (1.0 + 1.0 + 0.0) / 3.0));
    assert!(near(value("Recall", "macro"), (1.0 + 0.5 + 0.0) / 3.0));
    assert!(near(value("F1Score", "macro"), (1.0 + 2.0 / 3.0 + 0.0) / 3.0));
}

#[test]
fn the_area_counts_pairs_in_order() {
    let scores = [0.9, 0.6, 0.6, 0.1];
    let area = |thresholds| {
        let auc = metric("AUC", &[("threshold_num", Setting::Whole(thresholds))]);
        measure(&auc, &[4], &scores, &[4], &[1, 0, 1, 0])
    };
    assert_eq!(area(200), 3.5 / 4.0);
    // With thresholds 0 and 1 alone all scores look alike.
    assert_eq!(area(2), 0.5);
    assert_eq!(
        measure(&metric("AUC", &[]), &[2], &[1.0, 1.0], &[2], &[0, 1]),
        0.5
    );
}

#[test]
fn a_score_on_a_threshold_reaches_it() {
    // 0.29 * 100 is a little less than 29.
    let auc = metric("AUC", &[("threshold_num", Setting::Whole(101))]);
    for hundredth in 1..=100 {
        let threshold = f64::from(hundredth) / 100.0;
        let below = f64::from_bits(threshold.to_bits() - 1);
        assert_eq!(
            floats(&auc, &[2], &[threshold, below], &[1.0, 0.0]),
            1.0,
            "{threshold}"
        );
    }
}

#[test]
fn curves_have_a_point_for_each_score() {
    let mut roc = metric("ROC", &[]).state();
    update(&mut roc, &[4], &[0.25, 0.5, 0.5, 0.75], &[4], &[0, 1, 0, 1]);
    let expected = vec![
        ("fpr", vec![0.0, 0.0, 0.5, 1.0]),
        ("tpr", vec![0.0, 0.5, 1.0, 1.0]),
        ("thresholds", vec![f64::INFINITY, 0.75, 0.5, 0.25]),
    ];
    assert_eq!(arrays(&roc), expected);
    let mut curve = metric("PrecisionRecallCurve", &[]).state();
    update(&mut curve, &[4], &[0.25, 0.5, 0.5, 0.75], &[4], &[0, 1, 0, 1]);
    let expected = vec![
        ("precision", vec![0.5, 2.0 / 3.0, 1.0, 1.0]),
        ("recall", vec![1.0, 1.0, 0.5, 0.0]),
        ("thresholds", vec![0.25, 0.5, 0.75]),
    ];
    assert_eq!(arrays(&curve), expected);
}

#[test]
fn the_two_zeros_are_one_score() {
    let mut roc = metric("ROC", &[]).state();
    update(&mut roc, &[2], &[0.0, -0.0], &[2], &[0, 1]);
    assert_eq!(arrays(&roc)[2].1, [f64::INFINITY, 0.0]);
}

#[test]
fn nothing_seen_has_no_value() {
    for name in Metric::NAMES {
        let state = plain(name).state();
        match name {
            "ROC" => {
                let found = arrays(&state);
                assert!(found[0].1[0].is_nan() && found[1].1[0].is_nan());
                assert_eq!(found[2].1, [f64::INFINITY]);
            }
            "PrecisionRecallCurve" => {
                let expected = vec![
                    ("precision", vec![1.0]),
                    ("recall", vec![0.0]),
                    ("thresholds", vec![]),
                ];
                assert_eq!(arrays(&state), expected);
            }
            _ => assert!(number(&state).is_nan(), "{name}"),
        }
    }
}

#[test]
fn an_area_needs_both_classes() {
    assert!(measure(&metric("AUC", &[]), &[2], &[0.1, 0.9], &[2], &[1, 1]).is_nan());
}

/// Every type says the same of the numbers that all of them have; the memory need not be aligned.
#[test]
fn every_type_is_read() {
    fn distance<P: Element, T: Element>(predictions: &[P], targets: &[T]) -> f64 {
        let mut state = metric("MAE", &[]).state();
        let bytes: &[u8] =
            unsafe { std::slice::from_raw_parts(predictions.as_ptr().cast(), size_of_val(predictions)) };
        let shifted: Vec<u8> = [0].into_iter().chain(bytes.iter().copied()).collect();
        let shape = [predictions.len()];
        let predictions = Values::from_bytes(P::DTYPE, &shape, &shifted[1..]).unwrap();
        state
            .update(&predictions, &Values::of(&shape, targets).unwrap())
            .unwrap();
        number(&state)
    }
    let half = [f16::from_f32(1.0), f16::from_f32(0.0), f16::from_f32(1.0)];
    let short = [bf16::from_f32(1.0), bf16::from_f32(0.0), bf16::from_f32(1.0)];
    let targets = [3i64, 0, 1];
    assert_eq!(distance(&[1f32, 0.0, 1.0], &targets), 2.0 / 3.0);
    assert_eq!(distance(&[1f64, 0.0, 1.0], &targets), 2.0 / 3.0);
    assert_eq!(distance(&half, &targets), 2.0 / 3.0);
    assert_eq!(distance(&short, &targets), 2.0 / 3.0);
    assert_eq!(distance(&[1i8, 0, 1], &[3i8, 0, 1]), 2.0 / 3.0);
    assert_eq!(distance(&[1u8, 0, 1], &[3u8, 0, 1]), 2.0 / 3.0);
    assert_eq!(distance(&[1i32, 0, 1], &[3i32, 0, 1]), 2.0 / 3.0);
    assert_eq!(distance(&[1i64, 0, 1], &half), 0.0);
    assert_eq!(distance(&[true, false, true], &targets), 2.0 / 3.0);
    assert_eq!(DType::ALL.len(), 9, "a type was added: read it, too");
}
