//! Follow the regularized leader.

use crate::error::NativeError;
use crate::real::Real;

use super::Rule;
use super::settings::{not_negative, settings};
use super::sweep::Part;

settings! {
    /// Follow the regularized leader, as in TensorFlow: many parameters become exactly zero where `l1` is
    /// above zero.
    Ftrl {
        lr = 1e-3,
        /// How steps get shorter: by which power of the sum of squares.
        learning_rate_power: f64 = -0.5,
        /// What the sum of squares is in the beginning.
        initial_accumulator_value: f64 = 0.1,
        /// How much parameters cost by their size.
        l1: f64 = 0.0,
        /// How much parameters cost by their square.
        l2: f64 = 0.0,
        /// How much of each parameter, twice, is added to its gradient, though not to the sum of squares.
        l2_shrinkage: f64 = 0.0,
    }
}

impl Rule for Ftrl {
    fn check(&self) -> Result<(), String> {
        if !(self.learning_rate_power <= 0.0 && self.learning_rate_power.is_finite()) {
            return Err(format!(
                "learning_rate_power must be 0 or less, it is {}",
                self.learning_rate_power
            ));
        }
        not_negative("initial_accumulator_value", self.initial_accumulator_value)?;
        not_negative("l1", self.l1)?;
        not_negative("l2", self.l2)?;
        not_negative("l2_shrinkage", self.l2_shrinkage)
    }

    fn slots(&self) -> Vec<(&'static str, f64)> {
        vec![("accumulator", self.initial_accumulator_value), ("linear", 0.0)]
    }

    fn weight_decay(&self) -> Option<f64> {
        None
    }

    fn apply<T: Real>(&self, part: Part<'_, T>) -> Result<(), NativeError> {
        // The rule divides by the rate. With none, nothing is to move.
        if part.lr == 0.0 {
            return Ok(());
        }
        // A root runs in vectors, other powers do not.
        if self.learning_rate_power == -0.5 {
            return self.follow(
                part,
                #[inline(always)]
                |sum: T| sum.sqrt(),
            );
        }
        let power = T::of(-self.learning_rate_power);
        self.follow(
            part,
            #[inline(always)]
            move |sum: T| sum.powf(power),
        )
    }
}

impl Ftrl {
    fn follow<T: Real>(&self, part: Part<'_, T>, power: impl Fn(T) -> T) -> Result<(), NativeError> {
        let per_rate = T::of(1.0 / part.lr);
        let (l1, twice_l2) = (T::of(self.l1), T::of(2.0 * self.l2));
        let twice_shrinkage = T::of(2.0 * self.l2_shrinkage);
        part.sweep2(
            #[inline(always)]
            move |p, g, sum, linear| {
                let before = power(*sum);
                *sum += g * g;
                let after = power(*sum);
                *linear += g + twice_shrinkage * *p - (after - before) * per_rate * *p;
                let moved = (l1 * linear.signum() - *linear) / (after * per_rate + twice_l2);
                // So that what is no number stays none.
                *p = if linear.abs() <= l1 { T::zero() } else { moved };
            },
        )
    }
}
