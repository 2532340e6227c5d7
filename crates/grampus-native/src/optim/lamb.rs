//! Adam with steps as long as each tensor can take.

use crate::error::NativeError;
use crate::real::{Real, wide_loop};

use super::Rule;
use super::adam::{Moments, bias};
use super::clip::Clipper;
use super::norms::{BLOCK, Piece};
use super::settings::{both_below_one, not_negative, settings};
use super::state::Slot;
use super::sweep::{Part, views};
use super::update::Prepared;

settings! {
    /// LAMB: for large batches. A step of a tensor is as long as the tensor itself, times the learning rate.
    Lamb {
        lr = 1e-3,
        /// How much of the means is kept in each step: of gradients, and of their squares.
        betas: [f64; 2] = [0.9, 0.999],
        /// What keeps the division from one by zero.
        eps: f64 = 1e-6,
        /// How much of each parameter is added to its direction.
        weight_decay: f64 = 0.0,
    }
}

impl Rule for Lamb {
    fn check(&self) -> Result<(), String> {
        both_below_one(self.betas)?;
        not_negative("eps", self.eps)
    }

    fn slots(&self) -> Vec<(&'static str, f64)> {
        vec![("exp_avg", 0.0), ("exp_avg_sq", 0.0)]
    }

    fn weight_decay(&self) -> Option<f64> {
        Some(self.weight_decay)
    }

    /// The means know the gradient already, see [`Direction::prepare`].
    fn apply<T: Real>(&self, part: Part<'_, T>) -> Result<(), NativeError> {
        let length = T::of(part.lr * part.trust);
        let direction = Direction::new(self, part.weight_decay, part.steps);
        part.sweep2(
            #[inline(always)]
            move |p, _, average, square| *p -= length * direction.of(*p, *average, *square),
        )
    }
}

/// Where a step goes, before its length is known.
#[derive(Clone, Copy)]
pub(super) struct Direction<T> {
    moments: Moments<T>,
    unbiased: T,
    decay: T,
}

impl<T: Real> Direction<T> {
    pub(super) fn new(lamb: &Lamb, weight_decay: f64, steps: u64) -> Self {
        Self {
            moments: Moments::new(lamb.betas, lamb.eps, steps),
            unbiased: T::of(1.0 / bias(lamb.betas[0], steps)),
            decay: T::of(weight_decay),
        }
    }

    /// Takes gradients of a piece of a block into the means; adds to what others have to know of it.
    pub(super) fn prepare(
        self,
        piece: &Piece,
        clip: Clipper<T>,
        slots: &mut [Slot<T>],
        parameters: &[T],
        gradient: &[T],
        prepared: &mut Prepared,
    ) -> Result<(), NativeError> {
        let here = piece.here.clone();
        let (parameters, gradient) = (&parameters[here.clone()], &gradient[here.clone()]);
        let [average, square] = views(slots, here)?;
        let mut directions = [T::zero(); BLOCK];
        let directions = &mut directions[..parameters.len()];
        wide_loop(
            #[inline(always)]
            || take(self, clip, parameters, gradient, average, square, directions),
        );
        piece.put(parameters, &mut prepared.parameters);
        piece.put(directions, &mut prepared.directions);
        Ok(())
    }

    #[inline(always)]
    fn of(self, p: T, average: T, square: T) -> T {
        average * self.unbiased / self.moments.divisor(square) + self.decay * p
    }
}

#[inline(always)]
fn take<T: Real>(
    direction: Direction<T>,
    clip: Clipper<T>,
    parameters: &[T],
    gradient: &[T],
    average: &mut [T],
    square: &mut [T],
    directions: &mut [T],
) {
    let inputs = parameters.iter().zip(gradient);
    let means = average.iter_mut().zip(square);
    for (((p, g), (average, square)), slot) in inputs.zip(means).zip(directions) {
        direction.moments.take(clip.apply(*g), average, square);
        *slot = direction.of(*p, *average, *square);
    }
}

/// How long the step of each tensor is for its direction, from sums of squares of its parameters and of its
/// directions.
pub fn trust_ratios(parameters: &[f64], directions: &[f64]) -> Vec<f64> {
    let ratio = |(parameters, directions): (&f64, &f64)| {
        // A tensor of zeros has to come away from them; one without any direction stays.
        let unknown = *parameters == 0.0 || *directions == 0.0;
        if unknown {
            1.0
        } else {
            parameters.sqrt() / directions.sqrt()
        }
    };
    parameters.iter().zip(directions).map(ratio).collect()
}
