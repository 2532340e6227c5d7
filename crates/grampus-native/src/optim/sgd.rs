//! Steps along the gradient.

use crate::error::NativeError;
use crate::real::Real;

use super::Rule;
use super::settings::{not_negative, settings};
use super::sweep::Part;

settings! {
    /// Stochastic gradient descent, with or without momentum.
    ///
    /// ```
    /// use grampus_native::optim::{Optimizer, Sgd};
    ///
    /// let optimizer: Optimizer = Sgd::new(0.01).momentum(0.9).into();
    /// assert_eq!(optimizer.check(), Ok(()));
    /// ```
    Sgd {
        lr = 1e-3,
        /// How much of the last step goes into the next.
        momentum: f64 = 0.0,
        /// Whether the gradient counts as seen from where momentum alone would lead.
        nesterov: bool = false,
        /// How much of a gradient is kept out of the momentum.
        dampening: f64 = 0.0,
        /// How much of each parameter is added to its gradient.
        weight_decay: f64 = 0.0,
    }
}

impl Rule for Sgd {
    fn check(&self) -> Result<(), String> {
        not_negative("momentum", self.momentum)?;
        if !self.dampening.is_finite() {
            return Err(format!("dampening must be a number, it is {}", self.dampening));
        }
        if self.nesterov && (self.momentum == 0.0 || self.dampening != 0.0) {
            return Err("nesterov needs a momentum above 0 and a dampening of 0".into());
        }
        Ok(())
    }

    fn slots(&self) -> Vec<(&'static str, f64)> {
        if self.momentum == 0.0 {
            Vec::new()
        } else {
            vec![("momentum_buffer", 0.0)]
        }
    }

    fn weight_decay(&self) -> Option<f64> {
        Some(self.weight_decay)
    }

    fn apply<T: Real>(&self, part: Part<'_, T>) -> Result<(), NativeError> {
        let (lr, decay) = (T::of(part.lr), T::of(part.weight_decay));
        if self.momentum == 0.0 {
            return part.sweep0(
                #[inline(always)]
                move |p, g| *p -= lr * (g + decay * *p),
            );
        }
        let momentum = T::of(self.momentum);
        // As in PyTorch, the first gradient is not dampened.
        let taken = T::of(if part.steps == 1 {
            1.0
        } else {
            1.0 - self.dampening
        });
        if self.nesterov {
            return part.sweep1(
                #[inline(always)]
                move |p, g, buffer| {
                    let g = g + decay * *p;
                    *buffer = *buffer * momentum + taken * g;
                    *p -= lr * (g + momentum * *buffer);
                },
            );
        }
        part.sweep1(
            #[inline(always)]
            move |p, g, buffer| {
                let g = g + decay * *p;
                *buffer = *buffer * momentum + taken * g;
                *p -= lr * *buffer;
            },
        )
    }
}
