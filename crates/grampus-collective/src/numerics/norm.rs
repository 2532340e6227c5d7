//! Norms, summed over fixed blocks of elements in a fixed tree, so that they do not depend on who owns what.

use half::{bf16, f16};

use super::dtype::DType;
use super::element::{Element, canonical_f64};
use super::level::Level;

/// Elements of a block whose squares are summed to one number.
pub const NORM_BLOCK: usize = 4096;
/// Running sums within a block: element `i` goes to sum `i % SUMS`. Enough to keep the adders of any machine busy.
const SUMS: usize = 32;

/// Write the sum of squares of each block of `NORM_BLOCK` elements (the last may be short).
///
/// Squares and sums are f64. Elements that are no floats give NaN.
///
/// # Safety
/// `data` is good for reads of `count` elements, and `out` is as long as there are blocks.
pub unsafe fn square_sums(dtype: DType, data: *const u8, count: usize, out: &mut [f64]) {
    // SAFETY: the caller's promise is passed on; the machine has the level that it says it has.
    unsafe { square_sums_at(Level::detect(), dtype, data, count, out) }
}

/// # Safety
/// As for `square_sums`, and the machine has the level.
pub(super) unsafe fn square_sums_at(
    level: Level,
    dtype: DType,
    data: *const u8,
    count: usize,
    out: &mut [f64],
) {
    debug_assert_eq!(out.len(), count.div_ceil(NORM_BLOCK), "one sum for each block");
    let block_sum = match dtype {
        DType::F32 => of_level::<f32>(level),
        DType::F64 => of_level::<f64>(level),
        DType::F16 => of_level::<f16>(level),
        DType::Bf16 => of_level::<bf16>(level),
        _ => return out.fill(f64::NAN),
    };
    for (index, sum) in out.iter_mut().enumerate() {
        let start = index * NORM_BLOCK;
        let length = NORM_BLOCK.min(count.saturating_sub(start));
        // SAFETY: the block lies below the count.
        *sum = unsafe { block_sum(data.add(start * dtype.size()), length) };
    }
}

/// The square root of the sum of all block sums, in the tree that lanes are summed in.
pub fn norm(block_sums: &[f64]) -> f64 {
    canonical_f64(tree_sum(block_sums).sqrt())
}

/// Cut at the largest power of two below the length, which is the shape of the tree of lanes.
fn tree_sum(values: &[f64]) -> f64 {
    match values {
        [] => 0.0,
        [only] => *only,
        _ => {
            let (left, right) = values.split_at(values.len().next_power_of_two() / 2);
            tree_sum(left) + tree_sum(right)
        }
    }
}

fn of_level<E: Element<Work: Into<f64>>>(level: Level) -> unsafe fn(*const u8, usize) -> f64 {
    match level {
        Level::Plain => plain::<E>,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::<E>,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => avx512::<E>,
    }
}

unsafe fn plain<E: Element<Work: Into<f64>>>(data: *const u8, count: usize) -> f64 {
    // SAFETY: as the caller promises.
    unsafe { block_sum::<E>(data, count) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2<E: Element<Work: Into<f64>>>(data: *const u8, count: usize) -> f64 {
    // SAFETY: as the caller promises.
    unsafe { block_sum::<E>(data, count) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn avx512<E: Element<Work: Into<f64>>>(data: *const u8, count: usize) -> f64 {
    // SAFETY: as the caller promises.
    unsafe { block_sum::<E>(data, count) }
}

#[inline(always)]
unsafe fn block_sum<E: Element<Work: Into<f64>>>(data: *const u8, count: usize) -> f64 {
    // SAFETY: as the caller promises.
    let values = unsafe { std::slice::from_raw_parts(data.cast::<E>(), count) };
    let mut sums = [0.0_f64; SUMS];
    let (rows, rest) = values.as_chunks::<SUMS>();
    for row in rows {
        for (sum, value) in sums.iter_mut().zip(row) {
            add_square(sum, *value);
        }
    }
    for (sum, value) in sums.iter_mut().zip(rest) {
        add_square(sum, *value);
    }
    let mut width = SUMS;
    while width > 1 {
        width /= 2;
        for index in 0..width {
            sums[index] += sums[index + width];
        }
    }
    canonical_f64(sums[0])
}

#[inline(always)]
fn add_square<E: Element<Work: Into<f64>>>(sum: &mut f64, element: E) {
    let value: f64 = element.widen().into();
    *sum += value * value;
}
