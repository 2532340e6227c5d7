//! Losses whose target is like the output.

use crate::activation::sigmoid;
use crate::error::NativeError;
use crate::real::Real;

use super::{Judged, Loss};

pub(super) fn apply<T: Real>(
    loss: &Loss,
    judged: Judged<'_, T>,
    share: f64,
    gradient: &mut [T],
) -> Result<f64, NativeError> {
    let Judged {
        output, target, rows, ..
    } = judged;
    if output.len() != target.len() || !judged.output_shape.is_like(judged.target_shape) {
        return Err(NativeError::Input(format!(
            "{} compares rows of one shape: {} came out, and targets of {} came; let the last layer give as many \
             numbers as the labels have, in the same order",
            loss.told(),
            judged.output_shape,
            judged.target_shape
        )));
    }
    if output.is_empty() {
        return Ok(f64::NAN);
    }
    if *loss == Loss::Cosine {
        return Ok(cosine(output, target, rows, share, gradient));
    }
    let count = if *loss == Loss::Kl { rows } else { output.len() } as f64;
    let scale = share / count;
    let width = (output.len() / rows).max(1);
    let mut sum = 0.0;
    for (at, ((x, y), slot)) in output.iter().zip(target).zip(gradient).enumerate() {
        let (value, slope) = one(loss, x.wide(), y.wide(), at / width)?;
        sum += value;
        *slot = T::of(slope * scale);
    }
    Ok(sum / count)
}

/// The loss of one number, and how steep it is there.
fn one(loss: &Loss, x: f64, y: f64, row: usize) -> Result<(f64, f64), NativeError> {
    let off = x - y;
    Ok(match loss {
        Loss::Mse => (off * off, 2.0 * off),
        Loss::L1 => (off.abs(), sign(off)),
        Loss::SmoothL1 { beta } if off.abs() < *beta => (off * off / (2.0 * beta), off / beta),
        Loss::SmoothL1 { beta } => (off.abs() - beta / 2.0, sign(off)),
        Loss::Bce => {
            if !(0.0..=1.0).contains(&x) {
                let reason = format!(
                    "BCE takes probabilities, and {x} came out: end with Sigmoid, or use BCEWithLogits"
                );
                return Err(NativeError::Row { row, reason });
            }
            // As PyTorch: logarithms end at -100, slopes where a probability is almost 0 or 1.
            let value = -(y * x.ln().max(-100.0) + (1.0 - y) * (-x).ln_1p().max(-100.0));
            (value, off / (x * (1.0 - x)).max(1e-12))
        }
        Loss::BceWithLogits => (x.max(0.0) - x * y + (-x.abs()).exp().ln_1p(), sigmoid(x) - y),
        Loss::Kl if y > 0.0 => (y * (y.ln() - x), -y),
        Loss::Kl => (0.0, -y),
        Loss::Poisson => (x.exp() - y * x, x.exp() - y),
        Loss::Hinge { margin } if margin - x * y > 0.0 => (margin - x * y, -y),
        Loss::Hinge { .. } => (0.0, 0.0),
        Loss::Cosine | Loss::CrossEntropy { .. } | Loss::Nll { .. } => (f64::NAN, f64::NAN),
    })
}

/// Zero has none.
fn sign(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

fn cosine<T: Real>(output: &[T], target: &[T], rows: usize, share: f64, gradient: &mut [T]) -> f64 {
    let width = output.len() / rows;
    let lines = output.chunks_exact(width).zip(target.chunks_exact(width));
    let mut sum = 0.0;
    for ((x, y), slots) in lines.zip(gradient.chunks_exact_mut(width)) {
        let dot = |a: &[T], b: &[T]| -> f64 { a.iter().zip(b).map(|(a, b)| a.wide() * b.wide()).sum() };
        // As PyTorch: never divided by less than this.
        let (long, other) = (dot(x, x).sqrt().max(1e-8), dot(y, y).sqrt().max(1e-8));
        let cosine = dot(x, y) / (long * other);
        sum += 1.0 - cosine;
        for ((slot, x), y) in slots.iter_mut().zip(x).zip(y) {
            let slope = cosine * x.wide() / (long * long) - y.wide() / (long * other);
            *slot = T::of(slope * share / rows as f64);
        }
    }
    sum / rows as f64
}
