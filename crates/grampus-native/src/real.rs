//! Numbers that layers compute with, one at a time and in vectors as long as the processor has them.

use std::fmt::{Debug, Display};
use std::iter::Sum;

use gemm_common::Parallelism;
use num_traits::{Float, NumAssign};
use pulp::{Arch, NullaryFnOnce, Simd, WithSimd};

/// `f32` or `f64`.
pub trait Real:
    Float
    + NumAssign
    + Sum
    + Default
    + Debug
    + Display
    + Send
    + Sync
    + 'static
    + serde::Serialize
    + serde::de::DeserializeOwned
{
    /// As many of them as fit into a register.
    type Vector<S: Simd>: Copy;

    /// From a number of double precision, rounded.
    fn of(value: f64) -> Self;

    /// With double precision.
    fn wide(self) -> f64;

    /// A vector of one value.
    fn splat<S: Simd>(simd: S, value: Self) -> Self::Vector<S>;

    /// `a * b + c`, rounded once.
    fn fused<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>, c: Self::Vector<S>)
    -> Self::Vector<S>;

    /// The sum of all of a vector.
    fn total<S: Simd>(simd: S, a: Self::Vector<S>) -> Self;

    /// What multiplies matrices on this processor. Its arguments are those of `gemm::gemm`.
    fn product() -> Product<Self>;
}

/// The product of two matrices: sides, and for each of the three its place and how far columns and rows are apart.
pub type Product<T> = unsafe fn(
    usize,
    usize,
    usize,
    *mut T,
    isize,
    isize,
    bool,
    *const T,
    isize,
    isize,
    *const T,
    isize,
    isize,
    T,
    T,
    bool,
    bool,
    bool,
    Parallelism,
);

macro_rules! real {
    ($real:ident, $vector:ident, $splat:ident, $fused:ident, $total:ident, $product:path) => {
        impl Real for $real {
            type Vector<S: Simd> = S::$vector;

            #[inline(always)]
            fn of(value: f64) -> Self {
                value as $real
            }

            #[inline(always)]
            fn wide(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn splat<S: Simd>(simd: S, value: Self) -> Self::Vector<S> {
                simd.$splat(value)
            }

            #[inline(always)]
            fn fused<S: Simd>(
                simd: S,
                a: Self::Vector<S>,
                b: Self::Vector<S>,
                c: Self::Vector<S>,
            ) -> Self::Vector<S> {
                simd.$fused(a, b, c)
            }

            #[inline(always)]
            fn total<S: Simd>(simd: S, a: Self::Vector<S>) -> Self {
                simd.$total(a)
            }

            fn product() -> Product<Self> {
                $product()
            }
        }
    };
}

// Not by way of the crate `gemm`, which brings the products of complex numbers into every program.
real!(
    f32,
    f32s,
    splat_f32s,
    mul_add_f32s,
    reduce_sum_f32s,
    gemm_f32::gemm::f32::get_gemm_fn
);
real!(
    f64,
    f64s,
    splat_f64s,
    mul_add_f64s,
    reduce_sum_f64s,
    gemm_f64::gemm::f64::get_gemm_fn
);

/// How many numbers a vector has.
#[inline(always)]
pub(crate) const fn lanes<T: Real, S: Simd>() -> usize {
    size_of::<T::Vector<S>>() / size_of::<T>()
}

/// Runs work with the widest vectors that this processor has.
pub(crate) fn vectorized<W: WithSimd>(work: W) -> W::Output {
    Arch::new().dispatch(work)
}

/// Runs a plain loop, compiled for the widest vectors that this processor has.
pub(crate) fn wide_loop<R>(body: impl FnOnce() -> R) -> R {
    struct Body<F>(F);
    impl<R, F: FnOnce() -> R> NullaryFnOnce for Body<F> {
        type Output = R;
        #[inline(always)]
        fn call(self) -> R {
            (self.0)()
        }
    }
    Arch::new().dispatch(Body(body))
}
