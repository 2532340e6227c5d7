//! Activations whose way back needs nothing but what came out: other layers take them over.

use crate::real::{Real, wide_loop};

/// A function of single numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Activation {
    Relu,
    /// With the slope below zero, which is above zero.
    LeakyRelu(f64),
    Elu(f64),
    Sigmoid,
    Tanh,
}

impl Activation {
    /// In place.
    pub(crate) fn apply<T: Real>(self, values: &mut [T]) {
        match self {
            Self::Relu => each(values, |x| if x > T::zero() { x } else { T::zero() * x }),
            Self::LeakyRelu(slope) => {
                let slope = T::of(slope);
                each(values, |x| if x > T::zero() { x } else { slope * x });
            }
            Self::Elu(alpha) => {
                let alpha = T::of(alpha);
                each(values, |x| if x > T::zero() { x } else { alpha * x.exp_m1() });
            }
            Self::Sigmoid => each(values, sigmoid),
            Self::Tanh => each(values, T::tanh),
        }
    }

    /// Turns the gradient of what came out into that of what came in.
    pub(crate) fn back<T: Real>(self, output: &[T], gradient: &mut [T]) {
        match self {
            Self::Relu => both(output, gradient, |y, d| if y > T::zero() { d } else { T::zero() }),
            Self::LeakyRelu(slope) => {
                let slope = T::of(slope);
                both(output, gradient, |y, d| if y > T::zero() { d } else { slope * d });
            }
            Self::Elu(alpha) => {
                let alpha = T::of(alpha);
                both(
                    output,
                    gradient,
                    |y, d| if y > T::zero() { d } else { d * (y + alpha) },
                );
            }
            Self::Sigmoid => both(output, gradient, |y, d| d * y * (T::one() - y)),
            Self::Tanh => both(output, gradient, |y, d| d * (T::one() - y * y)),
        }
    }
}

/// Never overflows, whatever comes in.
pub(crate) fn sigmoid<T: Real>(x: T) -> T {
    let small = (-x.abs()).exp();
    let of_positive = T::one() / (T::one() + small);
    if x >= T::zero() {
        of_positive
    } else {
        small * of_positive
    }
}

fn each<T: Real>(values: &mut [T], function: impl Fn(T) -> T) {
    wide_loop(|| {
        for value in values {
            *value = function(*value);
        }
    });
}

fn both<T: Real>(output: &[T], gradient: &mut [T], function: impl Fn(T, T) -> T) {
    wide_loop(|| {
        for (value, output) in gradient.iter_mut().zip(output) {
            *value = function(*output, *value);
        }
    });
}
