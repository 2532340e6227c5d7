//! Steps by the gradient over the mean of squares.

use crate::error::NativeError;
use crate::real::Real;

use super::Rule;
use super::settings::{not_negative, settings, share};
use super::sweep::{Part, greater};

settings! {
    /// RMSprop.
    RmsProp {
        lr = 1e-2,
        /// How much of the means is kept in each step.
        alpha: f64 = 0.99,
        /// What keeps the division from one by zero.
        eps: f64 = 1e-8,
        /// How much of each parameter is added to its gradient.
        weight_decay: f64 = 0.0,
        /// How much of the last step goes into the next.
        momentum: f64 = 0.0,
        /// Whether the variance of gradients counts instead of the mean of their squares.
        centered: bool = false,
    }
}

impl Rule for RmsProp {
    fn check(&self) -> Result<(), String> {
        share("alpha", self.alpha)?;
        not_negative("eps", self.eps)?;
        not_negative("momentum", self.momentum)
    }

    fn slots(&self) -> Vec<(&'static str, f64)> {
        let used = [
            ("square_avg", true),
            ("grad_avg", self.centered),
            ("momentum_buffer", self.momentum > 0.0),
        ];
        used.into_iter()
            .filter(|(_, used)| *used)
            .map(|(name, _)| (name, 0.0))
            .collect()
    }

    fn weight_decay(&self) -> Option<f64> {
        Some(self.weight_decay)
    }

    fn apply<T: Real>(&self, part: Part<'_, T>) -> Result<(), NativeError> {
        let (lr, momentum) = (T::of(part.lr), T::of(self.momentum));
        let means = Means {
            kept: T::of(self.alpha),
            taken: T::of(1.0 - self.alpha),
            eps: T::of(self.eps),
            decay: T::of(part.weight_decay),
        };
        match (self.centered, self.momentum > 0.0) {
            (false, false) => part.sweep1(
                #[inline(always)]
                move |p, g, square| *p -= lr * means.divided(*p, g, square),
            ),
            (false, true) => part.sweep2(
                #[inline(always)]
                move |p, g, square, buffer| {
                    *buffer = *buffer * momentum + means.divided(*p, g, square);
                    *p -= lr * *buffer;
                },
            ),
            (true, false) => part.sweep2(
                #[inline(always)]
                move |p, g, square, mean| *p -= lr * means.divided_by_deviation(*p, g, square, mean),
            ),
            (true, true) => part.sweep3(
                #[inline(always)]
                move |p, g, square, mean, buffer| {
                    *buffer = *buffer * momentum + means.divided_by_deviation(*p, g, square, mean);
                    *p -= lr * *buffer;
                },
            ),
        }
    }
}

#[derive(Clone, Copy)]
struct Means<T> {
    kept: T,
    taken: T,
    eps: T,
    decay: T,
}

impl<T: Real> Means<T> {
    /// The gradient over the root of the mean of squares.
    #[inline(always)]
    fn divided(self, p: T, g: T, square: &mut T) -> T {
        let g = g + self.decay * p;
        *square = *square * self.kept + self.taken * g * g;
        g / (square.sqrt() + self.eps)
    }

    /// The gradient over its standard deviation.
    #[inline(always)]
    fn divided_by_deviation(self, p: T, g: T, square: &mut T, mean: &mut T) -> T {
        let g = g + self.decay * p;
        *square = *square * self.kept + self.taken * g * g;
        *mean += (g - *mean) * self.taken;
        // Rounding can bring a variance of almost nothing below zero, which has no root.
        g / (greater(T::zero(), *square - *mean * *mean).sqrt() + self.eps)
    }
}
