//! Norms, at every register width and however the blocks are split.

use half::{bf16, f16};

use super::Buffer;
use super::reference::Random;
use crate::numerics::level::Level;
use crate::numerics::norm::square_sums_at;
use crate::numerics::{DType, NORM_BLOCK, norm, square_sums};

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::Bf16];

fn doubles(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let double = |element: &[u8]| match dtype {
        DType::F32 => f64::from(f32::from_ne_bytes(element.try_into().unwrap())),
        DType::F16 => f16::from_ne_bytes(element.try_into().unwrap()).to_f64(),
        DType::Bf16 => bf16::from_ne_bytes(element.try_into().unwrap()).to_f64(),
        _ => f64::from_ne_bytes(element.try_into().unwrap()),
    };
    bytes.chunks(dtype.size()).map(double).collect()
}

/// The order of additions, spelt out: 32 running sums, then halves onto halves.
fn block_reference(values: &[f64]) -> f64 {
    let mut sums = [0.0; 32];
    for (at, value) in values.iter().enumerate() {
        sums[at % 32] += value * value;
    }
    for width in [16, 8, 4, 2, 1] {
        for at in 0..width {
            sums[at] += sums[at + width];
        }
    }
    if sums[0].is_nan() { f64::NAN } else { sums[0] }
}

fn sums_at(level: Level, dtype: DType, bytes: &[u8], shift: usize) -> Vec<f64> {
    let count = bytes.len() / dtype.size();
    let mut sums = vec![0.0; count.div_ceil(NORM_BLOCK)];
    let mut buffer = Buffer::filled(dtype, bytes, shift);
    // SAFETY: the buffer has `count` elements, and there is a sum for each block.
    unsafe { square_sums_at(level, dtype, buffer.pointer(), count, &mut sums) };
    sums
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn every_width_equals_the_reference() {
    for dtype in FLOATS {
        for count in [0, 1, 15, 31, 32, 33, 63, 64, 65, 4095, 4096, 4097, 12_289] {
            let bytes = Random(count as u64).elements(dtype, count);
            let expected: Vec<f64> = doubles(dtype, &bytes)
                .chunks(NORM_BLOCK)
                .map(block_reference)
                .collect();
            for (shift, &level) in Level::available().iter().enumerate() {
                let sums = sums_at(level, dtype, &bytes, shift);
                assert_eq!(bits(&sums), bits(&expected), "{count} {dtype} at {level:?}");
            }
        }
    }
}

#[test]
fn blocks_may_be_summed_by_different_owners() {
    let dtype = DType::F32;
    let bytes = Random(3).elements(dtype, 9 * NORM_BLOCK + 5);
    let all = sums_at(Level::detect(), dtype, &bytes, 0);
    for cut in 0..=9 {
        let (left, right) = bytes.split_at(cut * NORM_BLOCK * dtype.size());
        let mut joined = sums_at(Level::detect(), dtype, left, 1);
        joined.extend(sums_at(Level::Plain, dtype, right, 2));
        assert_eq!(
            norm(&joined).to_bits(),
            norm(&all).to_bits(),
            "cut at block {cut}"
        );
    }
}

#[test]
fn norms_are_right() {
    assert_eq!(norm(&[]), 0.0);
    assert_eq!(norm(&[9.0, 16.0]), 5.0);
    assert!(norm(&[1.0, f64::NAN]).is_nan());
    assert_eq!(norm(&[1.0, f64::INFINITY]), f64::INFINITY);
    let ones = vec![1.0_f32; 10_000];
    let mut sums = [0.0; 3];
    // SAFETY: there are as many elements as said, in three blocks.
    unsafe { square_sums(DType::F32, ones.as_ptr().cast(), ones.len(), &mut sums) };
    assert_eq!(norm(&sums), 100.0);
}

/// The tree of five blocks is ((0 + 1) + (2 + 3)) + 4.
#[test]
fn blocks_are_summed_in_the_tree_of_lanes() {
    let sums = [1.0, 1e-16, 1e-16, 1e16, -1e16];
    let expected: f64 = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + sums[4];
    assert_eq!(norm(&sums).to_bits(), expected.sqrt().to_bits());
}

#[test]
fn integers_have_no_norm() {
    let mut sums = [0.0];
    // SAFETY: one element, one block.
    unsafe { square_sums(DType::I8, [1_u8].as_ptr(), 1, &mut sums) };
    assert!(sums[0].is_nan());
}
