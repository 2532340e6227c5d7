//! What an element is read as, what it is combined in, and the operations themselves.

use half::{bf16, f16};

use super::convert::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

/// A type as it lies in users' buffers.
pub(super) trait Element: Copy + 'static {
    /// The type in which elements are combined, and in which partial results travel.
    type Work: Work;
    /// Read an element for combining.
    fn widen(self) -> Self::Work;
    /// Round to what users get.
    fn seal(result: Self::Work) -> Self;
}

/// A type in which elements are combined. Integers are never divided: `check` refuses their mean.
pub(super) trait Work: Copy + 'static {
    /// The number nearest to this one, once per loop.
    fn from_f64(value: f64) -> Self;
    /// The product.
    fn multiplied(self, factor: Self) -> Self;
    /// The quotient.
    fn divided(self, divisor: Self) -> Self;
}

/// A bool as it lies in memory, where anything but zero is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Truth(u8);

impl Truth {
    #[inline(always)]
    fn normal(self) -> Self {
        Self(u8::from(self.0 != 0))
    }
}

#[inline(always)]
pub(super) fn canonical_f32(value: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { value }
}

#[inline(always)]
pub(super) fn canonical_f64(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

macro_rules! element {
    ($type:ty, $work:ty, $widen:expr, $seal:expr) => {
        impl Element for $type {
            type Work = $work;
            #[inline(always)]
            fn widen(self) -> $work {
                $widen(self)
            }
            #[inline(always)]
            fn seal(result: $work) -> Self {
                $seal(result)
            }
        }
    };
}

element!(f32, f32, std::convert::identity, canonical_f32);
element!(f64, f64, std::convert::identity, canonical_f64);
element!(f16, f32, f16_to_f32, f32_to_f16);
element!(bf16, f32, bf16_to_f32, f32_to_bf16);
element!(i8, i8, std::convert::identity, std::convert::identity);
element!(u8, u8, std::convert::identity, std::convert::identity);
element!(i32, i32, std::convert::identity, std::convert::identity);
element!(i64, i64, std::convert::identity, std::convert::identity);
element!(Truth, Truth, std::convert::identity, Truth::normal);

macro_rules! divided {
    ($($type:ty),*) => {$(
        impl Work for $type {
            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $type
            }
            #[inline(always)]
            fn multiplied(self, factor: Self) -> Self {
                self * factor
            }
            #[inline(always)]
            fn divided(self, divisor: Self) -> Self {
                self / divisor
            }
        }
    )*};
}

macro_rules! undivided {
    ($($type:ty = $none:expr),*) => {$(
        impl Work for $type {
            #[inline(always)]
            fn from_f64(_value: f64) -> Self {
                $none
            }
            #[inline(always)]
            fn multiplied(self, _factor: Self) -> Self {
                self
            }
            #[inline(always)]
            fn divided(self, _divisor: Self) -> Self {
                self
            }
        }
    )*};
}

divided!(f32, f64);
undivided!(i8 = 0, u8 = 0, i32 = 0, i64 = 0, Truth = Truth(0));

/// One way to combine two values. All are symmetric, so it does not matter which side comes first.
pub(super) trait Combine<W>: 'static {
    /// The two as one.
    fn combine(left: W, right: W) -> W;
}

pub(super) struct Sum;
pub(super) struct Product;
pub(super) struct Min;
pub(super) struct Max;
pub(super) struct And;
pub(super) struct Or;

macro_rules! combine {
    ($op:ty, $type:ty, $how:expr) => {
        impl Combine<$type> for $op {
            #[inline(always)]
            fn combine(left: $type, right: $type) -> $type {
                $how(left, right)
            }
        }
    };
}

macro_rules! float_ops {
    ($type:ty) => {
        combine!(Sum, $type, |left: $type, right: $type| left + right);
        combine!(Product, $type, |left: $type, right: $type| left * right);
        // Equal values differ at most in the sign of zero: "or" of the bits gives -0, "and" gives +0. The last
        // case also takes a NaN on the right.
        combine!(Min, $type, |left: $type, right: $type| {
            let equal = <$type>::from_bits(left.to_bits() | right.to_bits());
            let other = if left < right || left.is_nan() {
                left
            } else {
                right
            };
            if left == right { equal } else { other }
        });
        combine!(Max, $type, |left: $type, right: $type| {
            let equal = <$type>::from_bits(left.to_bits() & right.to_bits());
            let other = if left > right || left.is_nan() {
                left
            } else {
                right
            };
            if left == right { equal } else { other }
        });
    };
}

macro_rules! integer_ops {
    ($($type:ty),*) => {$(
        combine!(Sum, $type, <$type>::wrapping_add);
        combine!(Product, $type, <$type>::wrapping_mul);
        combine!(Min, $type, Ord::min);
        combine!(Max, $type, Ord::max);
        combine!(And, $type, |left: $type, right: $type| left & right);
        combine!(Or, $type, |left: $type, right: $type| left | right);
    )*};
}

float_ops!(f32);
float_ops!(f64);
integer_ops!(i8, u8, i32, i64);
combine!(And, Truth, |left: Truth, right: Truth| Truth(
    left.normal().0 & right.normal().0
));
combine!(Or, Truth, |left: Truth, right: Truth| Truth(left.0 | right.0));
