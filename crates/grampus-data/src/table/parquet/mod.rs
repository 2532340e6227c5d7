//! Parquet files.

mod dataset;
mod footer;
mod join;
mod pieces;
mod unify;

pub use dataset::{Dataset, RowGroup};
pub use footer::check_footer;
pub use join::join;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::csv::{CsvOptions, read_bytes};

    fn table(rows: usize) -> Table {
        let lines: String = (0..rows).map(|row| format!("{row},{}\n", row * 2)).collect();
        read_bytes("t", format!("a,b\n{lines}").into(), &CsvOptions::default()).unwrap()
    }

    #[test]
    fn what_is_written_is_read_by_groups() {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..3)
            .map(|number| folder.path().join(format!("{number}.parquet")))
            .collect();
        for path in &paths {
            write(&table(GROUP_ROWS + 5), path).unwrap();
        }
        let files: Vec<File> = paths.into_iter().map(File::local).collect();
        let dataset = Dataset::open(&files).unwrap();
        assert_eq!(dataset.num_rows(), 3 * (GROUP_ROWS as u64 + 5));
        let group = dataset.row_groups()[3];
        assert_eq!(
            (group.file, group.index, group.rows, group.first_row),
            (1, 1, 5, 2 * GROUP_ROWS as u64 + 5)
        );
        let columns = ["b".to_owned(), "a".to_owned()];
        let found = dataset.read_group(3, Some(&columns)).unwrap();
        let wanted = table(GROUP_ROWS + 5)
            .slice(GROUP_ROWS, 5)
            .select(&columns)
            .unwrap();
        assert_eq!(found.batches(), wanted.batches());
        assert!(
            dataset
                .read_group(6, None)
                .unwrap_err()
                .to_string()
                .contains("there is no row group 6")
        );
    }

    #[test]
    fn a_file_cut_anywhere_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        write(&table(10), &path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for length in 0..bytes.len() {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let error = Dataset::open(&[File::local(path.clone())])
                .err()
                .unwrap()
                .to_string();
            assert!(error.contains("a.parquet is damaged: "), "{error}");
        }
    }
}
