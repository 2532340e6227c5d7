//! What an element is read as, what it is combined in, and the operations themselves.

use half::{bf16, f16};

use super::convert::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use super::level::Width;

/// A type as it lies in users' buffers.
pub(super) trait Element: Copy + Default + 'static {
    /// The type in which elements are combined, and in which partial results travel.
    type Work: Work;
    /// Read elements for combining.
    fn widen<L: Width, const N: usize>(elements: [Self; N]) -> [Self::Work; N];
    /// Round to what users get.
    fn seal<L: Width, const N: usize>(results: [Self::Work; N]) -> [Self; N];
}

/// A type in which elements are combined. Integers are never divided: `check` refuses their mean.
pub(super) trait Work: Copy + Default + 'static {
    /// The product with a power of two: the same bits as dividing by its inverse, and faster.
    fn multiplied(self, factor: f64) -> Self;
    /// The quotient.
    fn divided(self, divisor: f64) -> Self;
}

/// An array made element by element. The compiler does not always inline the one of the standard library.
#[inline(always)]
pub(super) fn each<T: Copy + Default, const N: usize>(make: impl Fn(usize) -> T) -> [T; N] {
    let mut values = [T::default(); N];
    for (index, value) in values.iter_mut().enumerate() {
        *value = make(index);
    }
    values
}

/// A bool as it lies in memory, where anything but zero is true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Truth(pub(super) u8);

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
            fn widen<L: Width, const N: usize>(elements: [Self; N]) -> [$work; N] {
                each(|at| $widen(elements[at]))
            }
            #[inline(always)]
            fn seal<L: Width, const N: usize>(results: [$work; N]) -> [Self; N] {
                each(|at| $seal(results[at]))
            }
        }
    };
}

element!(f32, f32, std::convert::identity, canonical_f32);
element!(f64, f64, std::convert::identity, canonical_f64);
element!(bf16, f32, bf16_to_f32, f32_to_bf16);
element!(i8, i8, std::convert::identity, std::convert::identity);
element!(u8, u8, std::convert::identity, std::convert::identity);
element!(i32, i32, std::convert::identity, std::convert::identity);
element!(i64, i64, std::convert::identity, std::convert::identity);
element!(
    Truth,
    Truth,
    |truth: Truth| Truth(u8::from(truth.0 != 0)),
    std::convert::identity
);

impl Element for f16 {
    type Work = f32;
    #[inline(always)]
    fn widen<L: Width, const N: usize>(elements: [Self; N]) -> [f32; N] {
        f16_to_f32::<L, N>(elements)
    }
    #[inline(always)]
    fn seal<L: Width, const N: usize>(results: [f32; N]) -> [Self; N] {
        f32_to_f16::<L, N>(results)
    }
}

impl Work for f32 {
    #[inline(always)]
    fn multiplied(self, factor: f64) -> Self {
        self * factor as f32
    }
    #[inline(always)]
    fn divided(self, divisor: f64) -> Self {
        self / divisor as f32
    }
}

impl Work for f64 {
    #[inline(always)]
    fn multiplied(self, factor: f64) -> Self {
        self * factor
    }
    #[inline(always)]
    fn divided(self, divisor: f64) -> Self {
        self / divisor
    }
}

macro_rules! undivided {
    ($($type:ty),*) => {$(
        impl Work for $type {
            #[inline(always)]
            fn multiplied(self, _factor: f64) -> Self {
                self
            }
            #[inline(always)]
            fn divided(self, _divisor: f64) -> Self {
                self
            }
        }
    )*};
}

undivided!(i8, u8, i32, i64, Truth);

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
combine!(And, Truth, |left: Truth, right: Truth| Truth(left.0 & right.0));
combine!(Or, Truth, |left: Truth, right: Truth| Truth(left.0 | right.0));
