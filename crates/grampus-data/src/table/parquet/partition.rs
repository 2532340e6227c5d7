//! Columns that stand in the names of folders, as Hive and Spark write them: `year=2024/city=Rome/part.parquet`.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field};

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
/// there, as with pyarrow. The type is the narrowest of int32, int64 and utf8 that holds all values.
pub(super) fn find<'a>(files: impl Iterator<Item = &'a File> + Clone) -> Vec<Partition> {
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
        .collect()
}

impl Partition {
    /// The value of a file, as often as it has rows.
    pub(super) fn rows(&self, file: usize, rows: usize) -> ArrayRef {
        let value = self.values[file].as_deref();
        match self.field.data_type() {
            DataType::Int32 => {
                let value: Option<i32> = value.and_then(|text| text.parse().ok());
                Arc::new(Int32Array::from(vec![value; rows]))
            }
            DataType::Int64 => {
                let value: Option<i64> = value.and_then(|text| text.parse().ok());
                Arc::new(Int64Array::from(vec![value; rows]))
            }
            _ => Arc::new(StringArray::from(vec![value; rows])),
        }
    }
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
        _ if there.iter().all(|text| text.parse::<i32>().is_ok()) => DataType::Int32,
        _ if there.iter().all(|text| text.parse::<i64>().is_ok()) => DataType::Int64,
        _ => DataType::Utf8,
    }
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
        let found = find(files.iter());
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
        assert_eq!(decoded("50%"), "50%");
        assert_eq!(decoded("%e4"), "%e4");
    }
}
