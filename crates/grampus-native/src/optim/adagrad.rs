//! Steps that get shorter by all gradients there were.

use crate::error::NativeError;
use crate::real::Real;

use super::Rule;
use super::settings::{not_negative, settings};
use super::sweep::Part;

settings! {
    /// Adagrad.
    Adagrad {
        lr = 1e-2,
        /// How fast the learning rate gets smaller by the count of steps alone.
        lr_decay: f64 = 0.0,
        /// How much of each parameter is added to its gradient.
        weight_decay: f64 = 0.0,
        /// What the sum of squares is in the beginning.
        initial_accumulator_value: f64 = 0.0,
        /// What keeps the division from one by zero.
        eps: f64 = 1e-10,
    }
}

impl Rule for Adagrad {
    fn check(&self) -> Result<(), String> {
        not_negative("lr_decay", self.lr_decay)?;
        not_negative("initial_accumulator_value", self.initial_accumulator_value)?;
        not_negative("eps", self.eps)
    }

    fn slots(&self) -> Vec<(&'static str, f64)> {
        vec![("sum", self.initial_accumulator_value)]
    }

    fn weight_decay(&self) -> Option<f64> {
        Some(self.weight_decay)
    }

    fn apply<T: Real>(&self, part: Part<'_, T>) -> Result<(), NativeError> {
        let before = part.steps.saturating_sub(1) as f64;
        let lr = T::of(part.lr / (1.0 + before * self.lr_decay));
        let (decay, eps) = (T::of(part.weight_decay), T::of(self.eps));
        part.sweep1(
            #[inline(always)]
            move |p, g, sum| {
                let g = g + decay * *p;
                *sum += g * g;
                *p -= lr * (g / (sum.sqrt() + eps));
            },
        )
    }
}
