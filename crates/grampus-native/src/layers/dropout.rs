//! Some numbers left out by chance.

use grampus_core::Random;
use serde::{Deserialize, Serialize};

use crate::description::Describe;
use crate::error::NativeError;
use crate::kernel::{Backward, Forward, Kernel};
use crate::real::Real;
use crate::shape::Shape;

/// In training, zero with a probability, and others larger by as much; nothing happens when the model answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dropout {
    /// How probable a zero is; 0.5 by default.
    pub p: f64,
}

impl Dropout {
    /// With this probability of a zero.
    pub fn new(p: f64) -> Self {
        Self { p }
    }
}

impl Describe for Dropout {
    fn check(&self) -> Result<(), String> {
        match (0.0..=1.0).contains(&self.p) {
            true => Ok(()),
            false => Err(format!("p must be between 0 and 1, it is {}", self.p)),
        }
    }

    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        Ok(inputs[0].clone())
    }

    fn kernel<T: Real>(&self, _inputs: &[Shape], _rows: usize) -> Box<dyn Kernel<T>> {
        Box::new(Left {
            p: self.p,
            factors: Vec::<T>::new(),
        })
    }

    fn told(&self) -> String {
        format!("Dropout({})", self.p)
    }
}

struct Left<T> {
    p: f64,
    /// What each number was multiplied with.
    factors: Vec<T>,
}

impl<T: Real> Kernel<T> for Left<T> {
    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError> {
        if !at.trains {
            at.output.copy_from_slice(at.inputs[0]);
            return Ok(());
        }
        draw(&mut self.factors, at.output.len(), self.p, at.seed);
        for ((output, input), factor) in at.output.iter_mut().zip(at.inputs[0]).zip(&self.factors) {
            *output = *input * *factor;
        }
        Ok(())
    }

    fn backward(&mut self, at: Backward<'_, T>) {
        let Some(d_input) = &mut at.d_inputs[0] else {
            return;
        };
        for ((target, error), factor) in d_input.iter_mut().zip(at.d_output.iter()).zip(&self.factors) {
            *target = *error * *factor;
        }
    }
}

/// Zero with a probability, else what makes good for it.
pub(super) fn draw<T: Real>(factors: &mut Vec<T>, count: usize, p: f64, seed: u64) {
    let mut random = Random::new(seed);
    let limit = (p * 2_f64.powi(32)) as u64;
    let kept = if p < 1.0 {
        T::of(1.0 / (1.0 - p))
    } else {
        T::zero()
    };
    factors.clear();
    // Two from each number that is drawn.
    for _ in 0..count.div_ceil(2) {
        let drawn = random.next_u64();
        for half in [drawn >> 32, drawn & 0xffff_ffff] {
            factors.push(if half < limit { T::zero() } else { kept });
        }
    }
    factors.truncate(count);
}
