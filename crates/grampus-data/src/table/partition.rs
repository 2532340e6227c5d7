//! Columns that stand in the names of folders, as Hive and Spark write them: `year=2024/city=Rome/part.parquet`.

use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{CastOptions, cast_with_options, take};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;

use super::make_batch;
use crate::DataError;
use crate::source::File;

/// What stands for null in the name of a folder.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// A column whose value is one for all rows of a file.
pub(super) struct Partition {
    pub(super) field: Field,
    /// One for each file.
    values: Vec<Option<String>>,
}

/// The columns in the folders of files, in the order in which they are met. A file whose folders do not name one has null
/// there, as with pyarrow. The type is the narrowest of int32, int64 and utf8 that holds all values. A column that the files
/// have themselves counts before one of their folders.
pub(super) fn find<'a>(
    files: impl Iterator<Item = &'a File>,
    is_own: impl Fn(&str) -> bool,
) -> Vec<Partition> {
    let pairs: Vec<Vec<(&str, Option<String>)>> = files
        .map(|file| file.folders().filter_map(pair).collect())
        .collect();
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in pairs.iter().flatten() {
        if !keys.contains(key) {
            keys.push(key);
        }
    }
    keys.into_iter()
        .map(|key| {
            // Of two folders of one key, the inner one is nearer to the rows.
            let value = |pairs: &Vec<(&str, Option<String>)>| {
                let pair = pairs.iter().rfind(|(found, _)| *found == key);
                pair.and_then(|(_, value)| value.clone())
            };
            let values: Vec<Option<String>> = pairs.iter().map(value).collect();
            let field = Field::new(decoded(key), data_type(&values), true);
            Partition { field, values }
        })
        .filter(|partition| !is_own(partition.field.name()))
        .collect()
}

impl Partition {
    /// The same column of another type; where a value is not of it, the file and the value.
    pub(super) fn with_type(mut self, wanted: DataType) -> Result<Self, (usize, String)> {
        self.field = self.field.with_data_type(wanted);
        match (0..self.values.len()).find(|file| self.value(*file).is_err()) {
            Some(file) => Err((file, self.values[file].clone().unwrap_or_default())),
            None => Ok(self),
        }
    }

    /// The value of a file, as often as it has rows.
    pub(super) fn rows(&self, file: usize, rows: usize) -> Result<ArrayRef, ArrowError> {
        take(&self.value(file)?, &UInt32Array::from_value(0, rows), None)
    }

    fn value(&self, file: usize) -> Result<ArrayRef, ArrowError> {
        let text = StringArray::from(vec![self.values[file].as_deref()]);
        let strict = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        cast_with_options(&text, self.field.data_type(), &strict)
    }
}

/// The columns of files, and behind them those of their folders.
pub(super) fn schema(own: &Schema, partitions: &[Partition]) -> Schema {
    let own = own.fields().iter().map(|field| field.as_ref().clone());
    let fields = own.chain(partitions.iter().map(|partition| partition.field.clone()));
    Schema::new(fields.collect::<Vec<_>>())
}

/// Rows of a file with the columns of its folders; `schema` is that of both.
pub(super) fn append(
    schema: &SchemaRef,
    batch: &RecordBatch,
    partitions: &[Partition],
    file: usize,
) -> Result<RecordBatch, DataError> {
    let mut columns = batch.columns().to_vec();
    for partition in partitions {
        columns.push(partition.rows(file, batch.num_rows())?);
    }
    make_batch(schema, columns, batch.num_rows())
}

/// Key and value of a folder that has them.
fn pair(folder: &str) -> Option<(&str, Option<String>)> {
    let (key, value) = folder.split_once('=').filter(|(key, _)| !key.is_empty())?;
    Some((key, (value != NULL).then(|| decoded(value))))
}

fn data_type(values: &[Option<String>]) -> DataType {
    let there: Vec<&String> = values.iter().flatten().collect();
    match there {
        _ if there.is_empty() => DataType::Utf8,
        _ if there.iter().all(|text| is_whole::<i32>(text)) => DataType::Int32,
        _ if there.iter().all(|text| is_whole::<i64>(text)) => DataType::Int64,
        _ => DataType::Utf8,
    }
}

/// Whether a text is a number to pyarrow, which takes `+5` for a text.
fn is_whole<T: std::str::FromStr>(text: &str) -> bool {
    !text.starts_with('+') && text.parse::<T>().is_ok()
}

/// Letters that are written as `%20`, which Hive does with those that a folder must not have.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let code = behind
            .get(..2)
            .filter(|_| *first == b'%')
            .and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_columns() {
        let files: Vec<File> = ["d/a=1/b=x%20y/p", "d/a=9999999999/b=2/p", "d/a=3/p=q"]
            .into_iter()
            .map(|path| File::local(path.into()))
            .collect();
        let found = find(files.iter(), |_| false);
        let columns: Vec<String> = found
            .iter()
            .map(|one| format!("{}: {}", one.field.name(), one.field.data_type()))
            .collect();
        assert_eq!(columns, ["a: Int64", "b: Utf8"]);
        assert_eq!(found[0].values[1].as_deref(), Some("9999999999"));
        assert_eq!(
            found[1].values,
            [Some("x y".to_owned()), Some("2".to_owned()), None]
        );
        assert!(find(files.iter(), |name| name != "p").is_empty());
        assert_eq!(decoded("50%"), "50%");
        assert_eq!(decoded("%e4"), "%e4");
    }
}
