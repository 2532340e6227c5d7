//! Reductions the slow and obvious way, one element at a time.

use half::{bf16, f16};

use crate::numerics::{DType, Op};

#[derive(Clone, Copy, Debug)]
enum Value {
    Single(f32),
    Double(f64),
    Integer(i64),
}

use Value::{Double, Integer, Single};

fn read(dtype: DType, bytes: &[u8], at: usize) -> Value {
    let element = &bytes[at * dtype.size()..(at + 1) * dtype.size()];
    match dtype {
        DType::F32 => Single(f32::from_ne_bytes(element.try_into().unwrap())),
        DType::F64 => Double(f64::from_ne_bytes(element.try_into().unwrap())),
        DType::F16 => Single(f16::from_ne_bytes(element.try_into().unwrap()).to_f32()),
        DType::Bf16 => Single(bf16::from_ne_bytes(element.try_into().unwrap()).to_f32()),
        DType::I8 => Integer(i64::from(element[0] as i8)),
        DType::U8 => Integer(i64::from(element[0])),
        DType::I32 => Integer(i64::from(i32::from_ne_bytes(element.try_into().unwrap()))),
        DType::I64 => Integer(i64::from_ne_bytes(element.try_into().unwrap())),
        DType::Bool => Integer(i64::from(element[0] != 0)),
    }
}

/// Integers wrap at the width of their type.
fn wrapped(dtype: DType, value: i64) -> Value {
    Integer(match dtype {
        DType::I8 => i64::from(value as i8),
        DType::U8 => i64::from(value as u8),
        DType::I32 => i64::from(value as i32),
        DType::Bool => i64::from(value != 0),
        _ => value,
    })
}

fn double_extreme(op: Op, left: f64, right: f64) -> f64 {
    if left.is_nan() || right.is_nan() {
        return f64::NAN;
    }
    let ordered = left.total_cmp(&right).is_lt();
    if ordered == (op == Op::Min) { left } else { right }
}

fn combine(op: Op, dtype: DType, left: Value, right: Value) -> Value {
    match (left, right) {
        (Single(left), Single(right)) => Single(match op {
            Op::Sum | Op::Mean => left + right,
            Op::Product => left * right,
            _ => double_extreme(op, f64::from(left), f64::from(right)) as f32,
        }),
        (Double(left), Double(right)) => Double(match op {
            Op::Sum | Op::Mean => left + right,
            Op::Product => left * right,
            _ => double_extreme(op, left, right),
        }),
        (Integer(left), Integer(right)) => wrapped(
            dtype,
            match op {
                Op::Sum | Op::Mean => left.wrapping_add(right),
                Op::Product => left.wrapping_mul(right),
                Op::Min => left.min(right),
                Op::Max => left.max(right),
                Op::And => left & right,
                Op::Or => left | right,
            },
        ),
        _ => unreachable!("all values are of one type"),
    }
}

fn tree(op: Op, dtype: DType, values: &[Value]) -> Value {
    if let [only] = values {
        return *only;
    }
    let mut half = 1;
    while 2 * half < values.len() {
        half *= 2;
    }
    combine(
        op,
        dtype,
        tree(op, dtype, &values[..half]),
        tree(op, dtype, &values[half..]),
    )
}

fn finish(op: Op, dtype: DType, total: usize, value: Value) -> Vec<u8> {
    let mean = op == Op::Mean;
    match value {
        Single(value) => {
            let value = if mean { value / total as f32 } else { value };
            match dtype {
                DType::F16 if value.is_nan() => f16::NAN.to_ne_bytes().to_vec(),
                DType::F16 => f16::from_f32(value).to_ne_bytes().to_vec(),
                DType::Bf16 if value.is_nan() => bf16::NAN.to_ne_bytes().to_vec(),
                DType::Bf16 => bf16::from_f32(value).to_ne_bytes().to_vec(),
                _ if value.is_nan() => f32::NAN.to_ne_bytes().to_vec(),
                _ => value.to_ne_bytes().to_vec(),
            }
        }
        Double(value) => {
            let value = if mean { value / total as f64 } else { value };
            if value.is_nan() {
                f64::NAN.to_ne_bytes().to_vec()
            } else {
                value.to_ne_bytes().to_vec()
            }
        }
        Integer(value) => match dtype {
            DType::I32 => (value as i32).to_ne_bytes().to_vec(),
            DType::I64 => value.to_ne_bytes().to_vec(),
            _ => vec![value as u8],
        },
    }
}

/// The whole result of all lanes.
pub(super) fn reduce(op: Op, dtype: DType, lanes: &[Vec<u8>]) -> Vec<u8> {
    let count = lanes[0].len() / dtype.size();
    (0..count)
        .flat_map(|at| {
            let values: Vec<Value> = lanes.iter().map(|lane| read(dtype, lane, at)).collect();
            finish(op, dtype, lanes.len(), tree(op, dtype, &values))
        })
        .collect()
}

/// A source of numbers that is the same in every run.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Elements of a lane: some of any bits, NaN and infinity among them, most of everyday size.
    pub(super) fn elements(&mut self, dtype: DType, count: usize) -> Vec<u8> {
        (0..count)
            .flat_map(|_| {
                let word = self.next();
                let everyday = (word >> 40) as f32 / (1 << 22) as f32 - 2.0;
                match dtype {
                    _ if word.is_multiple_of(4) => self.next().to_ne_bytes()[..dtype.size()].to_vec(),
                    _ if word.is_multiple_of(61) => vec![0; dtype.size()],
                    DType::F32 => everyday.to_ne_bytes().to_vec(),
                    DType::F64 => (f64::from(everyday) / 3.0).to_ne_bytes().to_vec(),
                    DType::F16 => f16::from_f32(everyday).to_ne_bytes().to_vec(),
                    DType::Bf16 => bf16::from_f32(everyday).to_ne_bytes().to_vec(),
                    _ => self.next().to_ne_bytes()[..dtype.size()].to_vec(),
                }
            })
            .collect()
    }
}
