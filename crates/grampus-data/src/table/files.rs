//! Whole files as rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, LargeBinaryBuilder, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use bytes::Bytes;

use super::{REQUESTS, Table, make_batch};
use crate::source::File;
use crate::{DataError, parallel};

/// Files that a thread reads before it puts them into the table: beside the table, memory holds so many for each thread.
const TOGETHER: usize = 32;

/// A row for each file, in order: its name as `path`, and all that is in it as `bytes`.
///
/// ```
/// # fn main() -> Result<(), grampus_data::DataError> {
/// # let folder = tempfile::tempdir().unwrap();
/// # std::fs::write(folder.path().join("a.png"), "…").unwrap();
/// let files = grampus_data::source::find(&[folder.path().display().to_string()], &["png"])?;
/// let table = grampus_data::table::files::read(&files)?;
/// assert_eq!((table.columns().join(" "), table.num_rows()), ("path bytes".to_owned(), 1));
/// # Ok(())
/// # }
/// ```
pub fn read(files: &[File]) -> Result<Table, DataError> {
    let threads = if files.iter().any(File::is_remote) {
        REQUESTS
    } else {
        parallel::cores()
    };
    let schema = Arc::new(Schema::new(vec![
        Field::new("path", DataType::Utf8, false),
        Field::new("bytes", DataType::LargeBinary, false),
    ]));
    let groups: Vec<&[File]> = files.chunks(TOGETHER).collect();
    let batches = parallel::map(threads, &groups, |group| {
        let contents: Vec<Bytes> = group.iter().map(File::bytes).collect::<Result<_, _>>()?;
        let size = contents.iter().map(Bytes::len).sum();
        let mut together = LargeBinaryBuilder::with_capacity(group.len(), size);
        contents.iter().for_each(|content| together.append_value(content));
        let names = StringArray::from_iter_values(group.iter().map(|file| file.name()));
        let columns: Vec<ArrayRef> = vec![Arc::new(names), Arc::new(together.finish())];
        make_batch(&schema, columns, group.len())
    })?;
    Table::new(schema, batches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;

    #[test]
    fn rows_are_in_the_order_of_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |number: usize| folder.path().join(format!("{number}.bin"));
        // More than one group, and one that is empty.
        let files: Vec<File> = (0..TOGETHER + 3)
            .map(|number| {
                std::fs::write(path(number), "x".repeat(number)).unwrap();
                File::local(path(number))
            })
            .collect();
        let rows = read(&files).unwrap().whole().unwrap();
        for (row, file) in files.iter().enumerate() {
            assert_eq!(rows.column(0).as_string::<i32>().value(row), file.name());
            assert_eq!(rows.column(1).as_binary::<i64>().value(row).len(), row);
        }
        std::fs::remove_file(path(2)).unwrap();
        let error = read(&files).unwrap_err().to_string();
        assert!(error.contains("2.bin: there is no such file"), "{error}");
        assert_eq!(read(&[]).unwrap().num_rows(), 0);
    }
}
