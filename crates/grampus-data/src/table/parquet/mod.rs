//! Parquet files.

mod dataset;
mod footer;
mod pieces;

pub use dataset::{Dataset, RowGroup};
pub use footer::check_footer;

use std::path::Path;
use std::sync::Arc;

use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::{Table, whole};
use crate::source::File;
use crate::{DataError, Place};

/// Rows of a row group that is written: readers shuffle groups and keep several in memory.
const GROUP_ROWS: usize = 1 << 17;

/// Reads files with the same columns, one after the other, into one table: all columns, or these, in this order.
pub fn read(files: &[File], columns: Option<&[String]>) -> Result<Table, DataError> {
    let dataset = Dataset::open(files)?;
    let groups: Vec<usize> = (0..dataset.row_groups().len()).collect();
    dataset.read(&groups, columns)
}

/// Writes a table. The file appears when it is whole.
pub fn write(table: &Table, path: &Path) -> Result<(), DataError> {
    let wrong = |error: ParquetError| DataError::Damaged {
        place: Place::file(path.to_string_lossy()),
        why: format!("it cannot be written: {error}"),
    };
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(GROUP_ROWS));
    whole::write(path, |file| {
        let mut writer = ArrowWriter::try_new(file, Arc::clone(table.schema()), Some(properties.build()))
            .map_err(wrong)?;
        for batch in table.batches() {
            writer.write(batch).map_err(wrong)?;
        }
        writer.close().map(|_| ()).map_err(wrong)
    })
}
