//! Functions whose way back needs what came in, and those that look at several numbers.

use serde::{Deserialize, Serialize};

use crate::activation::sigmoid;
use crate::description::Describe;
use crate::error::NativeError;
use crate::kernel::{Backward, Forward, Kernel};
use crate::real::Real;
use crate::shape::Shape;

/// `x` times how probable less than `x` is, normally distributed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gelu {
    /// Whether it is computed with `tanh`, which is almost the same and faster.
    #[serde(default)]
    pub tanh: bool,
}

/// `x` times the sigmoid of `x`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Silu;

/// What [`Gelu`] and [`Silu`] have in common.
#[derive(Clone, Copy)]
enum Curve {
    Gelu,
    GeluTanh,
    Silu,
}

macro_rules! curve {
    ($kind:ident, |$this:ident| $curve:expr, $told:expr) => {
        impl Describe for $kind {
            fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
                Ok(inputs[0].clone())
            }

            fn kernel<T: Real>(&self, _inputs: &[Shape], _rows: usize) -> Box<dyn Kernel<T>> {
                let $this = self;
                Box::new($curve)
            }

            fn told(&self) -> String {
                let $this = self;
                $told.into()
            }
        }
    };
}

curve!(Silu, |_this| Curve::Silu, "SiLU()");
curve!(
    Gelu,
    |this| if this.tanh { Curve::GeluTanh } else { Curve::Gelu },
    if this.tanh { "GELU(tanh)" } else { "GELU()" }
);

impl Curve {
    /// The value, and how steep it is there.
    fn at<T: Real>(self, x: T) -> (T, T) {
        let one = T::one();
        match self {
            Self::Silu => {
                let s = sigmoid(x);
                (x * s, s * (one + x * (one - s)))
            }
            Self::GeluTanh => {
                let (a, b) = (T::of((2.0 / std::f64::consts::PI).sqrt()), T::of(0.044_715));
                let t = (a * (x + b * x * x * x)).tanh();
                let half = T::of(0.5);
                let slope = a * (one + T::of(3.0) * b * x * x);
                (
                    half * x * (one + t),
                    half * (one + t) + half * x * (one - t * t) * slope,
                )
            }
            Self::Gelu => {
                let wide = x.wide();
                let below = 0.5 * (1.0 + erf(wide / std::f64::consts::SQRT_2));
                let density = (-0.5 * wide * wide).exp() / (2.0 * std::f64::consts::PI).sqrt();
                (T::of(wide * below), T::of(below + wide * density))
            }
        }
    }
}

impl<T: Real> Kernel<T> for Curve {
    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError> {
        for (output, input) in at.output.iter_mut().zip(at.inputs[0]) {
            *output = self.at(*input).0;
        }
        Ok(())
    }

    fn backward(&mut self, at: Backward<'_, T>) {
        let Some(d_input) = &mut at.d_inputs[0] else {
            return;
        };
        for ((target, input), error) in d_input.iter_mut().zip(at.inputs[0]).zip(at.d_output.iter()) {
            *target = *error * self.at(*input).1;
        }
    }
}

/// The error function, to the last digits of double precision: its series near zero, a continued fraction further out.
fn erf(x: f64) -> f64 {
    let far = x.abs();
    if far > 6.0 {
        return x.signum();
    }
    if far < 2.5 {
        let (mut term, mut sum) = (x, x);
        for n in 1..100 {
            term *= -x * x / f64::from(n);
            let next = term / f64::from(2 * n + 1);
            sum += next;
            if next.abs() < 1e-17 * sum.abs() {
                break;
            }
        }
        return sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let mut fraction = 0.0;
    for n in (1..=60).rev() {
        fraction = f64::from(n) / 2.0 / (far + fraction);
    }
    let rest = (-far * far).exp() / ((far + fraction) * std::f64::consts::PI.sqrt());
    x.signum() * (1.0 - rest)
}

/// Probabilities from scores, along one axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Softmax {
    /// Which axis of a row; counted from the last where below zero; the last by default.
    pub axis: isize,
}

/// Logarithms of probabilities from scores, along one axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogSoftmax {
    /// Which axis of a row; counted from the last where below zero; the last by default.
    pub axis: isize,
}

impl Default for Softmax {
    fn default() -> Self {
        Self { axis: -1 }
    }
}

impl Default for LogSoftmax {
    fn default() -> Self {
        Self { axis: -1 }
    }
}

macro_rules! along {
    ($kind:ident, $logs:expr) => {
        impl Describe for $kind {
            fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
                place(self.axis, &inputs[0]).map(|_| inputs[0].clone())
            }

            fn kernel<T: Real>(&self, inputs: &[Shape], _rows: usize) -> Box<dyn Kernel<T>> {
                let axis = place(self.axis, &inputs[0]).unwrap_or(0);
                let axes = inputs[0].axes();
                Box::new(Along {
                    length: axes[axis],
                    step: axes[axis + 1..].iter().product(),
                    logs: $logs,
                })
            }

            fn told(&self) -> String {
                format!("{}({})", stringify!($kind), self.axis)
            }
        }
    };
}

along!(Softmax, false);
along!(LogSoftmax, true);

/// The axis that is meant.
pub(super) fn place(axis: isize, shape: &Shape) -> Result<usize, String> {
    let count = shape.axes().len() as isize;
    let found = if axis < 0 { axis + count } else { axis };
    match (0..count).contains(&found) {
        true => Ok(found as usize),
        false => Err(format!("has no axis {axis} in {shape}")),
    }
}

struct Along {
    length: usize,
    /// How far numbers along the axis lie apart.
    step: usize,
    logs: bool,
}

impl Along {
    /// Where each line along the axis begins.
    fn lines(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let (step, block) = (self.step, self.step * self.length);
        (0..count / block.max(1)).flat_map(move |at| (0..step).map(move |place| at * block + place))
    }
}

impl<T: Real> Kernel<T> for Along {
    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError> {
        let input = at.inputs[0];
        for start in self.lines(input.len()) {
            let places = (0..self.length).map(|index| start + index * self.step);
            let greatest = places
                .clone()
                .map(|place| input[place])
                .fold(T::neg_infinity(), T::max);
            let sum = places
                .clone()
                .map(|place| (input[place] - greatest).exp())
                .sum::<T>();
            let below = greatest + sum.ln();
            for place in places {
                at.output[place] = match self.logs {
                    true => input[place] - below,
                    false => (input[place] - greatest).exp() / sum,
                };
            }
        }
        Ok(())
    }

    fn backward(&mut self, at: Backward<'_, T>) {
        let Some(d_input) = &mut at.d_inputs[0] else {
            return;
        };
        for start in self.lines(at.output.len()) {
            let places = (0..self.length).map(|index| start + index * self.step);
            let (output, errors) = (at.output, &*at.d_output);
            let sum = places
                .clone()
                .map(|place| {
                    if self.logs {
                        errors[place]
                    } else {
                        errors[place] * output[place]
                    }
                })
                .sum::<T>();
            for place in places {
                d_input[place] = match self.logs {
                    true => errors[place] - output[place].exp() * sum,
                    false => output[place] * (errors[place] - sum),
                };
            }
        }
    }
}
