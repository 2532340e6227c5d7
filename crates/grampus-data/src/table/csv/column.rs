//! The values of one column in one part of a file.

use std::sync::Arc;

use arrow::array::NullBufferBuilder;
use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray, UInt64Array, new_null_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::DataType;

use super::cursor::{Cursor, End, Unclosed};
use super::missing::Missing;

/// What a column is read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Nothing,
    Bool,
    Int,
    UInt,
    Float,
    Text,
}

impl Kind {
    pub fn data_type(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int => DataType::Int64,
            Self::UInt => DataType::UInt64,
            // Of a column without any value pandas makes this.
            Self::Nothing | Self::Float => DataType::Float64,
            Self::Text => DataType::Utf8,
        }
    }

    /// Whether a field can be read as this kind.
    pub fn holds(self, field: &[u8]) -> bool {
        match self {
            Self::Nothing => false,
            Self::Bool => boolean(field).is_some(),
            Self::Int => integer::<i64>(field).is_some(),
            Self::UInt => integer::<u64>(field).is_some(),
            Self::Float => float(field).is_some(),
            Self::Text => true,
        }
    }
}

/// The digits of the smallest integer below int64.
pub(super) const LONG_DIGITS: usize = 19;

/// The sorts of values that were met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen(u8);

impl Seen {
    const BOOL: u8 = 1;
    const INT: u8 = 2;
    /// Above int64, within uint64.
    const UINT: u8 = 4;
    /// Digits only, and too many for 64 bits.
    const LONG: u8 = 8;
    const FLOAT: u8 = 16;
    const TEXT: u8 = 32;

    pub fn of(field: &[u8]) -> Self {
        Self(match field {
            _ if integer::<i64>(field).is_some() => Self::INT,
            _ if integer::<u64>(field).is_some() => Self::UINT,
            _ if is_whole(field) => Self::LONG,
            _ if float(field).is_some() => Self::FLOAT,
            _ if boolean(field).is_some() => Self::BOOL,
            _ => Self::TEXT,
        })
    }

    /// What a float must say of a field: nothing, unless it is an integer that is too long.
    #[inline]
    pub fn among_floats(field: &[u8]) -> Self {
        match field.len() >= LONG_DIGITS && is_whole(field) {
            true => Self(Self::of(field.trim_ascii()).0 & Self::LONG),
            false => Self::default(),
        }
    }

    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The narrowest kind that holds all of them; where integers need more than 64 bits, one that the reader finds not to.
    pub fn kind(self) -> Kind {
        let whole = match self.0 & Self::UINT {
            0 => Kind::Int,
            _ => Kind::UInt,
        };
        match self.0 {
            0 => Kind::Nothing,
            Self::BOOL => Kind::Bool,
            seen if seen & (Self::BOOL | Self::TEXT) != 0 => Kind::Text,
            seen if seen & Self::FLOAT != 0 && !self.is_long() => Kind::Float,
            _ => whole,
        }
    }

    /// Whether integers are too long for any kind of numbers: as floats or texts they would be something else, and nobody
    /// would know.
    pub fn is_long(self) -> bool {
        self.0 & (Self::LONG | Self::BOOL | Self::TEXT) == Self::LONG
    }
}

enum Values {
    /// Nulls only.
    Nothing,
    Bool(Vec<bool>),
    Int(Vec<i64>),
    UInt(Vec<u64>),
    Float(Vec<f64>),
    Text {
        ends: Vec<i32>,
        bytes: Vec<u8>,
    },
    /// A value was met that the kind does not hold: the column is read again when all is seen.
    Lost,
}

pub(super) struct Column {
    values: Values,
    nulls: NullBufferBuilder,
    seen: Seen,
}

impl Column {
    pub fn new(kind: Kind, rows: usize) -> Self {
        Self {
            values: match kind {
                Kind::Nothing => Values::Nothing,
                Kind::Bool => Values::Bool(Vec::with_capacity(rows)),
                Kind::Int => Values::Int(Vec::with_capacity(rows)),
                Kind::UInt => Values::UInt(Vec::with_capacity(rows)),
                Kind::Float => Values::Float(Vec::with_capacity(rows)),
                Kind::Text => {
                    let mut ends = Vec::with_capacity(rows + 1);
                    ends.push(0);
                    Values::Text {
                        ends,
                        bytes: Vec::new(),
                    }
                }
            },
            nulls: NullBufferBuilder::new(rows),
            seen: Seen::default(),
        }
    }

    /// Takes the next field of a row.
    #[inline]
    pub fn take(&mut self, cursor: &mut Cursor<'_>, missing: &Missing, quick: bool) -> Result<End, Unclosed> {
        if quick {
            match &mut self.values {
                Values::Int(values) => {
                    if let Some((value, end)) = cursor.int() {
                        values.push(value);
                        self.nulls.append_non_null();
                        return Ok(end);
                    }
                }
                Values::Float(values) => {
                    if let Some((value, end)) = cursor.float() {
                        values.push(value);
                        self.nulls.append_non_null();
                        return Ok(end);
                    }
                }
                _ => {}
            }
        }
        let (field, end) = cursor.field()?;
        self.push(field, missing);
        Ok(end)
    }

    /// Takes a field; one that a short row lacks is empty.
    #[inline]
    pub fn push(&mut self, field: &[u8], missing: &Missing) {
        if missing.holds(field) {
            return self.push_null();
        }
        let fits = match &mut self.values {
            Values::Text { ends, bytes } => {
                bytes.extend_from_slice(field);
                // A part of a file is far smaller, unless one of its rows is not: `finish` looks.
                ends.push(bytes.len() as i32);
                true
            }
            Values::Bool(values) => boolean(field).map(|value| values.push(value)).is_some(),
            Values::Int(values) => integer(field).map(|value| values.push(value)).is_some(),
            Values::UInt(values) => integer(field).map(|value| values.push(value)).is_some(),
            Values::Float(values) => match float(field) {
                Some(value) if missing.holds_number(value) => return self.push_null(),
                found => {
                    self.seen = self.seen.and(Seen::among_floats(field));
                    found.map(|value| values.push(value)).is_some()
                }
            },
            Values::Nothing | Values::Lost => false,
        };
        match fits {
            true => self.nulls.append_non_null(),
            false => {
                self.seen = self.seen.and(Seen::of(field));
                self.values = Values::Lost;
            }
        }
    }

    #[inline]
    fn push_null(&mut self) {
        match &mut self.values {
            Values::Nothing | Values::Lost => {}
            Values::Bool(values) => values.push(false),
            Values::Int(values) => values.push(0),
            Values::UInt(values) => values.push(0),
            Values::Float(values) => values.push(0.0),
            Values::Text { ends, bytes } => ends.push(bytes.len() as i32),
        }
        self.nulls.append_null();
    }

    /// What it holds that its kind does not.
    pub fn seen(&self) -> Seen {
        self.seen
    }

    /// The values as an array of the kind; nothing where the column is lost.
    pub fn finish(mut self, rows: usize) -> Result<Option<ArrayRef>, Broken> {
        let nulls: Option<NullBuffer> = self.nulls.finish();
        Ok(Some(match self.values {
            Values::Lost => return Ok(None),
            Values::Nothing => new_null_array(&DataType::Float64, rows),
            Values::Bool(values) => Arc::new(BooleanArray::new(BooleanBuffer::from(values), nulls)),
            Values::Int(values) => Arc::new(Int64Array::new(ScalarBuffer::from(values), nulls)),
            Values::UInt(values) => Arc::new(UInt64Array::new(ScalarBuffer::from(values), nulls)),
            Values::Float(values) => Arc::new(Float64Array::new(ScalarBuffer::from(values), nulls)),
            Values::Text { ends, bytes } => {
                return text(ends, bytes, nulls).map(|array| Some(array as ArrayRef));
            }
        }))
    }
}

/// Text that cannot be a column.
#[derive(Debug)]
pub(super) enum Broken {
    /// The row, counted from the first of the part, whose field is no UTF-8.
    NotText(usize),
    TooLong,
}

fn text(ends: Vec<i32>, bytes: Vec<u8>, nulls: Option<NullBuffer>) -> Result<Arc<StringArray>, Broken> {
    if bytes.len() > i32::MAX as usize {
        return Err(Broken::TooLong);
    }
    let fields = ends
        .windows(2)
        .map(|pair| &bytes[pair[0] as usize..pair[1] as usize]);
    let is_text = |field: &[u8]| std::str::from_utf8(field).is_ok();
    // All at once is faster, but an end within a character would go unseen.
    if !bytes.is_ascii()
        && let Some(row) = { fields }.position(|field| !is_text(field))
    {
        return Err(Broken::NotText(row));
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
    // SAFETY: every field is UTF-8, and the offsets are their ends, which only grow (`OffsetBuffer` looks too).
    Ok(Arc::new(unsafe {
        StringArray::new_unchecked(offsets, bytes.into(), nulls)
    }))
}

/// Whether a field is an integer of any length.
pub(super) fn is_whole(field: &[u8]) -> bool {
    let field = field.trim_ascii();
    let digits = field
        .strip_prefix(b"-")
        .or(field.strip_prefix(b"+"))
        .unwrap_or(field);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

fn integer<T: std::str::FromStr>(field: &[u8]) -> Option<T> {
    std::str::from_utf8(field.trim_ascii()).ok()?.parse().ok()
}

/// A number; "nan" in all its forms is a word, which the list of missing values may hold.
fn float(field: &[u8]) -> Option<f64> {
    let value: f64 = fast_float2::parse(field.trim_ascii()).ok()?;
    (!value.is_nan()).then_some(value)
}

fn boolean(field: &[u8]) -> Option<bool> {
    match field {
        b"True" | b"TRUE" | b"true" => Some(true),
        b"False" | b"FALSE" | b"false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(fields: &[&str]) -> Kind {
        let seen = fields.iter().map(|field| Seen::of(field.as_bytes()));
        seen.fold(Seen::default(), Seen::and).kind()
    }

    #[test]
    fn the_narrowest_kind_that_holds_all() {
        assert_eq!(kind(&[]), Kind::Nothing);
        assert_eq!(kind(&["1", "-2", " 3", "+4"]), Kind::Int);
        assert_eq!(kind(&["1", "2.5"]), Kind::Float);
        assert_eq!(kind(&["1e5", "inf", "-Infinity", ".5", "1."]), Kind::Float);
        assert_eq!(kind(&["true", "False"]), Kind::Bool);
        assert_eq!(kind(&["true", "1"]), Kind::Text);
        assert_eq!(kind(&["1", "x"]), Kind::Text);
        assert_eq!(kind(&["9223372036854775807"]), Kind::Int);
        assert_eq!(kind(&["9223372036854775808"]), Kind::UInt);
        assert_eq!(kind(&["18446744073709551615", "0"]), Kind::UInt);
        assert_eq!(kind(&["9223372036854775808", "x"]), Kind::Text);
        assert_eq!(kind(&["9223372036854775808", "1.5"]), Kind::Float);
        assert_eq!(kind(&["18446744073709551616", "1.5"]), Kind::Int);
        assert_eq!(kind(&["1.5", "-9223372036854775809"]), Kind::Int);
        assert_eq!(kind(&["1.5", "18446744073709551616", "x"]), Kind::Text);
    }
}
