//! Several files as one, without decoding what they hold.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;

use super::super::whole;
use crate::{DataError, Place};

/// Writes the row groups of files one behind the other into one file, which appears when it is whole.
pub fn join(parts: &[PathBuf], path: &Path) -> Result<(), DataError> {
    let Some(first) = parts.first() else {
        return Err(DataError::option(
            "parts",
            "there is no file to join: give at least one",
        ));
    };
    let (_, like) = open(first)?;
    let like = like.metadata().file_metadata();
    let properties = WriterProperties::builder()
        .set_key_value_metadata(like.key_value_metadata().cloned())
        .build();
    let schema = like.schema_descr().root_schema_ptr();
    whole::write(path, |file| {
        let wrong = |error| damaged(path, &error);
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(wrong)?;
        for part in parts {
            append(&mut writer, part, like.schema_descr().root_schema())?;
        }
        writer.close().map(|_| ()).map_err(wrong)
    })
}

fn append<W: std::io::Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    part: &Path,
    schema: &parquet::schema::types::Type,
) -> Result<(), DataError> {
    let wrong = |error| damaged(part, &error);
    let (file, reader) = open(part)?;
    if reader.metadata().file_metadata().schema() != schema {
        return Err(DataError::Damaged {
            place: Place::file(part.to_string_lossy()),
            why: "its columns are not those of the first part: every part needs the same".to_owned(),
        });
    }
    for group in reader.metadata().row_groups() {
        let mut written = writer.next_row_group().map_err(wrong)?;
        for column in group.columns() {
            let close = ColumnCloseResult {
                bytes_written: column.compressed_size() as u64,
                rows_written: group.num_rows() as u64,
                metadata: column.clone(),
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            written.append_column(&file, close).map_err(wrong)?;
        }
        written.close().map_err(wrong)?;
    }
    Ok(())
}

fn open(path: &Path) -> Result<(fs::File, SerializedFileReader<fs::File>), DataError> {
    let wrong = |error| DataError::io(path.to_string_lossy(), error);
    let file = fs::File::open(path).map_err(wrong)?;
    let again = file.try_clone().map_err(wrong)?;
    let reader = SerializedFileReader::new(again).map_err(|error| damaged(path, &error))?;
    Ok((file, reader))
}

fn damaged(path: &Path, error: &ParquetError) -> DataError {
    DataError::Damaged {
        place: Place::file(path.to_string_lossy()),
        why: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::File;
    use crate::table::csv::{CsvOptions, read_bytes};
    use crate::table::parquet::{Dataset, read, write};

    fn part(folder: &Path, number: usize, text: &str) -> PathBuf {
        let table = read_bytes("t", text.to_owned().into(), &CsvOptions::default()).unwrap();
        let path = folder.join(format!("{number}.parquet"));
        write(&table, &path).unwrap();
        path
    }

    #[test]
    fn rows_come_in_the_order_of_the_parts() {
        let folder = tempfile::tempdir().unwrap();
        let texts = ["a,b\n1,x\n2,y\n", "a,b\n3,w\n", "a,b\n4,z\n5,ü\n"];
        let parts: Vec<PathBuf> = (0..3).map(|at| part(folder.path(), at, texts[at])).collect();
        let whole = folder.path().join("whole.parquet");
        join(&parts, &whole).unwrap();
        let files = |paths: &[PathBuf]| paths.iter().cloned().map(File::local).collect::<Vec<_>>();
        let found = read(&files(std::slice::from_ref(&whole)), None).unwrap();
        assert_eq!(found.batches(), read(&files(&parts), None).unwrap().batches());
        assert_eq!(Dataset::open(&files(&[whole])).unwrap().row_groups().len(), 3);
    }

    #[test]
    fn parts_that_differ_are_named_and_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let parts = [
            part(folder.path(), 0, "a\n1\n"),
            part(folder.path(), 1, "a\nword\n"),
        ];
        let whole = folder.path().join("whole.parquet");
        let error = join(&parts, &whole).unwrap_err().to_string();
        assert!(
            error.contains("1.parquet is damaged: its columns are not"),
            "{error}"
        );
        assert!(join(&[], &whole).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
