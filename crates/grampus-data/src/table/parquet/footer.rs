//! What stands at the end of a file: its columns and row groups.

use std::sync::Arc;

use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use crate::source::File;
use crate::{DataError, Place};

/// What is read at first: most footers are smaller.
const TAIL: u64 = 64 << 10;

/// Reads the footer of a file, and nothing else.
pub(super) fn read(file: &File) -> Result<(ArrowReaderMetadata, u64), DataError> {
    let (tail, size) = file.tail(TAIL)?;
    let parsed = match parse(&tail, size) {
        Err(ParquetError::NeedMoreData(needed)) => parse(&file.tail(needed as u64)?.0, size),
        parsed => parsed,
    };
    let damaged = |why: String| DataError::Damaged {
        place: Place::file(file.name()),
        why,
    };
    match parsed {
        Ok(metadata) => Ok((metadata, size)),
        Err(error) if size < 12 => Err(damaged(format!("it has {size} bytes only: {}", words(&error)))),
        Err(error) => Err(damaged(format!(
            "{}: it is no Parquet file, or cut short",
            words(&error)
        ))),
    }
}

/// Says what is wrong with the footer of a file whose last bytes these are, if anything.
pub fn check_footer(tail: &Bytes, size: u64) -> Result<(), DataError> {
    let place = Place::default();
    parse(tail, size).map(|_| ()).map_err(|error| DataError::Damaged {
        place,
        why: words(&error),
    })
}

fn parse(tail: &Bytes, size: u64) -> Result<ArrowReaderMetadata, ParquetError> {
    let mut reader = ParquetMetaDataReader::new();
    reader.try_parse_sized(tail, size)?;
    let metadata = reader.finish()?;
    if let Some(why) = objection(&metadata, size) {
        return Err(ParquetError::General(why));
    }
    ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())
}

/// Whether a row group cannot be what it says: readers trust these numbers.
fn objection(metadata: &ParquetMetaData, size: u64) -> Option<String> {
    for (number, group) in metadata.row_groups().iter().enumerate() {
        if group.num_rows() < 0 {
            return Some(format!("row group {number} has {} rows", group.num_rows()));
        }
        for column in group.columns() {
            let start = column
                .dictionary_page_offset()
                .unwrap_or_else(|| column.data_page_offset());
            let length = column.compressed_size();
            let end = start.checked_add(length).filter(|_| start >= 0 && length >= 0);
            if end.is_none_or(|end| end as u64 > size) {
                let name = column.column_descr().name();
                return Some(format!(
                    "column {name:?} of row group {number} lies outside of the file"
                ));
            }
        }
    }
    None
}

fn words(error: &ParquetError) -> String {
    match error {
        ParquetError::General(text) | ParquetError::EOF(text) => text.clone(),
        other => other.to_string(),
    }
}
