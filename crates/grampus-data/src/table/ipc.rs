//! Tables as bytes that can be used where they lie, such as in memory that processes share.

use std::io::{self, BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use arrow::buffer::Buffer;
use arrow::ipc::convert::try_fb_to_schema;
use arrow::ipc::reader::{FileDecoder, read_footer_length};
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use arrow::ipc::{Block, MetadataVersion, root_as_footer};
use bytes::Bytes;
use memmap2::MmapOptions;

use super::Table;
use crate::{DataError, Place};

/// Where buffers begin, counted from the first byte of the table.
const ALIGNMENT: usize = 64;
/// Length and magic word at the end.
const TRAILER: usize = 10;
const BUFFER: usize = 1 << 20;

/// Writes a table in Arrow's file format; returns how many bytes it has.
pub fn write(table: &Table, to: &mut impl Write) -> Result<u64, DataError> {
    let mut to = Counted { to, written: 0 };
    let options = IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)?;
    let mut writer = FileWriter::try_new_with_options(&mut to, table.schema(), options)?;
    table.batches().iter().try_for_each(|batch| writer.write(batch))?;
    writer.finish()?;
    drop(writer);
    Ok(to.written)
}

/// Writes a table into an open file, from a byte on that should be a multiple of 64; returns how many bytes it has.
pub fn write_at(table: &Table, file: BorrowedFd<'_>, offset: u64) -> Result<u64, DataError> {
    let mut to = BufWriter::with_capacity(BUFFER, At { file, offset });
    let length = write(table, &mut to)?;
    to.flush()
        .map_err(|error| DataError::io("shared memory", error))?;
    Ok(length)
}

/// A table whose columns are views of these bytes.
pub fn map(bytes: Bytes) -> Result<Table, DataError> {
    let damaged = |why: String| DataError::Damaged {
        place: Place::file("a table in Arrow's file format"),
        why,
    };
    let cut = || damaged("it is cut short".to_owned());
    let body = bytes.len().checked_sub(TRAILER).ok_or_else(cut)?;
    let trailer: [u8; TRAILER] = bytes[body..].try_into().map_err(|_| cut())?;
    let length = read_footer_length(trailer).map_err(|error| damaged(error.to_string()))?;
    let footer = bytes.slice(body.checked_sub(length).ok_or_else(cut)?..body);
    let footer = root_as_footer(&footer).map_err(|error| damaged(error.to_string()))?;
    let schema = footer
        .schema()
        .ok_or_else(|| damaged("it has no schema".to_owned()))?;
    let schema = Arc::new(try_fb_to_schema(schema)?);
    // Bytes that are not aligned would be copied.
    let mut decoder = FileDecoder::new(Arc::clone(&schema), footer.version()).with_require_alignment(true);
    let all = Buffer::from(bytes.clone());
    let piece = |block: &Block| -> Result<Buffer, DataError> {
        let start = usize::try_from(block.offset()).map_err(|_| cut())?;
        let length = usize::try_from(block.metaDataLength()).ok();
        let length = length.and_then(|length| length.checked_add(usize::try_from(block.bodyLength()).ok()?));
        let length = length.filter(|length| start.checked_add(*length).is_some_and(|end| end <= bytes.len()));
        Ok(all.slice_with_length(start, length.ok_or_else(cut)?))
    };
    for block in footer.dictionaries().iter().flatten() {
        decoder.read_dictionary(block, &piece(block)?)?;
    }
    let mut batches = Vec::new();
    for block in footer.recordBatches().iter().flatten() {
        batches.extend(decoder.read_record_batch(block, &piece(block)?)?);
    }
    Table::new(schema, batches)
}

/// A table whose columns are views of a part of an open file; the file may be closed afterwards.
pub fn map_at(file: BorrowedFd<'_>, offset: u64, length: usize) -> Result<Table, DataError> {
    let wrong = |error| DataError::io("shared memory", error);
    if length == 0 {
        return map(Bytes::new());
    }
    let size = rustix::fs::fstat(file)
        .map_err(|error| wrong(error.into()))?
        .st_size as u64;
    if offset.checked_add(length as u64).is_none_or(|end| end > size) {
        return map(Bytes::new());
    }
    let options = MmapOptions::new().offset(offset).len(length).to_owned();
    // SAFETY: the bytes are only read, and lie within the file. Whoever holds the memory writes a table once and then leaves it alone.
    let mapped = unsafe { options.map(&file) }.map_err(wrong)?;
    map(Bytes::from_owner(mapped))
}

struct Counted<W> {
    to: W,
    written: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// A place in a file, whatever else moves in it.
struct At<'a> {
    file: BorrowedFd<'a>,
    offset: u64,
}

impl Write for At<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = rustix::io::pwrite(self.file, bytes, self.offset)?;
        self.offset += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use arrow::array::{AsArray, StringArray};
    use arrow::datatypes::Int64Type;

    use super::*;
    use crate::table::csv::{CsvOptions, read_bytes};

    fn table() -> Table {
        read_bytes("t", "a,b\n1,x\n2,\n,ü\n".into(), &CsvOptions::default()).unwrap()
    }

    #[test]
    fn a_table_is_used_where_it_lies() {
        let file = tempfile::tempfile().unwrap();
        let length = write_at(&table(), file.as_fd(), 128).unwrap();
        let found = map_at(file.as_fd(), 128, length as usize).unwrap();
        drop(file);
        assert_eq!(found.batches(), table().batches());
        let mut bytes = Vec::new();
        assert_eq!(write(&table(), &mut bytes).unwrap(), bytes.len() as u64);
        let bytes = Bytes::from_owner(bytes);
        let found = map(bytes.clone()).unwrap();
        let at = found.batches()[0]
            .column(0)
            .as_primitive::<Int64Type>()
            .values()
            .as_ptr() as usize;
        let from = bytes.as_ptr() as usize;
        assert!((from..from + bytes.len()).contains(&at));
        let text: &StringArray = found.batches()[0].column(1).as_string();
        assert_eq!(text.value(2), "ü");
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        let mut bytes = Vec::new();
        write(&table(), &mut bytes).unwrap();
        for length in 0..bytes.len() {
            assert!(map(Bytes::from(bytes[..length].to_vec())).is_err());
        }
        let empty = Table::new(Arc::clone(table().schema()), Vec::new()).unwrap();
        let mut bytes = Vec::new();
        write(&empty, &mut bytes).unwrap();
        assert_eq!(map(bytes.into()).unwrap().schema(), empty.schema());
        let file = tempfile::tempfile().unwrap();
        assert!(map_at(file.as_fd(), 0, 100).is_err());
    }
}
