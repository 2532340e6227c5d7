//! A value does not depend on how the rows were cut, nor on the order in which states met.

use proptest::prelude::*;

use super::{arrays, metric, number, plain, text, update};
use crate::metrics::{AveragePrecision, Metric, MetricError, Setting, State, Value, Values};

const CLASSES: usize = 6;

/// Scores of six classes, a label, and a probability for each row.
fn rows() -> impl Strategy<Value = Vec<([f32; CLASSES], i64)>> {
    // Few different scores, so that there are ties, and some that cannot be added without rounding.
    let score = prop_oneof![Just(0.5f32), Just(0.1), 0.0f32..1.0];
    let row = (prop::array::uniform6(score), 0i64..CLASSES as i64);
    prop::collection::vec(row, 1..60)
}

/// Every metric, with how it sees the rows.
fn metrics() -> Vec<Metric> {
    let averages = ["binary", "micro", "macro"].map(|average| [("average", text(average))]);
    let ratios = ["Precision", "Recall", "F1Score"];
    let more = ratios
        .iter()
        .flat_map(|name| averages.iter().map(|average| metric(name, average)));
    let thresholds = [("threshold_num", Setting::Whole(7))];
    let (classes, few) = (Setting::Whole(6), Setting::Whole(3));
    let highest = [("classes", classes), ("k", few.clone())];
    let groups = [("neg_num", Setting::Whole(5)), ("k", few)];
    Metric::NAMES
        .iter()
        .map(|name| plain(name))
        .filter(|metric| !matches!(metric, Metric::Groups(_)))
        .chain(more)
        .chain([
            metric("AUC", &thresholds),
            metric("MeanAveragePrecision", &highest),
        ])
        .chain(["HitRatio", "NDCG"].map(|name| metric(name, &groups)))
        .collect()
}

fn feed(state: &mut State, rows: &[([f32; CLASSES], i64)]) {
    let scores: Vec<f32> = rows.iter().flat_map(|row| row.0).collect();
    let labels: Vec<i64> = rows.iter().map(|row| row.1).collect();
    let (wide, long) = ([rows.len(), CLASSES], [rows.len()]);
    let binary: Vec<i64> = labels.iter().map(|label| label % 2).collect();
    let first: Vec<f32> = rows.iter().map(|row| row.0[0]).collect();
    let one_hot: Vec<f32> = labels
        .iter()
        .flat_map(|label| (0..CLASSES as i64).map(move |class| f32::from(u8::from(class == *label))))
        .collect();
    let wide_scores = Values::of(&wide, &scores).unwrap();
    let pairs = (
        Values::of(&long, &first).unwrap(),
        Values::of(&long, &binary).unwrap(),
    );
    let distributions = (wide_scores, Values::of(&wide, &one_hot).unwrap());
    let labelled = (wide_scores, Values::of(&long, &labels).unwrap());
    if let Metric::AveragePrecision(AveragePrecision::Boxes { .. }) = state.metric() {
        return feed_boxes(state, rows);
    }
    let forms = match state.metric() {
        // Of pairs, it depends on the cut whether they are whole groups.
        Metric::Groups(_) => vec![distributions],
        // The first form that the metric takes: what it refuses leaves no trace.
        _ => vec![labelled, pairs, distributions],
    };
    assert!(
        forms
            .iter()
            .any(|(predictions, targets)| state.update(predictions, targets).is_ok())
    );
}

/// One box in each row, and one that was found, which is more or less as large.
fn feed_boxes(state: &mut State, rows: &[([f32; CLASSES], i64)]) {
    let there = rows
        .iter()
        .flat_map(|(_, label)| [(label % 2) as f32, 0.0, 0.0, 1.0, 1.0]);
    let found = rows
        .iter()
        .flat_map(|(scores, label)| [(label % 3) as f32, scores[0], 0.0, 0.0, 1.0, scores[1]]);
    let (there, found): (Vec<f32>, Vec<f32>) = (there.collect(), found.collect());
    let (wide, narrow) = ([rows.len(), 1, 6], [rows.len(), 1, 5]);
    let (found, there) = (Values::of(&wide, &found), Values::of(&narrow, &there));
    state.update(&found.unwrap(), &there.unwrap()).unwrap();
}

fn bits(value: Value) -> Vec<u64> {
    match value {
        Value::Number(number) => vec![number.to_bits()],
        Value::Arrays(arrays) => arrays
            .into_iter()
            .flat_map(|array| array.1)
            .map(f64::to_bits)
            .collect(),
    }
}

proptest! {
    #[test]
    fn any_cut_and_any_order_give_equal_bits(
        rows in rows(),
        lanes in prop::collection::vec(0usize..4, 60),
        order in Just([0usize, 1, 2, 3]).prop_shuffle(),
        size in 1usize..9,
    ) {
        for metric in metrics() {
            let mut whole = metric.state();
            feed(&mut whole, &rows);
            let mut states = vec![metric.state(); 4];
            for (batch, lane) in rows.chunks(size).zip(&lanes) {
                feed(&mut states[*lane], batch);
            }
            let mut merged = metric.state();
            for lane in order {
                let travelled = State::from_bytes(&states[lane].to_bytes().unwrap()).unwrap();
                merged.merge(&travelled).unwrap();
            }
            prop_assert_eq!(bits(merged.value()), bits(whole.value()), "{:?}", metric);
            // One thing seen is one state: bytes tell nothing of the way that it took.
            prop_assert_eq!(merged.to_bytes().unwrap(), whole.to_bytes().unwrap(), "{:?}", metric);
        }
    }

    #[test]
    fn bytes_from_anywhere_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(mut state) = State::from_bytes(&bytes) {
            let scores = Values::of(&[2, 2], &[0.1f32, 0.9, 0.8, 0.2]).unwrap();
            let _ = state.update(&scores, &Values::of(&[2], &[1i64, 0]).unwrap());
            let _ = state.value();
        }
    }
}

#[test]
fn many_scores_are_counted_together_on_the_way() {
    let mut roc = metric("ROC", &[]).state();
    for _ in 0..50 {
        let scores: Vec<f32> = (0u8..200).map(|at| f32::from(at % 10)).collect();
        let targets: Vec<i64> = (0..200).map(|at| i64::from(at % 20 < 10)).collect();
        update(&mut roc, &[200], &scores, &[200], &targets);
    }
    assert_eq!(arrays(&roc)[2].1.len(), 11);
    assert!(roc.to_bytes().unwrap().len() < 200);
}

#[test]
fn states_of_other_metrics_do_not_merge() {
    let mut state = metric("Accuracy", &[]).state();
    for other in [
        metric("MAE", &[]),
        metric("Top5Accuracy", &[]),
        metric("Accuracy", &[("zero_based_label", Setting::Flag(false))]),
    ] {
        assert!(matches!(
            state.merge(&other.state()),
            Err(MetricError::Merge { .. })
        ));
    }
    let mut auc = metric("AUC", &[]).state();
    let coarse = metric("AUC", &[("threshold_num", Setting::Whole(9))]);
    assert!(matches!(
        auc.merge(&coarse.state()),
        Err(MetricError::Merge { .. })
    ));
}

#[test]
fn a_state_knows_its_metric_after_a_journey() {
    for metric in metrics() {
        let state = State::from_bytes(&metric.state().to_bytes().unwrap()).unwrap();
        assert_eq!(state.metric(), metric);
    }
}

#[test]
fn states_are_small() {
    let mut mean = metric("MSE", &[]).state();
    update(&mut mean, &[3], &[0.1, 0.2, 1e9], &[3], &[0, 1, 2]);
    assert!(
        mean.to_bytes().unwrap().len() < 100,
        "{}",
        mean.to_bytes().unwrap().len()
    );
    assert!(number(&mean).is_finite());
}
