//! How a CSV file is to be read, in the words of pandas.

use std::collections::BTreeMap;

use arrow::datatypes::DataType;
use serde::Deserialize;

use crate::DataError;

/// Options, with the names and meanings of pandas' `read_csv`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CsvOptions {
    /// The row that holds the names of the columns, counted from 0; `"infer"`: the first one, unless `names` are given; none at all.
    pub header: Option<Header>,
    /// Names of the columns, in place of those in the file.
    pub names: Option<Vec<String>>,
    /// The columns to read; all where not given.
    pub usecols: Option<Picked>,
    /// Types of columns, in place of those that the values suggest.
    pub dtype: Option<Types>,
    /// What stands between two fields.
    pub sep: String,
    /// What stands around a field that holds the separator, a quote or the end of a line.
    pub quotechar: Option<String>,
    /// What takes its special meaning from the character behind it.
    pub escapechar: Option<String>,
    /// What begins a remark, which lasts to the end of the line.
    pub comment: Option<String>,
    /// How many rows to read, of all files together.
    pub nrows: Option<u64>,
    /// What stands for no value, besides pandas' own list.
    pub na_values: Vec<String>,
    /// Whether pandas' own list counts.
    pub keep_default_na: bool,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self {
            header: Some(Header::Word("infer".to_owned())),
            names: None,
            usecols: None,
            dtype: None,
            sep: ",".to_owned(),
            quotechar: Some("\"".to_owned()),
            escapechar: None,
            comment: None,
            nrows: None,
            na_values: Vec::new(),
            keep_default_na: true,
        }
    }
}

/// Where the names of the columns stand.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Header {
    /// In this row.
    Row(u64),
    /// `"infer"`.
    Word(String),
}

/// Columns, by name or by place.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Picked {
    /// Counted from 0.
    Places(Vec<usize>),
    /// Their names.
    Names(Vec<String>),
}

/// Types, by the names that numpy gives them.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Types {
    /// One for all columns.
    All(String),
    /// One for each column that is named.
    Each(BTreeMap<String, String>),
}

/// The characters that mean something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialect {
    pub sep: u8,
    pub quote: Option<u8>,
    pub escape: Option<u8>,
    pub comment: Option<u8>,
}

impl CsvOptions {
    pub(super) fn dialect(&self) -> Result<Dialect, DataError> {
        let optional = |name: &str, text: &Option<String>| match text {
            Some(text) => character(name, text).map(Some),
            None => Ok(None),
        };
        let dialect = Dialect {
            sep: character("sep", &self.sep)?,
            quote: optional("quotechar", &self.quotechar)?,
            escape: optional("escapechar", &self.escapechar)?,
            comment: optional("comment", &self.comment)?,
        };
        let mut marks: Vec<u8> = [Some(dialect.sep), dialect.quote, dialect.escape, dialect.comment]
            .into_iter()
            .flatten()
            .collect();
        marks.sort_unstable();
        match marks.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(dialect),
            Some(pair) => {
                let why = format!("{:?} cannot mean two things: choose another", char::from(pair[0]));
                Err(DataError::option("sep, quotechar, escapechar, comment", why))
            }
        }
    }

    /// The row of the header, or nothing where the file has none.
    pub(super) fn header_row(&self) -> Result<Option<u64>, DataError> {
        match &self.header {
            None => Ok(None),
            Some(Header::Row(row)) => Ok(Some(*row)),
            Some(Header::Word(word)) if word == "infer" => Ok(self.names.is_none().then_some(0)),
            Some(Header::Word(word)) => Err(DataError::option(
                "header",
                format!("{word:?} is no header: give \"infer\", None or the number of a row"),
            )),
        }
    }

    /// The type that is asked for a column.
    pub(super) fn declared(&self, column: &str) -> Result<Option<DataType>, DataError> {
        match &self.dtype {
            None => Ok(None),
            Some(Types::All(name)) => data_type(name).map(Some),
            Some(Types::Each(types)) => types.get(column).map(|name| data_type(name)).transpose(),
        }
    }
}

fn character(name: &str, text: &str) -> Result<u8, DataError> {
    match text.as_bytes() {
        [one] if one.is_ascii() && !matches!(one, b'\n' | b'\r') => Ok(*one),
        _ => Err(DataError::option(
            name,
            format!("{text:?} is not one ASCII character: give one, such as \",\" or \"\\t\""),
        )),
    }
}

fn data_type(name: &str) -> Result<DataType, DataError> {
    Ok(match name {
        "bool" | "boolean" => DataType::Boolean,
        "int8" | "Int8" => DataType::Int8,
        "int16" | "Int16" => DataType::Int16,
        "int32" | "Int32" => DataType::Int32,
        "int64" | "Int64" | "int" => DataType::Int64,
        "uint8" | "UInt8" => DataType::UInt8,
        "uint16" | "UInt16" => DataType::UInt16,
        "uint32" | "UInt32" => DataType::UInt32,
        "uint64" | "UInt64" => DataType::UInt64,
        "float32" | "Float32" => DataType::Float32,
        "float64" | "Float64" | "float" | "double" => DataType::Float64,
        "str" | "string" | "object" | "O" => DataType::Utf8,
        _ => {
            let why = format!(
                "{name:?} is no type of a column: give bool, int8 to int64, uint8 to uint64, float32, float64 or str"
            );
            return Err(DataError::option("dtype", why));
        }
    })
}
