//! Each metric against values worked out by hand, and the promises that all of them make.

mod exact;
mod forecasts;
mod found;
mod merging;
mod refusals;
mod values;

use std::collections::BTreeMap;

use super::{Metric, Setting, State, Value, Values};

/// A metric by its name and options.
fn metric(name: &str, options: &[(&str, Setting)]) -> Metric {
    let options: BTreeMap<String, Setting> = options
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    Metric::named(name, &options).unwrap()
}

/// A metric by its name alone, with six classes where their number must be said.
fn plain(name: &str) -> Metric {
    match name {
        "MeanAveragePrecision" | "MeanAveragePrecisionObjectDetection" => {
            metric(name, &[("classes", Setting::Whole(6))])
        }
        _ => metric(name, &[]),
    }
}

fn text(word: &str) -> Setting {
    Setting::Text(word.to_owned())
}

/// Takes a batch of floats with integer targets.
fn update(state: &mut State, shape: &[usize], predictions: &[f32], of: &[usize], targets: &[i64]) {
    let predictions = Values::of(shape, predictions).unwrap();
    state
        .update(&predictions, &Values::of(of, targets).unwrap())
        .unwrap();
}

fn number(state: &State) -> f64 {
    match state.value() {
        Value::Number(number) => number,
        Value::Arrays(arrays) => panic!("{arrays:?} is no number"),
    }
}

fn arrays(state: &State) -> Vec<(&'static str, Vec<f64>)> {
    match state.value() {
        Value::Arrays(arrays) => arrays,
        Value::Number(number) => panic!("{number} is no curve"),
    }
}
