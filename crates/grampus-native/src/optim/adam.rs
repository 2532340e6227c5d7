//! Steps by the mean of gradients over the mean of their squares.

use crate::error::NativeError;
use crate::real::Real;

use super::Rule;
use super::settings::{both_below_one, not_negative, settings};
use super::sweep::{Part, greater};

settings! {
    /// Adam.
    Adam {
        lr = 1e-3,
        /// How much of the means is kept in each step: of gradients, and of their squares.
        betas: [f64; 2] = [0.9, 0.999],
        /// What keeps the division from one by zero.
        eps: f64 = 1e-8,
        /// How much of each parameter is added to its gradient.
        weight_decay: f64 = 0.0,
        /// Whether the greatest mean of squares counts instead of the last.
        amsgrad: bool = false,
    }
}

settings! {
    /// Adam whose decay does not go through the means.
    AdamW {
        lr = 1e-3,
        /// How much of the means is kept in each step: of gradients, and of their squares.
        betas: [f64; 2] = [0.9, 0.999],
        /// What keeps the division from one by zero.
        eps: f64 = 1e-8,
        /// How much of each parameter is taken from it, times the learning rate.
        weight_decay: f64 = 0.01,
        /// Whether the greatest mean of squares counts instead of the last.
        amsgrad: bool = false,
    }
}

macro_rules! adam_rule {
    ($kind:ident, decoupled: $decoupled:literal) => {
        impl Rule for $kind {
            fn check(&self) -> Result<(), String> {
                both_below_one(self.betas)?;
                not_negative("eps", self.eps)
            }

            fn slots(&self) -> Vec<(&'static str, f64)> {
                let names = ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"];
                names
                    .into_iter()
                    .take(if self.amsgrad { 3 } else { 2 })
                    .map(|name| (name, 0.0))
                    .collect()
            }

            fn weight_decay(&self) -> Option<f64> {
                Some(self.weight_decay)
            }

            fn apply<T: Real>(&self, part: Part<'_, T>) -> Result<(), NativeError> {
                let keep = if $decoupled {
                    1.0 - part.lr * part.weight_decay
                } else {
                    1.0
                };
                let decay = if $decoupled { 0.0 } else { part.weight_decay };
                let moments = Moments::new(self.betas, self.eps, part.steps);
                step(
                    moments,
                    T::of(part.lr / bias(self.betas[0], part.steps)),
                    [T::of(keep), T::of(decay)],
                    self.amsgrad,
                    part,
                )
            }
        }
    };
}

adam_rule!(Adam, decoupled: false);
adam_rule!(AdamW, decoupled: true);

/// What a mean that began with zero is too small by.
pub(super) fn bias(beta: f64, steps: u64) -> f64 {
    1.0 - beta.powf(steps as f64)
}

/// The means of gradients and of their squares.
#[derive(Clone, Copy)]
pub(super) struct Moments<T> {
    taken: [T; 2],
    kept: T,
    unbiased: T,
    eps: T,
}

impl<T: Real> Moments<T> {
    pub(super) fn new(betas: [f64; 2], eps: f64, steps: u64) -> Self {
        Self {
            taken: betas.map(|beta| T::of(1.0 - beta)),
            kept: T::of(betas[1]),
            unbiased: T::of(1.0 / bias(betas[1], steps).sqrt()),
            eps: T::of(eps),
        }
    }

    /// Takes a gradient into the means.
    #[inline(always)]
    pub(super) fn take(self, g: T, average: &mut T, square: &mut T) {
        *average += (g - *average) * self.taken[0];
        *square = *square * self.kept + self.taken[1] * g * g;
    }

    /// What the mean of gradients is divided by.
    #[inline(always)]
    pub(super) fn divisor(self, square: T) -> T {
        square.sqrt() * self.unbiased + self.eps
    }
}

fn step<T: Real>(
    moments: Moments<T>,
    length: T,
    [keep, decay]: [T; 2],
    amsgrad: bool,
    part: Part<'_, T>,
) -> Result<(), NativeError> {
    if amsgrad {
        return part.sweep3(
            #[inline(always)]
            move |p, g, average, square, greatest| {
                moments.take(g + decay * *p, average, square);
                *greatest = greater(*greatest, *square);
                *p = *p * keep - length * (*average / moments.divisor(*greatest));
            },
        );
    }
    part.sweep2(
        #[inline(always)]
        move |p, g, average, square| {
            moments.take(g + decay * *p, average, square);
            *p = *p * keep - length * (*average / moments.divisor(*square));
        },
    )
}
