//! What rows become.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::DataType;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::step::Step;
use crate::image::Pipeline;

/// One input or target of a model: some columns of numbers side by side, or one of images.
///
/// ```
/// use grampus_data::batch::{Kind, Output};
/// let x: Output = serde_json::from_str(r#"{"columns": ["age", "income"], "kind": "f32"}"#)?;
/// assert_eq!((x.columns.len(), x.kind), (2, Some(Kind::F32)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Columns of numbers; one of lists, all of one length, makes as many.
    pub columns: Vec<Column>,
    /// What the numbers become; by default floats become 32-bit ones and whole numbers 64-bit ones, and columns of several
    /// kinds that which holds all of them.
    #[serde(default)]
    pub kind: Option<Kind>,
    /// Whether rows of a single number are rows of a matrix with one column: the shape is `(rows, 1)` instead of `(rows,)`.
    #[serde(default)]
    pub matrix: bool,
    /// What is done with the images of the one column, which holds their files' bytes.
    #[serde(default)]
    pub images: Option<Arc<Pipeline>>,
}

impl Output {
    /// Columns side by side.
    pub fn new<One: Into<Column>>(columns: impl IntoIterator<Item = One>, kind: Option<Kind>) -> Self {
        Self {
            columns: columns.into_iter().map(Into::into).collect(),
            kind,
            matrix: false,
            images: None,
        }
    }
}

/// A column of a table, and what is done with its values. In JSON, where nothing is done, its name is enough.
///
/// ```
/// use grampus_data::batch::{Column, Step};
/// let plain: Column = serde_json::from_str(r#""age""#)?;
/// assert_eq!(plain, Column::from("age"));
/// let cut: Column = serde_json::from_str(r#"{"name": "age", "step": {"scale": {"by": 0.01, "offset": 0}}}"#)?;
/// assert_eq!(cut.step, Some(Step::Scale { by: 0.01, offset: 0.0 }));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What is done with its values; without it they only become the numbers that the output is of.
    pub step: Option<Step>,
}

impl<Name: Into<String>> From<Name> for Column {
    fn from(name: Name) -> Self {
        Self {
            name: name.into(),
            step: None,
        }
    }
}

impl<'de> Deserialize<'de> for Column {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Whole {
            name: String,
            step: Option<Step>,
        }
        struct Either;
        // An untagged enum would do, and could not say what is wrong.
        impl<'de> Visitor<'de> for Either {
            type Value = Column;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("the name of a column, or a name and a step")
            }

            fn visit_str<E>(self, name: &str) -> Result<Column, E> {
                Ok(Column::from(name))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Column, A::Error> {
                let Whole { name, step } = Whole::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Column { name, step })
            }
        }
        from.deserialize_any(Either)
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

    /// That which holds numbers of both, as far as models care: a float beside whole numbers makes all floats.
    ///
    /// ```
    /// use grampus_data::batch::Kind;
    /// assert_eq!(Kind::I64.common(Kind::F32), Kind::F32);
    /// assert_eq!(Kind::Bool.common(Kind::U8), Kind::I64);
    /// ```
    pub fn common(self, other: Self) -> Self {
        match (self, other) {
            _ if self == other => self,
            (Self::F64, _) | (_, Self::F64) => Self::F64,
            (Self::F32, _) | (_, Self::F32) => Self::F32,
            _ => Self::I64,
        }
    }

    /// What models usually want of a column; nothing where its values are no numbers.
    pub fn of(column: &DataType) -> Option<Self> {
        match column {
            DataType::Float16 | DataType::Float32 | DataType::Float64 => Some(Self::F32),
            DataType::UInt8 => Some(Self::U8),
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => Some(Self::I64),
            DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => Some(Self::I64),
            DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..) => Some(Self::F32),
            DataType::Boolean => Some(Self::Bool),
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                Self::of(item.data_type())
            }
            DataType::Dictionary(_, values) => Self::of(values),
            _ => None,
        }
    }
}
