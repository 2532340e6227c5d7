//! Adam by the greatest gradient instead of the mean of squares.

use crate::error::NativeError;
use crate::real::Real;

use super::Rule;
use super::adam::bias;
use super::settings::{both_below_one, not_negative, settings};
use super::sweep::{Part, greater};

settings! {
    /// Adamax.
    Adamax {
        lr = 2e-3,
        /// How much is kept in each step: of the mean of gradients, and of the greatest.
        betas: [f64; 2] = [0.9, 0.999],
        /// What keeps the division from one by zero.
        eps: f64 = 1e-8,
        /// How much of each parameter is added to its gradient.
        weight_decay: f64 = 0.0,
    }
}

impl Rule for Adamax {
    fn check(&self) -> Result<(), String> {
        both_below_one(self.betas)?;
        not_negative("eps", self.eps)
    }

    fn slots(&self) -> Vec<(&'static str, f64)> {
        vec![("exp_avg", 0.0), ("exp_inf", 0.0)]
    }

    fn weight_decay(&self) -> Option<f64> {
        Some(self.weight_decay)
    }

    fn apply<T: Real>(&self, part: Part<'_, T>) -> Result<(), NativeError> {
        let length = T::of(part.lr / bias(self.betas[0], part.steps));
        let (taken, kept) = (T::of(1.0 - self.betas[0]), T::of(self.betas[1]));
        let (decay, eps) = (T::of(part.weight_decay), T::of(self.eps));
        part.sweep2(
            #[inline(always)]
            move |p, g, average, greatest| {
                let g = g + decay * *p;
                *average += (g - *average) * taken;
                *greatest = greater(*greatest * kept, g.abs() + eps);
                *p -= length * (*average / *greatest);
            },
        )
    }
}
