//! Our conversions of half floats against those of `half`.

use half::{bf16, f16};

use crate::numerics::convert::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

#[test]
fn every_half_float_widens_exactly() {
    for bits in 0..=u16::MAX {
        let (ours, theirs) = (f16_to_f32(f16::from_bits(bits)), f16::from_bits(bits).to_f32());
        assert!(
            ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
            "{bits:#x}"
        );
        let (ours, theirs) = (bf16_to_f32(bf16::from_bits(bits)), bf16::from_bits(bits).to_f32());
        assert!(
            ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
            "{bits:#x}"
        );
    }
}

/// All signs and exponents, with all upper bits of the fraction and the lower ones near every tie.
#[test]
fn every_rounding_is_to_nearest_even() {
    for upper in 0..=u16::MAX {
        for lower in [
            0_u32, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x7fff, 0x8000, 0x8001, 0xf000, 0xffff,
        ] {
            let value = f32::from_bits(u32::from(upper) << 16 | lower);
            let half = if value.is_nan() {
                f16::NAN
            } else {
                f16::from_f32_const(value)
            };
            assert_eq!(f32_to_f16(value).to_bits(), half.to_bits(), "{value:e}");
            let brain = if value.is_nan() {
                bf16::NAN
            } else {
                bf16::from_f32(value)
            };
            assert_eq!(f32_to_bf16(value).to_bits(), brain.to_bits(), "{value:e}");
        }
    }
}
