//! Half floats to f32 and back, rounding to nearest even. NaNs come back as the canonical NaN.
//!
//! Written without branches, so that loops over them are vectorised, and without subnormals of f32 on the way,
//! so that a thread that flushes these gets the same bits.

use half::{bf16, f16};

/// Where a value of bf16 lies in an f32: its upper half.
const BF16_SHIFT: u32 = 16;
/// Bits of the fraction that f32 has more than f16.
const F16_SHIFT: u32 = 13;
/// What the exponent of f32 is larger by than that of f16, in place.
const F16_REBIAS: u32 = 112 << 23;
/// The fractions of 0.5 count in units of 2^-24, as the subnormals of f16 do.
const HALF: f32 = 0.5;

const SIGN: u32 = 1 << 31;
const F32_INFINITY: u32 = 0x7f80_0000;
/// The smallest power of two that is too large for f16, as f32.
const F16_OVERFLOW: u32 = 0x4780_0000;
/// The smallest normal value of f16, as f32.
const F16_SMALLEST_NORMAL: u32 = 0x3880_0000;

/// A bf16 as f32: exact.
#[inline(always)]
pub(super) fn bf16_to_f32(value: bf16) -> f32 {
    f32::from_bits(u32::from(value.to_bits()) << BF16_SHIFT)
}

/// The nearest bf16.
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

/// An f16 as f32: exact.
#[inline(always)]
pub(super) fn f16_to_f32(value: f16) -> f32 {
    let bits = u32::from(value.to_bits());
    let magnitude = bits & 0x7fff;
    let sign = (bits & 0x8000) << 16;
    let normal = (magnitude << F16_SHIFT) + F16_REBIAS;
    let subnormal = (f32::from_bits(HALF.to_bits() | magnitude) - HALF).to_bits();
    let finite = if magnitude < 0x400 { subnormal } else { normal };
    // Infinity and NaN have the largest exponent in both.
    let wide = if magnitude >= 0x7c00 {
        normal | F32_INFINITY
    } else {
        finite
    };
    f32::from_bits(wide | sign)
}

/// The nearest f16.
#[inline(always)]
pub(super) fn f32_to_f16(value: f32) -> f16 {
    let magnitude = value.to_bits() & !SIGN;
    let sign = (value.to_bits() & SIGN) >> 16;
    // As for bf16; a value that rounds up to the next power of two carries into the exponent, up to infinity.
    let odd = (magnitude >> F16_SHIFT) & 1;
    let normal = magnitude.wrapping_sub(F16_REBIAS).wrapping_add(0xfff + odd) >> F16_SHIFT;
    // The addition itself rounds to units of 2^-24.
    let subnormal = (f32::from_bits(magnitude) + HALF)
        .to_bits()
        .wrapping_sub(HALF.to_bits());
    let finite = if magnitude < F16_SMALLEST_NORMAL {
        subnormal
    } else {
        normal
    };
    let narrow = if magnitude >= F16_OVERFLOW {
        u32::from(f16::INFINITY.to_bits())
    } else {
        finite
    };
    let bits = if magnitude > F32_INFINITY {
        u32::from(f16::NAN.to_bits())
    } else {
        narrow | sign
    };
    f16::from_bits(bits as u16)
}
