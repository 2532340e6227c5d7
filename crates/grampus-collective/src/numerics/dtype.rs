//! The types of elements, the operations on them, and which of the two go together.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The type of the elements of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum DType {
    /// 32-bit float.
    F32 = 0,
    /// 64-bit float.
    F64 = 1,
    /// IEEE 16-bit float.
    F16 = 2,
    /// The upper half of a 32-bit float.
    Bf16 = 3,
    /// Signed byte.
    I8 = 4,
    /// Unsigned byte.
    U8 = 5,
    /// Signed 32-bit integer.
    I32 = 6,
    /// Signed 64-bit integer.
    I64 = 7,
    /// One byte; anything but zero is true.
    Bool = 8,
}

impl DType {
    /// All types, in the order of their codes.
    pub const ALL: [Self; 9] = [
        Self::F32,
        Self::F64,
        Self::F16,
        Self::Bf16,
        Self::I8,
        Self::U8,
        Self::I32,
        Self::I64,
        Self::Bool,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// The type in which partial results travel between members: f32 for the half floats, else the type itself.
    ///
    /// It is the same for every operation, though the extremes of half floats would not need it: one rule is
    /// easier to keep on both ends of a wire.
    pub const fn partial(self) -> Self {
        match self {
            Self::F16 | Self::Bf16 => Self::F32,
            other => other,
        }
    }

    /// Whether the type is a float of any width.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::F16 | Self::Bf16)
    }

    /// The type with this code (`dtype as u8`), if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// The name users write and read.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::Bool => "bool",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// How elements are combined.
///
/// Integers wrap. Of bools, sum and max are "or", product and min are "and".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Op {
    /// The sum.
    Sum = 0,
    /// The sum, divided by the number of lanes. Floats only.
    Mean = 1,
    /// The smallest; NaN wins, and -0 is smaller than +0.
    Min = 2,
    /// The largest; NaN wins, and +0 is larger than -0.
    Max = 3,
    /// The product.
    Product = 4,
    /// Bitwise "and" of integers, logical of bools.
    And = 5,
    /// Bitwise "or" of integers, logical of bools.
    Or = 6,
}

impl Op {
    /// All operations, in the order of their codes.
    pub const ALL: [Self; 7] = [
        Self::Sum,
        Self::Mean,
        Self::Min,
        Self::Max,
        Self::Product,
        Self::And,
        Self::Or,
    ];

    /// The operation with this code (`op as u8`), if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// The name users write and read.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Min => "min",
            Self::Max => "max",
            Self::Product => "product",
            Self::And => "and",
            Self::Or => "or",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// An operation that has no meaning for a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("there is no {op} of {dtype} elements: {}", self.advice())]
pub struct Unsupported {
    /// What was asked for.
    pub op: Op,
    /// The type of the elements.
    pub dtype: DType,
}

impl Unsupported {
    fn advice(&self) -> &'static str {
        match (self.op, self.dtype) {
            (Op::Mean, DType::Bool) => "convert to a float type first to get the share of true ones",
            (Op::Mean, _) => "convert to a float type first, or take the sum and divide as you see fit",
            _ => "convert to bool or to an integer type first",
        }
    }
}

/// Say whether elements of this type can be combined in this way.
pub fn check(op: Op, dtype: DType) -> Result<(), Unsupported> {
    let supported = match op {
        Op::Mean => dtype.is_float(),
        Op::And | Op::Or => !dtype.is_float(),
        Op::Sum | Op::Min | Op::Max | Op::Product => true,
    };
    if supported {
        Ok(())
    } else {
        Err(Unsupported { op, dtype })
    }
}
