//! Gradients that are not to be too large.

use crate::error::NativeError;
use crate::real::Real;

/// What is done to each element of a gradient as it is read: it is scaled first, then kept between two
/// values.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Clip {
    /// What it is multiplied with.
    pub scale: f64,
    /// What it is at least.
    pub least: f64,
    /// What it is at most.
    pub most: f64,
}

impl Clip {
    /// Leaves gradients as they are.
    pub const NONE: Self = Self {
        scale: 1.0,
        least: f64::NEG_INFINITY,
        most: f64::INFINITY,
    };

    /// Keeps each element between two values.
    pub fn by_value(least: f64, most: f64) -> Result<Self, NativeError> {
        Self::NONE.and_by_value(least, most)
    }

    /// Scales a gradient of some norm so that its norm is at most `most`.
    ///
    /// As in PyTorch, a norm that is no number makes the gradient none either, and an endless one makes it
    /// zero: who wants to skip such a step has to look at the norm before.
    pub fn by_norm(most: f64, norm: f64) -> Result<Self, NativeError> {
        if most.is_nan() || most <= 0.0 {
            return Err(NativeError::Description(format!(
                "a gradient's norm must be clipped to more than 0, not to {most}"
            )));
        }
        // As in PyTorch: a gradient of zero is not divided by zero.
        let scale = most / (norm + 1e-6);
        Ok(Self {
            scale: if scale > 1.0 { 1.0 } else { scale },
            ..Self::NONE
        })
    }

    /// Keeps each element between two values after it has been scaled.
    pub fn and_by_value(self, least: f64, most: f64) -> Result<Self, NativeError> {
        if least.is_nan() || most.is_nan() || least > most {
            let wrong = format!(
                "gradients cannot be clipped to between {least} and {most}: give the smaller value first"
            );
            return Err(NativeError::Description(wrong));
        }
        Ok(Self { least, most, ..self })
    }

    /// For numbers of one precision.
    pub(super) fn rounded<T: Real>(self) -> Clipper<T> {
        Clipper {
            scale: T::of(self.scale),
            least: T::of(self.least),
            most: T::of(self.most),
        }
    }
}

impl Default for Clip {
    fn default() -> Self {
        Self::NONE
    }
}

#[derive(Clone, Copy)]
pub(super) struct Clipper<T> {
    scale: T,
    least: T,
    most: T,
}

impl<T: Real> Clipper<T> {
    /// What is no number stays none, so that it is seen.
    #[inline(always)]
    pub(super) fn apply(self, g: T) -> T {
        let g = g * self.scale;
        let g = if g < self.least { self.least } else { g };
        if g > self.most { self.most } else { g }
    }
}
