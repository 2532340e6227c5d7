//! Errors of forecasts, worked out by hand.

use super::{metric, number};
use crate::metrics::Values;

fn value(name: &str, predictions: &[f64], targets: &[f64]) -> f64 {
    let mut state = metric(name, &[]).state();
    let shape = [targets.len()];
    let targets = Values::of(&shape, targets).unwrap();
    state
        .update(&Values::of(&shape, predictions).unwrap(), &targets)
        .unwrap();
    number(&state)
}

#[test]
fn errors_in_percent() {
    let (p, t) = ([1.0, 3.0, 6.0], [2.0, 2.0, 4.0]);
    assert_eq!(value("ME", &p, &t), -2.0 / 3.0);
    assert_eq!(value("RMSE", &p, &t), 2.0f64.sqrt());
    assert_eq!(value("MPE", &p, &t), -0.5 / 3.0 * 100.0);
    assert_eq!(value("MAPE", &p, &t), 50.0);
    assert_eq!(value("MSPE", &p, &t), 25.0);
    assert_eq!(value("MDAPE", &p, &t), 50.0);
    // Of each: 1/3, 1/5, 1/5.
    assert!((value("sMAPE", &p, &t) - 100.0 * (1.0 / 3.0 + 0.4) / 3.0).abs() < 1e-12);
    assert_eq!(value("sMDAPE", &p, &t), 20.0);
}

#[test]
fn a_median_of_an_even_number_is_between_two() {
    assert_eq!(value("MDAPE", &[1.5, 3.0, 1.0, 9.0], &[1.0, 2.0, 1.0, 1.0]), 50.0);
    assert_eq!(value("MDAPE", &[1.0, 1.5], &[1.0, 1.0]), 25.0);
    assert!(value("MDAPE", &[1.0, f64::NAN, 1.0], &[1.0; 3]).is_nan());
}

#[test]
fn a_share_of_nothing() {
    for name in ["MPE", "MAPE", "MSPE", "sMAPE", "MDAPE", "sMDAPE"] {
        assert_eq!(value(name, &[0.0, 0.0], &[0.0, 0.0]), 0.0, "{name}");
    }
    assert_eq!(value("MAPE", &[1.0, 1.0], &[0.0, 1.0]), f64::INFINITY);
    assert_eq!(value("sMAPE", &[1.0, 1.0], &[0.0, 1.0]), 50.0);
}

#[test]
fn logarithms_of_one_more() {
    let expected = (3.0f64.ln() - 2.0f64.ln()).powi(2) / 2.0;
    assert!((value("MSLE", &[1.0, 0.0], &[2.0, 0.0]) - expected).abs() < 1e-15);
    assert!(value("MSLE", &[-2.0], &[1.0]).is_nan());
}

#[test]
fn what_is_explained_of_the_variance() {
    assert_eq!(value("R2", &[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0]), 1.0);
    assert_eq!(value("R2", &[2.0, 2.0, 2.0], &[1.0, 2.0, 3.0]), 0.0);
    assert_eq!(value("R2", &[1.0, 2.0, 2.0], &[1.0, 2.0, 3.0]), 0.5);
    // Targets that do not vary: all right, or nothing; one alone says nothing.
    assert_eq!(value("R2", &[0.1; 7], &[0.1; 7]), 1.0);
    assert_eq!(value("R2", &[0.2; 7], &[0.1; 7]), 0.0);
    assert!(value("R2", &[0.2], &[0.1]).is_nan());
}

#[test]
fn a_large_mean_takes_nothing_from_the_variance() {
    // The squares of these agree in all digits that a float has.
    let far = 2.0f64.powi(50);
    let targets = [far + 1.0, far + 2.0, far + 3.0];
    assert_eq!(value("R2", &[far + 1.0, far + 2.0, far + 2.0], &targets), 0.5);
}
