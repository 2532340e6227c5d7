//! What rows become.

use std::sync::Arc;

use arrow::datatypes::DataType;
use serde::{Deserialize, Serialize};

use crate::image::Pipeline;

/// One input or target of a model: some columns of numbers side by side, or one of images.
///
/// ```
/// use grampus_data::batch::{Kind, Output};
/// let x: Output = serde_json::from_str(r#"{"columns": ["age", "income"], "kind": "f32"}"#)?;
/// assert_eq!((x.columns.len(), x.kind), (2, Some(Kind::F32)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Columns of numbers; one of lists, all of one length, makes as many.
    pub columns: Vec<String>,
    /// What the numbers become; by default 64-bit floats become 32-bit ones and whole numbers 64-bit ones, and the first
    /// column decides for all.
    #[serde(default)]
    pub kind: Option<Kind>,
    /// What is done with the images of the one column, which holds their files' bytes.
    #[serde(default)]
    pub images: Option<Arc<Pipeline>>,
}

impl Output {
    /// Columns side by side.
    pub fn new<Name: Into<String>>(columns: impl IntoIterator<Item = Name>, kind: Option<Kind>) -> Self {
        Self {
            columns: columns.into_iter().map(Into::into).collect(),
            kind,
            images: None,
        }
    }
}

/// A type of numbers, by the names that users write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// 32-bit floats.
    F32,
    /// 64-bit floats.
    F64,
    /// Signed bytes.
    I8,
    /// 16-bit whole numbers.
    I16,
    /// 32-bit whole numbers.
    I32,
    /// 64-bit whole numbers.
    I64,
    /// Bytes.
    U8,
    /// Truth values, a byte each.
    Bool,
}

impl Kind {
    /// Bytes of a number.
    pub fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::I16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    /// What models usually want of a column; nothing where its values are no numbers.
    pub fn of(column: &DataType) -> Option<Self> {
        match column {
            DataType::Float16 | DataType::Float32 | DataType::Float64 => Some(Self::F32),
            DataType::UInt8 => Some(Self::U8),
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => Some(Self::I64),
            DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => Some(Self::I64),
            DataType::Boolean => Some(Self::Bool),
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                Self::of(item.data_type())
            }
            DataType::Dictionary(_, values) => Self::of(values),
            _ => None,
        }
    }
}
