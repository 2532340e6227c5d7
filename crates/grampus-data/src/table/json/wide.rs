//! Integers above int64, which the inference of Arrow takes for floats.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields};
use serde_json::value::RawValue;

/// Stands, while types are joined, for integers that no type of 64 bits holds.
const TOO_WIDE: DataType = DataType::Decimal256(76, 0);
/// The digits of the smallest integer above int64.
const DIGITS: usize = 19;

/// Begins a key in a [`ColumnPath`], and stands for the items of a list. UTF-8 has neither byte, so no key is taken for more
/// than one.
const KEY: u8 = 0xff;
const ITEMS: u8 = 0xfe;

/// Where a column stands: the keys that lead to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ColumnPath(Vec<u8>);

impl ColumnPath {
    fn below(&self, key: &str) -> Self {
        Self([&self.0, &[KEY][..], key.as_bytes()].concat())
    }

    fn items(&self) -> Self {
        Self([&self.0[..], &[ITEMS]].concat())
    }

    /// The column whose lists, of any depth, these are the items of.
    fn of_lists(&self) -> Self {
        let is_items = |byte: &&u8| **byte == ITEMS;
        let depth = self.0.iter().rev().take_while(is_items).count();
        Self(self.0[..self.0.len() - depth].to_vec())
    }
}

/// `a.b` in an object, `a[]` in a list.
impl fmt::Display for ColumnPath {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, key) in self.0.split(|byte| *byte == KEY).skip(1).enumerate() {
            to.write_str(if number > 0 { "." } else { "" })?;
            for (number, text) in key.split(|byte| *byte == ITEMS).enumerate() {
                to.write_str(if number > 0 { "[]" } else { "" })?;
                to.write_str(&String::from_utf8_lossy(text))?;
            }
        }
        Ok(())
    }
}

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
            visit(&ColumnPath::default(), raw, &mut |column, number| {
                let numbers: &mut Numbers = found.entry(column.clone()).or_default();
                numbers.add(number);
            });
        }
    }
    with_types(&ColumnPath::default(), fields, &found)
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

/// Calls `on_number` for each number of a value, with its column.
fn visit(column: &ColumnPath, raw: &RawValue, on_number: &mut impl FnMut(&ColumnPath, &str)) {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'{') => {
            let inner: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
            for (key, raw) in inner {
                visit(&column.below(&key), raw, on_number);
            }
        }
        Some(b'[') => {
            let inner: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            let items = column.items();
            for raw in inner {
                visit(&items, raw, on_number);
            }
        }
        Some(b'-' | b'0'..=b'9') => on_number(column, text),
        _ => {}
    }
}

fn with_types(column: &ColumnPath, fields: &Fields, found: &HashMap<ColumnPath, Numbers>) -> Fields {
    let typed = |field: &Arc<Field>| {
        let made = with_type(&column.below(field.name()), field.data_type(), found);
        Arc::new(field.as_ref().clone().with_data_type(made))
    };
    fields.iter().map(typed).collect()
}

fn with_type(column: &ColumnPath, known: &DataType, found: &HashMap<ColumnPath, Numbers>) -> DataType {
    match known {
        DataType::Float64 => {
            // Where a column holds lists and numbers, all are lists to Arrow.
            let own = [column, &column.of_lists()];
            let numbers = own.iter().filter_map(|column| found.get(column));
            numbers
                .map(|numbers| numbers.data_type())
                .reduce(|one, two| join(&one, &two))
                .unwrap_or(DataType::Float64)
        }
        DataType::List(inner) => {
            let made = with_type(&column.items(), inner.data_type(), found);
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

/// A column that no type of 64 bits holds, if there is one.
pub(super) fn too_wide(fields: &Fields) -> Option<ColumnPath> {
    fn within(column: ColumnPath, kind: &DataType) -> Option<ColumnPath> {
        match kind {
            kind if *kind == TOO_WIDE => Some(column),
            DataType::List(inner) => within(column.items(), inner.data_type()),
            DataType::Struct(fields) => among(&column, fields),
            _ => None,
        }
    }
    fn among(column: &ColumnPath, fields: &Fields) -> Option<ColumnPath> {
        let mut fields = fields.iter();
        fields.find_map(|field| within(column.below(field.name()), field.data_type()))
    }
    among(&ColumnPath::default(), fields)
}

/// The first integer of a column above int64 in a line.
pub(super) fn above_int64(line: &[u8], column: &ColumnPath) -> Option<String> {
    let raw: &RawValue = serde_json::from_slice(line).ok()?;
    let mut value = None;
    visit(&ColumnPath::default(), raw, &mut |found, number| {
        let mut numbers = Numbers::default();
        numbers.add(number);
        if value.is_none() && found == column && (numbers.above_int64 || numbers.above_uint64) {
            value = Some(number.to_owned());
        }
    });
    value
}
