//! What was found among others: boxes, classes, the one of a group, the root of a tree; worked out by hand.

use super::{metric, number, update};
use crate::metrics::{Metric, MetricError, Setting, Values};

fn whole(number: i64) -> Setting {
    Setting::Whole(number)
}

/// The value of one batch of floats.
fn value(metric: &Metric, of: (&[usize], &[f32]), with: (&[usize], &[f32])) -> Result<f64, MetricError> {
    let mut state = metric.state();
    let predictions = Values::of(of.0, of.1)?;
    state.update(&predictions, &Values::of(with.0, with.1)?)?;
    Ok(number(&state))
}

#[test]
fn precision_over_the_rows_of_a_class() {
    let scores = [
        0.9, 0.1, // of class 0
        0.8, 0.2, // of class 1
        0.7, 0.3, // of class 0
        0.6, 0.4, // of class 1
    ];
    let of = |k| {
        let average = metric("MeanAveragePrecision", &[("k", whole(k)), ("classes", whole(2))]);
        value(&average, (&[4, 2], &scores), (&[4], &[0.0, 1.0, 0.0, 1.0])).unwrap()
    };
    // Class 0 is found at places 1 and 3, class 1 at 1 and 3 as well: 1 and 2/3.
    assert!((of(-1) - (1.0 + 2.0 / 3.0) / 2.0).abs() < 1e-15);
    assert_eq!(of(2), 0.5);
    // A class that is not there does not count.
    let three = metric("MeanAveragePrecision", &[("classes", whole(3))]);
    let found = value(&three, (&[1, 3], &[0.1, 0.8, 0.1]), (&[1], &[1.0]));
    assert_eq!(found, Ok(1.0));
}

#[test]
fn equal_scores_count_together() {
    let average = metric("MeanAveragePrecision", &[("classes", whole(1))]);
    assert_eq!(
        value(&average, (&[2, 1], &[0.5, 0.5]), (&[2], &[0.0, 0.0])),
        Ok(1.0)
    );
    let two = |k| metric("MeanAveragePrecision", &[("k", whole(k)), ("classes", whole(2))]);
    let scores = [0.5, 0.0, 0.5, 0.0, 0.5, 0.0];
    let of = |k, targets: &[f32; 3]| value(&two(k), (&[3, 2], &scores), (&[3], targets)).unwrap();
    // Two of three are right, for class 0; one of three for class 1; in any order.
    for targets in [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]] {
        assert_eq!(of(-1, &targets), 0.5);
        // Of those that are equal, the wrong ones stand first: one of class 0 is within the first two.
        assert_eq!(of(2, &targets), 0.125);
    }
}

const NONE: [f32; 6] = [-1.0, 0.0, 0.0, 0.0, 0.0, 0.0];

/// Two images: one with two boxes of class 1, one with a box of class 1 and one of class 0.
const THERE: [f32; 20] = [
    1.0, 0.0, 0.0, 2.0, 2.0, /**/ 1.0, 4.0, 4.0, 6.0, 6.0, //
    1.0, 0.0, 0.0, 2.0, 2.0, /**/ 0.0, 4.0, 4.0, 6.0, 6.0,
];

/// Class 1: right (0.9), the same again (0.8), a box of the other class's place (0.7), right by two thirds (0.6).
fn found() -> Vec<f32> {
    let boxes = [
        [1.0, 0.9, 0.0, 0.0, 2.0, 2.0],
        [1.0, 0.8, 0.0, 0.0, 2.0, 2.0],
        NONE,
        [1.0, 0.6, 0.0, 0.0, 2.0, 3.0],
        [1.0, 0.7, 4.0, 4.0, 6.0, 6.0],
        [0.0, 0.3, 4.0, 4.0, 6.0, 6.0],
    ];
    boxes.concat()
}

fn detection(options: &[(&str, Setting)]) -> Metric {
    let classes = [("classes", whole(2))];
    metric(
        "MeanAveragePrecisionObjectDetection",
        &[&classes[..], options].concat(),
    )
}

fn detected(options: &[(&str, Setting)]) -> f64 {
    value(&detection(options), (&[2, 3, 6], &found()), (&[2, 2, 5], &THERE)).unwrap()
}

#[test]
fn boxes_that_were_found() {
    // Class 1 has three boxes: found at places 1 and 4 with precisions 1 and 1/2. Class 0 has one, found.
    let one = (1.0 + 0.5) / 3.0;
    assert_eq!(detected(&[]), (1.0 + one) / 2.0);
    assert_eq!(detected(&[("skip_class", whole(0))]), one);
    assert_eq!(detected(&[("skip_class", whole(1))]), 1.0);
    // Two thirds are not enough now.
    assert_eq!(
        detected(&[("iou", Setting::Number(0.7))]),
        (1.0 + 1.0 / 3.0) / 2.0
    );
    // Recalls from 0 to 0.3 at precision 1, from 0.4 to 0.6 at 1/2; the rest is not reached.
    let eleven = (4.0 + 3.0 * 0.5) / 11.0;
    let early = [("use_voc2007", Setting::Flag(true)), ("skip_class", whole(0))];
    assert!((detected(&early) - eleven).abs() < 1e-15);
}

#[test]
fn images_without_boxes() {
    let mut state = detection(&[]).state();
    let nothing = Values::of::<f32>(&[2, 0, 6], &[]).unwrap();
    state
        .update(&nothing, &Values::of(&[2, 2, 5], &THERE).unwrap())
        .unwrap();
    assert_eq!(number(&state), 0.0);
    let found = found();
    let found = Values::of(&[2, 3, 6], &found).unwrap();
    state
        .update(&found, &Values::of::<f32>(&[2, 0, 5], &[]).unwrap())
        .unwrap();
    state
        .update(&nothing, &Values::of::<f32>(&[2, 0, 5], &[]).unwrap())
        .unwrap();
    assert_eq!(number(&state), 0.0);
}

#[test]
fn boxes_that_are_refused() {
    let of = |class: f32, score: f32, there: f32| {
        let found = [class, score, 0.0, 0.0, 1.0, 1.0];
        let there = [there, 0.0, 0.0, 1.0, 1.0];
        value(&detection(&[]), (&[1, 1, 6], &found), (&[1, 1, 5], &there)).map_err(|error| error.to_string())
    };
    assert_eq!(of(1.0, 0.5, 1.0), Ok(1.0));
    let said = "a box of class 2 (at position 0 of the predictions): the 2 classes count from 0";
    assert!(of(2.0, 0.5, 1.0).unwrap_err().contains(said));
    assert!(
        of(1.0, 0.5, 0.5)
            .unwrap_err()
            .contains("a box of class 0.5 (at position 0 of the targets)")
    );
    assert!(
        of(1.0, f32::NAN, 1.0)
            .unwrap_err()
            .contains("which have an order")
    );
    // What is no box needs no score.
    assert_eq!(of(-1.0, f32::NAN, 1.0), Ok(0.0));
}

fn groups(name: &str, k: i64) -> Metric {
    metric(name, &[("k", whole(k)), ("neg_num", whole(3))])
}

const SCORES: [f32; 12] = [0.9, 0.1, 0.2, 0.3, 0.5, 0.8, 0.4, 0.7, 0.1, 0.1, 0.6, 0.6];
const RIGHT: [f32; 12] = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];

#[test]
fn the_place_of_the_one_that_is_right() {
    // Places 1, 3 and 2: of equal scores the negatives stand first.
    for shape in [&[3, 4][..], &[12], &[12, 1]] {
        let of = |name, k| value(&groups(name, k), (shape, &SCORES), (shape, &RIGHT)).unwrap();
        assert_eq!(of("HitRatio", 1), 1.0 / 3.0);
        assert_eq!(of("HitRatio", 2), 2.0 / 3.0);
        assert_eq!(of("HitRatio", 10), 1.0);
        assert_eq!(of("NDCG", 3), (1.0 + 1.0 / 3.0f64.log2() + 0.5) / 3.0);
        assert_eq!(of("NDCG", 2), (1.0 + 1.0 / 3.0f64.log2()) / 3.0);
    }
}

#[test]
fn what_is_no_number_is_no_hit() {
    let of = |scores: &[f32]| value(&groups("HitRatio", 1), (&[1, 4], scores), (&[1, 4], &RIGHT[..4]));
    assert_eq!(of(&[f32::NAN, 0.1, 0.2, 0.3]), Ok(0.0));
    assert_eq!(of(&[0.9, f32::NAN, 0.2, 0.3]), Ok(0.0));
}

#[test]
fn groups_that_are_not_whole() {
    let of = |shape: &[usize], targets: &[f32]| {
        value(
            &groups("NDCG", 1),
            (shape, &SCORES[..targets.len()]),
            (shape, targets),
        )
        .unwrap_err()
        .to_string()
    };
    assert!(of(&[6], &RIGHT[..6]).contains("6 rows, which are no whole groups of 4: let a row hold"));
    assert!(of(&[4, 3], &RIGHT).contains("1 + neg_num scores"));
    assert!(
        of(&[1, 4], &[0.0; 4]).contains("0 targets of 1 in group 0 of the batch: each group of 4 needs one")
    );
    assert!(of(&[8], &[1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0]).contains("2 targets of 1 in group 1"));
}

#[test]
fn the_root_of_a_tree_counts_alone() {
    let trees = metric("TreeNNAccuracy", &[]);
    let mut state = trees.state();
    let scores = [0.1, 0.9, 0.8, 0.2, 0.7, 0.3, 0.4, 0.6];
    // The second nodes are wrong, and one is no class at all.
    update(&mut state, &[2, 2, 2], &scores, &[2, 2], &[1, 1, 1, -1]);
    assert_eq!(number(&state), 0.5);
    let mut state = trees.state();
    update(
        &mut state,
        &[2, 2, 1],
        &[0.5, 0.0, 0.4, 0.0],
        &[2, 2],
        &[1, 0, 1, 0],
    );
    assert_eq!(number(&state), 0.5);
    let wrong = value(&trees, (&[1, 1, 2], &[0.1, 0.9]), (&[1, 1], &[2.0]));
    assert!(matches!(wrong, Err(MetricError::Label { .. })));
}
