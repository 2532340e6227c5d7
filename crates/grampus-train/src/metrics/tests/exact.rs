//! Sums that are exact.

use proptest::prelude::*;

use crate::metrics::ExactSum;

fn sum(terms: &[f64]) -> ExactSum {
    let mut sum = ExactSum::default();
    terms.iter().for_each(|term| sum.add(*term));
    sum
}

#[test]
fn one_term_comes_back_as_it_is() {
    for term in [
        0.0,
        1.0,
        -1.0,
        0.1,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        5e-324,
        -5e-324,
        2e-310,
        1e-300,
    ] {
        assert_eq!(sum(&[term]).value(), term);
    }
}

#[test]
fn what_cancels_leaves_nothing_behind() {
    assert_eq!(sum(&[1e308, 1.0, 5e-324, -1e308, -1.0]).value(), 5e-324);
    assert_eq!(sum(&[0.1, 0.2, -0.3]).value(), 2f64.powi(-55));
}

#[test]
fn a_sum_is_rounded_once_to_the_nearest_and_to_even() {
    let half = f64::EPSILON / 2.0;
    assert_eq!(sum(&[1.0, half]).value(), 1.0);
    assert_eq!(sum(&[1.0, half, 1e-300]).value(), 1.0 + f64::EPSILON);
    assert_eq!(sum(&[1.0 + f64::EPSILON, half]).value(), 1.0 + 2.0 * f64::EPSILON);
    assert_eq!(sum(&[1.0, half, -1e-300]).value(), 1.0);
    assert_eq!(sum(&[-1.0, -half, -1e-300]).value(), -1.0 - f64::EPSILON);
}

#[test]
fn beyond_the_largest_float_a_sum_is_infinite_and_comes_back() {
    assert_eq!(sum(&[f64::MAX, f64::MAX]).value(), f64::INFINITY);
    assert_eq!(sum(&[f64::MIN, f64::MIN]).value(), f64::NEG_INFINITY);
    assert_eq!(sum(&[f64::MAX, f64::MAX, -f64::MAX]).value(), f64::MAX);
}

#[test]
fn infinities_and_nan_are_kept() {
    assert_eq!(sum(&[1.0, f64::INFINITY]).value(), f64::INFINITY);
    assert_eq!(sum(&[f64::NEG_INFINITY, 1.0]).value(), f64::NEG_INFINITY);
    assert!(sum(&[f64::NEG_INFINITY, f64::INFINITY]).value().is_nan());
    assert!(sum(&[f64::NAN, 1.0, f64::INFINITY]).value().is_nan());
}

#[test]
fn many_sums_merge_without_overflow() {
    // Doubled so often, the limbs have long carried.
    let mut doubled = sum(&[1.0 - f64::EPSILON / 2.0, -0.1]);
    let one = doubled.value();
    for _ in 0..60 {
        let other = doubled.clone();
        doubled.merge(&other);
    }
    assert_eq!(doubled.value(), one * 2f64.powi(60));
}

#[test]
fn bytes_that_are_no_sum_are_refused() {
    let too_long = postcard::to_stdvec(&(vec![1i64; 100], 0.0)).unwrap();
    assert!(postcard::from_bytes::<ExactSum>(&too_long).is_err());
    let too_wide = postcard::to_stdvec(&(vec![i64::MAX; 3], 0.0)).unwrap();
    assert!(postcard::from_bytes::<ExactSum>(&too_wide).is_err());
}

proptest! {
    /// Multiples of 2^-40 below 2^60: 128 bits hold their sums, which gives an answer of another kind.
    #[test]
    fn a_sum_is_what_integers_say(terms in prop::collection::vec(-(1i64 << 52)..1i64 << 52, 0..50), shift in 0u32..48) {
        let floats: Vec<f64> = terms
            .iter()
            .enumerate()
            .map(|(at, term)| *term as f64 * 2f64.powi(at as i32 % 2 * shift as i32 - 40))
            .collect();
        let whole: i128 =
            terms.iter().enumerate().map(|(at, term)| i128::from(*term) << (at as u32 % 2 * shift)).sum();
        prop_assert_eq!(sum(&floats).value(), whole as f64 * 2f64.powi(-40));
    }

    #[test]
    fn any_floats_in_any_order_and_any_parts_give_equal_bits(
        terms in prop::collection::vec(prop::num::f64::ANY, 0..40),
        cut in 0usize..40,
    ) {
        let mut backwards = terms.clone();
        backwards.reverse();
        let (front, back) = terms.split_at(cut.min(terms.len()));
        let mut merged = sum(back);
        merged.merge(&sum(front));
        let bytes = postcard::to_stdvec(&merged).unwrap();
        let travelled: ExactSum = postcard::from_bytes(&bytes).unwrap();
        let whole = sum(&terms).value().to_bits();
        prop_assert_eq!(sum(&backwards).value().to_bits(), whole);
        prop_assert_eq!(merged.value().to_bits(), whole);
        prop_assert_eq!(travelled.value().to_bits(), whole);
    }
}
