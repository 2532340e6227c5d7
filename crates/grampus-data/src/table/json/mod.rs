//! JSON, one object a line.

mod wide;

use std::fmt;
use std::io::Cursor;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::ReaderBuilder;
use arrow::json::reader::infer_json_schema;
use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::{REQUESTS, Table, partition};
use crate::source::File;
use crate::{DataError, Place, parallel};
use wide::ColumnPath;

/// How names of such files end, for [`find`](crate::source::find).
pub const EXTENSIONS: &[&str] = &[
    "json",
    "json.gz",
    "json.zst",
    "jsonl",
    "jsonl.gz",
    "jsonl.zst",
    "ndjson",
    "ndjson.gz",
    "ndjson.zst",
];

const PART_BYTES: usize = 8 << 20;
/// Rows of a batch: enough that a thread's part is one.
const BATCH_ROWS: usize = 1 << 20;

/// Whole lines of a file.
struct Part {
    file: usize,
    /// How many lines stand before.
    lines: u64,
    bytes: Bytes,
}

/// Reads files of lines, one after the other, into one table; those whose names end in `.gz` or `.zst` are decompressed. Its
/// columns are all that any line has, and those in the names of folders (`year=2024`); a column of integers and other numbers is float64, one of numbers and text is utf8.
/// Integers above int64 make a column of uint64; those that need more than 64 bits are an error. Lists and objects stay
/// what they are.
pub fn read(files: &[File]) -> Result<Table, DataError> {
    let threads = if files.iter().any(File::is_remote) {
        REQUESTS
    } else {
        parallel::cores()
    };
    let texts = parallel::map(threads, files, |file| file.text().map(without_mark))?;
    let mut parts = Vec::new();
    for (file, text) in texts.iter().enumerate() {
        cut(file, text, &mut parts);
    }
    let schemas = parallel::map(parallel::cores(), &parts, |part| {
        infer_json_schema(Cursor::new(&part.bytes), None)
            .map(|(schema, _)| wide::refine(schema.fields(), &part.bytes))
            .map_err(|error| wrong(files, part, &error))
    })?;
    let fields = schemas
        .iter()
        .fold(Fields::empty(), |all, fields| join_fields(&all, fields));
    if let Some(column) = wide::too_wide(&fields) {
        return Err(too_wide(files, &parts, &column));
    }
    let own = Arc::new(Schema::new(in_order(fields, texts.first())));
    let partitions = partition::find(files.iter(), |name| own.field_with_name(name).is_ok());
    let schema = Arc::new(partition::schema(&own, &partitions));
    let batches = parallel::map(parallel::cores(), &parts, |part| {
        let batches = decode(&own, part).map_err(|error| wrong(files, part, &error))?;
        let append = |batch| partition::append(&schema, batch, &partitions, part.file);
        batches.iter().map(append).collect::<Result<Vec<_>, _>>()
    })?;
    Table::new(schema, batches.into_iter().flatten().collect())
}

/// A text without the mark that some programs begin UTF-8 with.
fn without_mark(text: Bytes) -> Bytes {
    let start = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    text.slice(start..)
}

/// The error for a column whose integers no type of 64 bits holds, with the first line that says so.
fn too_wide(files: &[File], parts: &[Part], column: &ColumnPath) -> DataError {
    let name = column.to_string();
    for part in parts {
        let lines = part.bytes.split(|byte| *byte == b'\n').enumerate();
        for (number, line) in lines {
            if let Some(value) = wide::above_int64(line, column) {
                let place = Place::file(files[part.file].name());
                return DataError::WrongValue {
                    place: place.line(part.lines + number as u64 + 1).column(&name),
                    why: format!(
                        "{value} and the other integers of the column do not fit into 64 bits: write them as \
                         texts, or as floats (1.5e30)"
                    ),
                };
            }
        }
    }
    DataError::option(&name, "its integers do not fit into 64 bits")
}

fn cut(file: usize, text: &Bytes, parts: &mut Vec<Part>) {
    let (mut start, mut lines) = (0, 0);
    while start < text.len() {
        let target = (start + PART_BYTES).min(text.len());
        let rest = memchr::memchr(b'\n', &text[target - 1..]);
        let end = rest.map_or(text.len(), |length| target + length);
        let bytes = text.slice(start..end);
        let more = memchr::memchr_iter(b'\n', &bytes).count() as u64;
        parts.push(Part { file, lines, bytes });
        (start, lines) = (end, lines + more);
    }
}

fn decode(schema: &SchemaRef, part: &Part) -> Result<Vec<arrow::array::RecordBatch>, ArrowError> {
    let builder = ReaderBuilder::new(Arc::clone(schema)).with_coerce_primitive(true);
    builder
        .with_batch_size(BATCH_ROWS)
        .build(Cursor::new(&part.bytes))?
        .collect()
}

/// The error, with the line that is at fault.
fn wrong(files: &[File], part: &Part, error: &ArrowError) -> DataError {
    let place = Place::file(files[part.file].name());
    let lines = part.bytes.split(|byte| *byte == b'\n').enumerate();
    for (number, line) in lines.filter(|(_, line)| !line.trim_ascii().is_empty()) {
        let place = place.clone().line(part.lines + number as u64 + 1);
        let why = match serde_json::from_slice::<serde_json::Value>(line) {
            Err(error) => {
                let hint = not_json(line, error.column());
                format!("{}{hint}", error.to_string().replace(" at line 1", " at"))
            }
            Ok(value) if !value.is_object() => {
                "it is no object: a line must be {\"column\": value, …}".to_owned()
            }
            Ok(_) => continue,
        };
        return DataError::Damaged { place, why };
    }
    let why = error.to_string();
    DataError::Damaged { place, why }
}

/// What to do where Python wrote a number that JSON does not have.
fn not_json(line: &[u8], column: usize) -> &'static str {
    let from = column.saturating_sub(2).min(line.len());
    let near = (from..line.len().min(from + 3)).map(|at| &line[at..]);
    let is_number = |text: &[u8]| {
        [&b"NaN"[..], b"Infinity"]
            .iter()
            .any(|word| text.starts_with(word))
    };
    match { near }.any(is_number) {
        true => ": JSON has no NaN and no Infinity: write null",
        false => "",
    }
}

/// The columns as they stand in the first line; those that it lacks come behind, by name.
fn in_order(fields: Fields, text: Option<&Bytes>) -> Fields {
    let lines = text
        .into_iter()
        .flat_map(|text| text.split(|byte| *byte == b'\n'));
    let first = lines.map(<[u8]>::trim_ascii).find(|line| !line.is_empty());
    let Names(names) = serde_json::from_slice(first.unwrap_or_default()).unwrap_or_default();
    let place = |field: &Field| {
        names
            .iter()
            .position(|name| name == field.name())
            .unwrap_or(usize::MAX)
    };
    let mut fields: Vec<Arc<Field>> = fields.iter().cloned().collect();
    fields.sort_by_cached_key(|field| (place(field), field.name().clone()));
    fields.into()
}

/// The names in an object, as they stand.
#[derive(Default)]
struct Names(Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Self::default())
    }
}

impl<'de> Visitor<'de> for Names {
    type Value = Self;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some((name, IgnoredAny)) = map.next_entry()? {
            self.0.push(name);
        }
        Ok(self)
    }
}

fn join_fields(one: &Fields, two: &Fields) -> Fields {
    let mut all: Vec<Arc<Field>> = one.iter().cloned().collect();
    for field in two {
        match all.iter_mut().find(|known| known.name() == field.name()) {
            None => all.push(Arc::clone(field)),
            Some(known) => {
                let joined = join(known.data_type(), field.data_type());
                *known = Arc::new(Field::new(field.name(), joined, true));
            }
        }
    }
    all.into()
}

/// The type that holds what both hold, as for the values of one part.
fn join(one: &DataType, two: &DataType) -> DataType {
    let list = |inner: DataType| DataType::List(Arc::new(Field::new_list_field(inner, true)));
    match (one, two) {
        _ if one == two => one.clone(),
        (DataType::Null, other) | (other, DataType::Null) => other.clone(),
        (one, two) if wide::is_number(one) && wide::is_number(two) => wide::join(one, two),
        (DataType::Struct(one), DataType::Struct(two)) => DataType::Struct(join_fields(one, two)),
        (DataType::List(one), DataType::List(two)) => list(join(one.data_type(), two.data_type())),
        _ => DataType::Utf8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Table, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        std::fs::write(&path, text).unwrap();
        read(&[File::local(path)]).map_err(|error| error.to_string().rsplit('/').next().unwrap().to_owned())
    }

    #[test]
    fn types_are_those_that_hold_all_values() {
        let table =
            read_text("{\"b\": [1, 2], \"a\": 1}\n\n{\"a\": 2.5, \"c\": {\"d\": \"x\"}}\n{\"a\": null}")
                .unwrap();
        let types: Vec<String> = table
            .schema()
            .fields()
            .iter()
            .map(|field| field.data_type().to_string())
            .collect();
        assert_eq!(table.columns(), ["b", "a", "c"]);
        assert_eq!(types[1], "Float64");
        assert!(
            types[0].starts_with("List(") && types[2].starts_with("Struct("),
            "{types:?}"
        );
        assert_eq!(table.num_rows(), 3);
    }

    #[test]
    fn parts_join_as_values_do() {
        let (int, float) = (DataType::Int64, DataType::Float64);
        assert_eq!(join(&int, &float), float);
        assert_eq!(join(&DataType::Null, &int), int);
        assert_eq!(join(&DataType::Boolean, &int), DataType::Utf8);
    }

    #[test]
    fn a_bad_line_is_named() {
        assert!(
            read_text("{\"a\": 1}\n{\"a\": 2\n{\"a\": 3}\n")
                .unwrap_err()
                .starts_with("a.jsonl, line 2 is damaged: EOF")
        );
        assert!(
            read_text("{\"a\": 1}\n\n[1, 2]\n")
                .unwrap_err()
                .contains("line 3 is damaged: it is no object")
        );
    }
}
