//! Files that tests train on.

use std::path::Path;
use std::sync::Arc;

use grampus::data::Table;
use grampus::data::table::parquet;

/// A folder that goes with the test.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

/// Columns that are functions of the number of the row.
pub fn table(first: usize, rows: usize) -> Table {
    use arrow::array::{ArrayRef, Float32Array, Int64Array, RecordBatch};
    let number = |factor: usize| move |row: usize| ((row * factor % 101) as f32 - 50.0) / 25.0;
    let numbers = |factor: usize| -> ArrayRef {
        Arc::new(Float32Array::from_iter_values(
            (first..first + rows).map(number(factor)),
        ))
    };
    let classes: ArrayRef = Arc::new(Int64Array::from_iter_values(
        (first..first + rows).map(|row| (row % 4) as i64),
    ));
    let columns = [
        ("a", numbers(37)),
        ("b", numbers(53)),
        ("c", numbers(71)),
        ("class", classes),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    Table::new(batch.schema(), vec![batch]).unwrap()
}

pub fn write_parquet(path: &str, first: usize, rows: usize) {
    parquet::write(&table(first, rows), Path::new(path)).unwrap();
}
