//! Rows of blocks to a batch.

use std::collections::HashMap;
use std::sync::Arc;

use super::sequence::Sequence;
use crate::batch::{Buffer, Kind, Packed, Spare};
use crate::{DataError, Place};

/// One output of a batch.
pub struct Part {
    /// What its numbers are.
    pub kind: Kind,
    /// Rows, then the numbers of a row along each axis.
    pub shape: Vec<usize>,
    /// The numbers, row behind row.
    pub buffer: Buffer,
}

/// A batch as it was asked for.
pub struct Batch {
    /// One for each output.
    pub parts: Vec<Part>,
    /// The numbers, among all rows of the data, of those in the batch.
    pub rows: Vec<u64>,
    /// What is wrong with the rows that were left out.
    pub skipped: Vec<String>,
}

/// The blocks that a batch needs.
pub(super) type Opened = HashMap<usize, Arc<Packed>>;

/// A batch of these rows: one part for each output, without the rows that must not be used.
pub(super) fn gathered(
    rows: &[(usize, u64)],
    blocks: &Opened,
    spare: &Spare,
    sequence: &Sequence,
) -> Result<Batch, DataError> {
    let (kept, skipped) = usable(rows, blocks);
    let mut batch = Batch {
        parts: Vec::new(),
        rows: kept.iter().map(|&place| sequence.number(rows[place])).collect(),
        skipped,
    };
    let Some(first) = rows.first().and_then(|row| blocks.get(&row.0)) else {
        return Ok(batch);
    };
    for (number, like) in first.outputs.iter().enumerate() {
        let size = like.row_size();
        let mut buffer = spare.take(kept.len() * size);
        let room = buffer.bytes_mut();
        let mut last = usize::MAX;
        let mut data: &[u8] = &[];
        for (at, &place) in kept.iter().enumerate() {
            let (block, row) = rows[place];
            // Rows in order come from one block for long.
            if block != last {
                let matrix = &blocks[&block].outputs[number];
                if (matrix.kind, &matrix.shape) != (like.kind, &like.shape) {
                    return Err(DataError::WrongValue {
                        place: Place::default(),
                        why: format!(
                            "rows of shape {:?} and of shape {:?} do not make one batch: pad them to one",
                            like.shape, matrix.shape
                        ),
                    });
                }
                (data, last) = (&matrix.data, block);
            }
            let from = row as usize * size;
            room[at * size..(at + 1) * size].copy_from_slice(&data[from..from + size]);
        }
        let mut shape = vec![kept.len()];
        shape.extend(&like.shape);
        batch.parts.push(Part {
            kind: like.kind,
            shape,
            buffer,
        });
    }
    Ok(batch)
}

/// The places of rows that may be used, and what is wrong with the others.
fn usable(rows: &[(usize, u64)], blocks: &Opened) -> (Vec<usize>, Vec<String>) {
    let mut skipped = Vec::new();
    let mut kept = Vec::with_capacity(rows.len());
    for (place, &(block, row)) in rows.iter().enumerate() {
        let bad = &blocks[&block].bad;
        match bad.binary_search_by_key(&(row as usize), |found| found.row) {
            Ok(found) => skipped.push(bad[found].why.clone()),
            Err(_) => kept.push(place),
        }
    }
    (kept, skipped)
}
