//! Integers above int64, which the inference of Arrow takes for floats.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields};
use serde_json::value::RawValue;

/// Stands, while types are joined, for integers that no type of 64 bits holds.
const TOO_WIDE: DataType = DataType::Decimal256(76, 0);
/// The digits of the smallest integer above int64.
const DIGITS: usize = 19;

/// The sorts of numbers in a column.
#[derive(Clone, Copy, Default)]
struct Numbers {
    negative: bool,
    above_int64: bool,
    above_uint64: bool,
    float: bool,
}

/// The types of the columns of a text, of which floats that are integers in truth become these.
pub(super) fn refine(fields: &Fields, text: &[u8]) -> Fields {
    if !has_long_number(text) {
        return fields.clone();
    }
    let mut found = HashMap::new();
    for line in text.split(|byte| *byte == b'\n') {
        if let Ok(raw) = serde_json::from_slice::<&RawValue>(line) {
            visit("", raw, &mut |column, number| {
                let numbers: &mut Numbers = found.entry(column.to_owned()).or_default();
                numbers.add(number);
            });
        }
    }
    with_types("", fields, &found)
}

/// Whether so many digits stand in a row that they may be a number above int64.
fn has_long_number(text: &[u8]) -> bool {
    let mut length = 0;
    text.iter().any(|byte| {
        length = if byte.is_ascii_digit() { length + 1 } else { 0 };
        length == DIGITS
    })
}

impl Numbers {
    fn add(&mut self, text: &str) {
        if text.contains(['.', 'e', 'E']) {
            self.float = true;
        } else if text.starts_with('-') {
            self.negative = true;
            self.above_uint64 |= text.parse::<i64>().is_err();
        } else {
            self.above_int64 |= text.parse::<i64>().is_err();
            self.above_uint64 |= text.parse::<u64>().is_err();
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Self { float: true, .. } => DataType::Float64,
            Self {
                above_uint64: true, ..
            }
            | Self {
                negative: true,
                above_int64: true,
                ..
            } => TOO_WIDE,
            Self {
                above_int64: true, ..
            } => DataType::UInt64,
            _ => DataType::Int64,
        }
    }
}

/// Calls `on_number` for each number of a value, with the name of its column: `a.b` in an object, `a[]` in a list.
fn visit(column: &str, raw: &RawValue, on_number: &mut impl FnMut(&str, &str)) {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'{') => {
            let inner: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
            for (key, raw) in inner {
                visit(&below(column, &key), raw, on_number);
            }
        }
        Some(b'[') => {
            let inner: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            for raw in inner {
                visit(&format!("{column}[]"), raw, on_number);
            }
        }
        Some(b'-' | b'0'..=b'9') => on_number(column, text),
        _ => {}
    }
}

fn below(column: &str, key: &str) -> String {
    match column {
        "" => key.to_owned(),
        column => format!("{column}.{key}"),
    }
}

fn with_types(column: &str, fields: &Fields, found: &HashMap<String, Numbers>) -> Fields {
    let typed = |field: &Arc<Field>| {
        let name = below(column, field.name());
        let made = with_type(&name, field.data_type(), found);
        Arc::new(field.as_ref().clone().with_data_type(made))
    };
    fields.iter().map(typed).collect()
}

fn with_type(column: &str, known: &DataType, found: &HashMap<String, Numbers>) -> DataType {
    match known {
        DataType::Float64 => {
            // Where a column holds lists and numbers, all are lists to Arrow.
            let own = [column, column.trim_end_matches("[]")];
            let numbers = own.iter().filter_map(|name| found.get(*name));
            numbers
                .map(|numbers| numbers.data_type())
                .reduce(|one, two| join(&one, &two))
                .unwrap_or(DataType::Float64)
        }
        DataType::List(inner) => {
            let made = with_type(&format!("{column}[]"), inner.data_type(), found);
            DataType::List(Arc::new(inner.as_ref().clone().with_data_type(made)))
        }
        DataType::Struct(fields) => DataType::Struct(with_types(column, fields, found)),
        other => other.clone(),
    }
}

/// Whether a type is one of numbers that a column can have.
pub(super) fn is_number(kind: &DataType) -> bool {
    matches!(kind, DataType::Int64 | DataType::UInt64 | DataType::Float64) || *kind == TOO_WIDE
}

/// The type of numbers that holds what both hold.
pub(super) fn join(one: &DataType, two: &DataType) -> DataType {
    for wider in [DataType::Float64, TOO_WIDE, DataType::UInt64] {
        if *one == wider || *two == wider {
            return wider;
        }
    }
    DataType::Int64
}

/// The name of a column that no type of 64 bits holds, if there is one.
pub(super) fn too_wide(fields: &Fields) -> Option<String> {
    fn within(column: &str, kind: &DataType) -> Option<String> {
        match kind {
            kind if *kind == TOO_WIDE => Some(column.to_owned()),
            DataType::List(inner) => within(&format!("{column}[]"), inner.data_type()),
            DataType::Struct(fields) => among(column, fields),
            _ => None,
        }
    }
    fn among(column: &str, fields: &Fields) -> Option<String> {
        let mut names = fields.iter().map(|field| (below(column, field.name()), field));
        names.find_map(|(name, field)| within(&name, field.data_type()))
    }
    among("", fields)
}

/// The first integer of a column above int64 in a line.
pub(super) fn above_int64(line: &[u8], column: &str) -> Option<String> {
    let raw: &RawValue = serde_json::from_slice(line).ok()?;
    let mut value = None;
    visit("", raw, &mut |name, number| {
        let mut numbers = Numbers::default();
        numbers.add(number);
        if value.is_none() && name == column && (numbers.above_int64 || numbers.above_uint64) {
            value = Some(number.to_owned());
        }
    });
    value
}
