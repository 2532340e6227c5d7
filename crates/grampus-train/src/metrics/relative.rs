//! Errors as a share of what they are errors of.

/// Of such errors, the mean or the median is given in percent.
pub(super) const PERCENT: f64 = 100.0;

/// `(t - p) / t`. Nothing where nothing was predicted is no error.
pub(super) fn error(prediction: f64, target: f64) -> f64 {
    share(target - prediction, target)
}

/// `|t - p| / (|t| + |p|)`: from 0 to 1, the same when both are swapped.
pub(super) fn symmetric(prediction: f64, target: f64) -> f64 {
    share((target - prediction).abs(), target.abs() + prediction.abs())
}

fn share(error: f64, whole: f64) -> f64 {
    if error == 0.0 { 0.0 } else { error / whole }
}
