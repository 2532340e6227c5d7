//! What metrics refuse, and what they say.

use super::{metric, number, plain, text, update};
use crate::metrics::{Metric, MetricError, Setting, State, Values};

fn refused(name: &str, shape: &[usize], predictions: &[f32], of: &[usize], targets: &[i64]) -> String {
    let mut state = plain(name).state();
    let targets = Values::of(of, targets).unwrap();
    let error = state
        .update(&Values::of(shape, predictions).unwrap(), &targets)
        .unwrap_err();
    error.to_string()
}

#[test]
fn shapes_that_do_not_fit() {
    for name in Metric::NAMES {
        let text = refused(name, &[2, 3], &[0.5; 6], &[4], &[0; 4]);
        let start = format!(
            "{name} cannot take predictions of shape [2, 3] (f32) with targets of shape [4] (i64): it needs "
        );
        assert!(text.starts_with(&start), "{text}");
    }
}

#[test]
fn classes_are_along_the_last_axis() {
    let text = refused("Accuracy", &[2, 3, 4, 4], &[0.5; 96], &[2, 4, 4], &[0; 32]);
    assert!(
        text.contains("one axis more in the predictions, the last"),
        "{text}"
    );
}

#[test]
fn one_axis_is_no_table_of_probabilities() {
    for name in ["CategoricalAccuracy", "CategoricalCrossEntropy", "KLDivergence"] {
        let text = refused(name, &[4], &[0.5; 4], &[4], &[0; 4]);
        assert!(text.contains("at least two axes"), "{text}");
    }
}

#[test]
fn integers_are_no_probabilities() {
    for name in ["BinaryCrossEntropy", "Poisson"] {
        let mut state = metric(name, &[]).state();
        let integers = Values::of(&[2], &[0i64, 1]).unwrap();
        let text = state.update(&integers, &integers).unwrap_err().to_string();
        assert!(text.contains("(i64)") && text.contains("a float"), "{text}");
    }
}

#[test]
fn labels_that_are_no_classes() {
    let text = refused("Accuracy", &[2, 3], &[0.5; 6], &[2], &[0, 3]);
    assert_eq!(
        text,
        "Accuracy cannot take the target 3 (at position 1): the 3 classes count from 0"
    );
    for (name, label) in [("Top5Accuracy", -1), ("SparseCategoricalCrossEntropy", 3)] {
        assert!(refused(name, &[2, 3], &[0.5; 6], &[2], &[0, label]).contains("the 3 classes"));
    }
    for name in ["AUC", "BinaryAccuracy", "F1Score", "ROC", "Accuracy"] {
        assert!(refused(name, &[2], &[0.5; 2], &[2], &[0, 2]).contains("the 2 classes count from 0"));
    }
    let mut state = metric("Accuracy", &[]).state();
    let scores = Values::of(&[1, 3], &[0.5f32; 3]).unwrap();
    let text = state
        .update(&scores, &Values::of(&[1], &[1.5f32]).unwrap())
        .unwrap_err()
        .to_string();
    assert!(text.contains("the target 1.5"), "{text}");
}

#[test]
fn scores_that_have_no_place() {
    let text = refused("AUC", &[2], &[0.5, 1.5], &[2], &[0, 1]);
    assert!(
        text.contains("the score 1.5 (at position 1)") && text.contains("sigmoid"),
        "{text}"
    );
    for name in ["AUC", "ROC", "PrecisionRecallCurve"] {
        assert!(
            refused(name, &[2], &[f32::NAN, 0.5], &[2], &[0, 1]).contains("the score NaN (at position 0)")
        );
    }
}

fn of_numbers(name: &str) -> bool {
    let errors = [
        "MAE", "MSE", "RMSE", "ME", "MPE", "MAPE", "MSPE", "sMAPE", "MSLE", "MDAPE", "sMDAPE", "R2",
    ];
    errors.contains(&name) || ["Poisson", "BinaryCrossEntropy"].contains(&name)
}

#[test]
fn a_batch_that_was_refused_leaves_no_trace() {
    for name in Metric::NAMES {
        let mut state = plain(name).state();
        let before = state.to_bytes().unwrap();
        let targets = Values::of(&[3], &[0i64, 1, 7]).unwrap();
        let scores = Values::of(&[3, 3], &[0.1f32; 9]).unwrap();
        let _ = state.update(&scores, &targets);
        let refused = state.update(&Values::of(&[3], &[0.1f32; 3]).unwrap(), &targets);
        // Errors of numbers can be taken of any targets.
        assert!(refused.is_err() || of_numbers(name), "{name}");
        if refused.is_err() {
            assert_eq!(state.to_bytes().unwrap(), before, "{name}");
        }
    }
}

#[test]
fn the_number_of_classes_stays() {
    let mut state = metric("Recall", &[("average", text("macro"))]).state();
    update(&mut state, &[1, 3], &[0.1, 0.2, 0.3], &[1], &[2]);
    let scores = Values::of(&[1, 2], &[0.1f32, 0.2]).unwrap();
    let targets = Values::of(&[1], &[1i64]).unwrap();
    let expected = MetricError::Classes {
        metric: "Recall",
        before: 3,
        now: 2,
    };
    assert_eq!(state.update(&scores, &targets), Err(expected.clone()));
    let mut other = state.metric().state();
    other.update(&scores, &targets).unwrap();
    assert_eq!(state.merge(&other), Err(expected));
    assert_eq!(number(&state), 1.0);
}

#[test]
fn unknown_names_and_options() {
    let named = |name: &str, option: &str, value: Setting| {
        Metric::named(name, &[(option.to_owned(), value)].into())
            .unwrap_err()
            .to_string()
    };
    let text = Metric::named("accuracy", &Default::default())
        .unwrap_err()
        .to_string();
    assert!(
        text.starts_with("there is no metric \"accuracy\": choose one of AUC, Accuracy, "),
        "{text}"
    );
    assert_eq!(
        named("MAE", "threshold", Setting::Number(0.5)),
        "MAE cannot take threshold=0.5: it needs other options, or none"
    );
    assert!(named("AUC", "threshold_num", Setting::Whole(1)).contains("a whole number from 2 to "));
    assert!(named("AUC", "threshold_num", Setting::Number(200.0)).contains("a whole number"));
    assert!(named("Accuracy", "zero_based_label", Setting::Whole(1)).contains("true or false"));
    assert!(named("BinaryAccuracy", "threshold", Setting::Text("high".into())).contains("a number"));
    assert!(named("Recall", "average", Setting::Text("mean".into())).contains("\"micro\""));
}

#[test]
fn options_that_must_be_given_and_bounds() {
    let missing = Metric::named("MeanAveragePrecision", &Default::default()).unwrap_err();
    assert_eq!(missing.to_string(), "MeanAveragePrecision needs classes: give it");
    let named = |name: &str, option: &str, value: Setting| {
        let options = [
            ("classes".to_owned(), Setting::Whole(3)),
            (option.to_owned(), value),
        ];
        Metric::named(name, &options.into()).unwrap_err().to_string()
    };
    assert!(
        named("MeanAveragePrecision", "k", Setting::Whole(0))
            .contains("k=0: it needs a whole number from 1 to 4294967295, or -1")
    );
    assert!(named("MeanAveragePrecision", "classes", Setting::Whole(0)).contains("classes=0"));
    let boxes = "MeanAveragePrecisionObjectDetection";
    assert!(named(boxes, "iou", Setting::Number(0.0)).contains("a number above 0 and up to 1"));
    assert!(named(boxes, "skip_class", Setting::Whole(-2)).contains("skip_class=-2"));
}

#[test]
fn memory_of_another_length() {
    assert!(Values::of(&[usize::MAX, 8], &[0.5f32; 2]).is_err());
    let error = Values::of(&[2, 3], &[0.5f32; 5]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "20 bytes are no array of shape [2, 3] (f32): pass all of its elements"
    );
}

#[test]
fn bytes_that_are_no_state() {
    assert!(matches!(State::from_bytes(&[99]), Err(MetricError::Bytes { .. })));
    // A histogram without a bin.
    assert!(matches!(
        State::from_bytes(&[3, 0]),
        Err(MetricError::Bytes { .. })
    ));
}
