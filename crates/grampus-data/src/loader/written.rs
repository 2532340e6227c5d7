//! All rows of blocks, packed into a file that several processes map.

use std::os::fd::BorrowedFd;

use arrow::array::Array;
use rustix::io::pwrite;

use super::blocks::Blocks;
use crate::batch::{Kind, Stored};
use crate::{DataError, parallel};

/// Where arrays begin.
const ALIGNMENT: u64 = 64;
/// Bytes of vectors that are written at once, about.
const TOGETHER: usize = 1 << 20;

/// One output of all rows, in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// What its numbers are.
    pub kind: Kind,
    /// Rows, then the numbers of a row along each axis.
    pub shape: Vec<usize>,
    /// Where it begins.
    pub offset: u64,
}

/// What was written: the outputs, the rows that must not be used with the reasons, and where the file ends.
pub struct Layout {
    /// One for each output.
    pub outputs: Vec<Written>,
    /// Numbers of rows among all.
    pub bad: Vec<(u64, String)>,
    /// How far it was written.
    pub end: u64,
}

/// Reads all blocks, on all cores, and writes their numbers to an open file, from a place on. Of each output all rows stand
/// together; beside what is written, memory holds the blocks that are being read and no more.
pub fn write_packed(blocks: &dyn Blocks, fd: BorrowedFd<'_>, start: u64) -> Result<Layout, DataError> {
    let rows: u64 = blocks.sizes().iter().sum();
    let Some(first) = blocks.sizes().iter().position(|&size| size > 0) else {
        return Err(DataError::option("data", "it has no rows: give at least one"));
    };
    let like = blocks.read(first)?;
    let mut end = start;
    let mut outputs = Vec::with_capacity(like.outputs.len());
    for stored in &like.outputs {
        let (kind, axes) = stored.form();
        let mut shape = vec![rows as usize];
        shape.extend(axes);
        let offset = end.next_multiple_of(ALIGNMENT);
        end = offset + rows * (axes.iter().product::<usize>() * kind.size()) as u64;
        outputs.push(Written { kind, shape, offset });
    }
    drop(like);
    let mut firsts = Vec::with_capacity(blocks.sizes().len());
    let mut before = 0;
    for &size in blocks.sizes() {
        firsts.push((firsts.len(), before));
        before += size;
    }
    let bad = parallel::map(parallel::cores(), &firsts, |&(block, first)| {
        let packed = blocks.read(block)?;
        for (stored, written) in packed.outputs.iter().zip(&outputs) {
            if packed.rows > 0 {
                put(stored, written, first, fd)?;
            }
        }
        let bad = packed.bad.iter();
        Ok(bad
            .map(|bad| (first + bad.row as u64, bad.why.clone()))
            .collect::<Vec<_>>())
    })?;
    Ok(Layout {
        outputs,
        bad: bad.concat(),
        end,
    })
}

fn put(stored: &Stored, written: &Written, first: u64, fd: BorrowedFd<'_>) -> Result<(), DataError> {
    let (kind, axes) = stored.form();
    if (kind, axes) != (written.kind, &written.shape[1..]) {
        let why = format!(
            "rows of shape {:?} and of shape {axes:?} do not make one array: pad them to one",
            &written.shape[1..],
        );
        return Err(DataError::option("data", why));
    }
    let size = axes.iter().product::<usize>() * kind.size();
    let offset = written.offset + first * size as u64;
    match stored {
        Stored::Numbers(matrix) => put_bytes(&matrix.data, offset, fd),
        Stored::Vectors(vectors) => {
            let together = (TOGETHER / size.max(1)).max(1);
            let mut rows = vec![0; together.min(vectors.rows.len()) * size];
            for start in (0..vectors.rows.len()).step_by(together) {
                let count = together.min(vectors.rows.len() - start);
                let rows = &mut rows[..count * size];
                for (row, room) in rows.chunks_exact_mut(size.max(1)).enumerate() {
                    let damaged = || DataError::option("data", "a vector came damaged");
                    vectors.write(start + row, room).ok_or_else(damaged)?;
                }
                put_bytes(rows, offset + (start * size) as u64, fd)?;
            }
            Ok(())
        }
        Stored::Images(_) => Err(DataError::option(
            "outputs",
            "images are decoded when they are read, not before",
        )),
    }
}

fn put_bytes(mut left: &[u8], mut offset: u64, fd: BorrowedFd<'_>) -> Result<(), DataError> {
    while !left.is_empty() {
        let done = pwrite(fd, left, offset).map_err(|error| DataError::io("shared memory", error.into()))?;
        offset += done as u64;
        left = &left[done..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Output;
    use crate::loader::Tables;
    use crate::table::Table;
    use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::sync::Arc;

    fn table(first: i64, rows: i64) -> Table {
        let numbers = first..first + rows;
        let columns: [(&str, ArrayRef); 2] = [
            (
                "a",
                Arc::new(Float64Array::from_iter_values(
                    numbers.clone().map(|number| number as f64),
                )),
            ),
            ("b", Arc::new(Int64Array::from_iter_values(numbers))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        Table::new(batch.schema(), vec![batch]).unwrap()
    }

    #[test]
    fn rows_of_all_blocks_stand_together() {
        let outputs = vec![Output::new(["a", "b"], None), Output::new(["b"], None)];
        let tables = vec![table(0, 0), table(0, 3), table(3, 2)];
        let mut file = tempfile::tempfile().unwrap();
        let layout = write_packed(&Tables::new(tables, outputs, false), file.as_fd(), 10).unwrap();
        assert_eq!(layout.outputs[0].shape, [5, 2]);
        assert_eq!((layout.outputs[0].offset, layout.outputs[1].offset), (64, 128));
        assert_eq!(layout.end, 128 + 5 * 8);
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        let numbers = bytes[64..104].chunks_exact(4);
        let floats: Vec<f32> = numbers
            .map(|four| f32::from_ne_bytes(four.try_into().unwrap()))
            .collect();
        assert_eq!(floats, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]);
        assert_eq!(bytes[128..136], 0_i64.to_ne_bytes());
        assert_eq!(bytes[160..168], 4_i64.to_ne_bytes());
    }

    #[test]
    fn no_rows_are_an_error() {
        let file = tempfile::tempfile().unwrap();
        let empty = Tables::new(vec![table(0, 0)], vec![Output::new(["a"], None)], false);
        assert!(write_packed(&empty, file.as_fd(), 0).is_err());
    }
}
