//! Elements to try with, and what a plain serial loop makes of them.

use std::fmt::Debug;

use grampus_collective::{Element, Op};
use half::{bf16, f16};

use super::random;

/// An element that can be made of random bits and reduced one by one.
pub trait Sample: Element + Debug + Sync {
    fn sample(bits: u64) -> Self;
    /// For comparison to the bit; every NaN counts as the same.
    fn bits(self) -> u64;
    /// Over one element of every lane, in order.
    fn reduced(lanes: &[Self], op: Op) -> Self;
}

/// A buffer of a rank (or lane).
pub fn buffer<T: Sample>(seed: u64, rank: usize, count: usize) -> Vec<T> {
    (0..count)
        .map(|index| T::sample(random(seed ^ (rank as u64) << 40, index as u64)))
        .collect()
}

pub fn all_bits<T: Sample>(values: &[T]) -> Vec<u64> {
    values.iter().map(|value| value.bits()).collect()
}

/// The buffers of all lanes reduced, element by element.
pub fn reduced<T: Sample>(lanes: &[Vec<T>], op: Op) -> Vec<T> {
    let count = lanes.first().map_or(0, Vec::len);
    (0..count)
        .map(|index| {
            let column: Vec<T> = lanes.iter().map(|lane| lane[index]).collect();
            T::reduced(&column, op)
        })
        .collect()
}

/// Combines in the tree that belongs to the number of lanes: cut at the largest power of two below it.
fn tree<W: Copy>(values: &[W], combine: &dyn Fn(W, W) -> W) -> W {
    if let [only] = values {
        return *only;
    }
    let (left, right) = values.split_at(values.len().next_power_of_two() / 2);
    combine(tree(left, combine), tree(right, combine))
}

macro_rules! float {
    ($type:ty, $work:ty, $widen:expr, $narrow:expr) => {
        impl Sample for $type {
            fn sample(bits: u64) -> Self {
                // One in 32 is special.
                let special = [
                    f64::NAN,
                    f64::INFINITY,
                    f64::NEG_INFINITY,
                    -0.0,
                    0.0,
                    60_000.0,
                    1e-7,
                    -1.0,
                ];
                let value = match bits % 32 {
                    0 => special[(bits >> 8) as usize % special.len()],
                    _ => ((bits >> 20) % 4096) as f64 / 512.0 - 3.7,
                };
                $narrow(value as $work)
            }

            fn bits(self) -> u64 {
                if self.is_nan() {
                    u64::MAX
                } else {
                    self.to_bits().into()
                }
            }

            fn reduced(lanes: &[Self], op: Op) -> Self {
                let values: Vec<$work> = lanes.iter().map(|lane| $widen(*lane)).collect();
                let lower =
                    |left: $work, right: $work| left < right || (left == right && left.is_sign_negative());
                let pick = |first: bool, left: $work, right: $work| match () {
                    () if left.is_nan() || right.is_nan() => <$work>::NAN,
                    () if first => left,
                    () => right,
                };
                let combine = |left: $work, right: $work| match op {
                    Op::Min => pick(lower(left, right), left, right),
                    Op::Max => pick(!lower(left, right), left, right),
                    Op::Product => left * right,
                    _ => left + right,
                };
                let all = tree(&values, &combine);
                $narrow(if op == Op::Mean {
                    all / lanes.len() as $work
                } else {
                    all
                })
            }
        }
    };
}

float!(f32, f32, std::convert::identity, std::convert::identity);
float!(f64, f64, std::convert::identity, std::convert::identity);
float!(f16, f32, f16::to_f32, f16::from_f32);
float!(bf16, f32, bf16::to_f32, bf16::from_f32);

macro_rules! integer {
    ($($type:ty),*) => {$(
        impl Sample for $type {
            fn sample(bits: u64) -> Self {
                bits as $type
            }

            fn bits(self) -> u64 {
                self as u64
            }

            fn reduced(lanes: &[Self], op: Op) -> Self {
                tree(lanes, &|left, right| match op {
                    Op::Min => left.min(right),
                    Op::Max => left.max(right),
                    Op::Product => left.wrapping_mul(right),
                    Op::And => left & right,
                    Op::Or => left | right,
                    _ => left.wrapping_add(right),
                })
            }
        }
    )*};
}

integer!(i8, u8, i32, i64);

impl Sample for bool {
    fn sample(bits: u64) -> Self {
        bits.is_multiple_of(3)
    }

    fn bits(self) -> u64 {
        self.into()
    }

    fn reduced(lanes: &[Self], op: Op) -> Self {
        match op {
            Op::Product | Op::Min | Op::And => lanes.iter().all(|lane| *lane),
            _ => lanes.iter().any(|lane| *lane),
        }
    }
}
