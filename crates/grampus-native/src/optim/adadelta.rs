//! Steps as long as those before them, for gradients as large as those before them.

use crate::error::NativeError;
use crate::real::Real;

use super::Rule;
use super::settings::{not_negative, settings, share};
use super::sweep::Part;

settings! {
    /// Adadelta.
    Adadelta {
        lr = 1.0,
        /// How much of the means of squares is kept in each step.
        rho: f64 = 0.9,
        /// What keeps the division from one by zero, and the first step from being none.
        eps: f64 = 1e-6,
        /// How much of each parameter is added to its gradient.
        weight_decay: f64 = 0.0,
    }
}

impl Rule for Adadelta {
    fn check(&self) -> Result<(), String> {
        share("rho", self.rho)?;
        not_negative("eps", self.eps)
    }

    fn slots(&self) -> Vec<(&'static str, f64)> {
        vec![("square_avg", 0.0), ("acc_delta", 0.0)]
    }

    fn weight_decay(&self) -> Option<f64> {
        Some(self.weight_decay)
    }

    fn apply<T: Real>(&self, part: Part<'_, T>) -> Result<(), NativeError> {
        let (lr, decay) = (T::of(part.lr), T::of(part.weight_decay));
        let (kept, taken, eps) = (T::of(self.rho), T::of(1.0 - self.rho), T::of(self.eps));
        part.sweep2(
            #[inline(always)]
            move |p, g, square, moved| {
                let g = g + decay * *p;
                *square = *square * kept + taken * g * g;
                let step = (*moved + eps).sqrt() / (*square + eps).sqrt() * g;
                *moved = *moved * kept + taken * step * step;
                *p -= lr * step;
            },
        )
    }
}
