//! Half floats to f32 and back, rounding to nearest even. NaNs come out as the canonical NaN.

use half::{bf16, f16};

use super::element::{canonical_f32, each};
#[cfg(target_arch = "x86_64")]
use super::level::Level;
use super::level::Width;

/// Where a value of bf16 lies in an f32: its upper half.
const BF16_SHIFT: u32 = 16;

/// A bf16 as f32: exact.
#[inline(always)]
pub(super) fn bf16_to_f32(value: bf16) -> f32 {
    f32::from_bits(u32::from(value.to_bits()) << BF16_SHIFT)
}

/// The nearest bf16. Integers only, so that it vectorises and no register width treats subnormals differently.
#[inline(always)]
pub(super) fn f32_to_bf16(value: f32) -> bf16 {
    let bits = value.to_bits();
    // Half a unit less one, plus one if the last bit kept is odd: a tie then goes to the even neighbour.
    let odd = (bits >> BF16_SHIFT) & 1;
    let rounded = (bits.wrapping_add(0x7fff + odd) >> BF16_SHIFT) as u16;
    bf16::from_bits(if value.is_nan() {
        bf16::NAN.to_bits()
    } else {
        rounded
    })
}

/// Values of f16 as f32: exact.
#[inline(always)]
pub(super) fn f16_to_f32<L: Width, const N: usize>(values: [f16; N]) -> [f32; N] {
    #[cfg(target_arch = "x86_64")]
    if !matches!(L::LEVEL, Level::Plain) && N.is_multiple_of(x86::GROUP) {
        let mut wide = [0.0; N];
        for at in (0..N).step_by(x86::GROUP) {
            // SAFETY: kernels of this level run only where F16C is; `at` leaves a whole group in both arrays.
            unsafe { x86::widen(values.as_ptr().add(at), wide.as_mut_ptr().add(at)) };
        }
        return wide;
    }
    each(|at| values[at].to_f32_const())
}

/// The nearest values of f16.
#[inline(always)]
pub(super) fn f32_to_f16<L: Width, const N: usize>(values: [f32; N]) -> [f16; N] {
    #[cfg(target_arch = "x86_64")]
    if !matches!(L::LEVEL, Level::Plain) && N.is_multiple_of(x86::GROUP) {
        let values: [f32; N] = each(|at| canonical_f32(values[at]));
        let mut narrow = [f16::ZERO; N];
        for at in (0..N).step_by(x86::GROUP) {
            // SAFETY: kernels of this level run only where F16C is; `at` leaves a whole group in both arrays.
            unsafe { x86::narrow(values.as_ptr().add(at), narrow.as_mut_ptr().add(at)) };
        }
        return narrow;
    }
    each(|at| {
        let rounded = f16::from_f32_const(values[at]);
        if values[at].is_nan() { f16::NAN } else { rounded }
    })
}

/// The conversions of F16C, which Rust cannot express without naming them.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps, _mm256_cvtps_ph,
        _mm256_loadu_ps, _mm256_storeu_ps,
    };

    use half::f16;

    /// How many values one instruction converts.
    pub(super) const GROUP: usize = 8;

    /// # Safety
    /// The machine has AVX and F16C; both pointers are good for `GROUP` values.
    #[inline(always)]
    pub(super) unsafe fn widen(from: *const f16, to: *mut f32) {
        // SAFETY: as the caller promises.
        unsafe { _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(from.cast()))) }
    }

    /// # Safety
    /// The machine has AVX and F16C; both pointers are good for `GROUP` values.
    #[inline(always)]
    pub(super) unsafe fn narrow(from: *const f32, to: *mut f16) {
        // SAFETY: as the caller promises.
        unsafe {
            _mm_storeu_si128(
                to.cast(),
                _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from)),
            );
        }
    }
}
