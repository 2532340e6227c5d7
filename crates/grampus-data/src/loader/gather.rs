//! Rows of blocks to a batch.

use std::collections::HashMap;
use std::sync::Arc;

use super::sequence::Sequence;
use crate::DataError;
use crate::batch::{Buffer, Images, Kind, Packed, Spare, Stored};
use crate::image::{Decoder, ImageError};

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

/// What makes batches: memory, the order of the rows, and what a thread decodes images with.
pub(super) struct Maker<'a> {
    pub spare: &'a Spare,
    pub sequence: &'a Sequence,
    pub decoder: &'a mut Decoder,
    /// Leave out images that cannot be decoded.
    pub skip: bool,
}

/// What is wrong with the row at a place of a batch.
type Wrong = Box<(usize, DataError)>;

impl Maker<'_> {
    /// A batch of these rows: one part for each output, without the rows that must not be used.
    pub fn batch(&mut self, rows: &[(usize, u64)], blocks: &Opened) -> Result<Batch, DataError> {
        let (mut kept, mut skipped) = usable(rows, blocks);
        loop {
            match self.parts(rows, &kept, blocks) {
                Ok(parts) => {
                    let numbers = kept.iter().map(|&place| self.sequence.number(rows[place]));
                    return Ok(Batch {
                        parts,
                        rows: numbers.collect(),
                        skipped,
                    });
                }
                Err(wrong) if self.skip => {
                    // Rare enough to make the batch again without it.
                    kept.retain(|&row| row != wrong.0);
                    skipped.push(wrong.1.to_string());
                }
                Err(wrong) => return Err(wrong.1),
            }
        }
    }

    fn parts(&mut self, rows: &[(usize, u64)], kept: &[usize], blocks: &Opened) -> Result<Vec<Part>, Wrong> {
        let Some(first) = rows.first().and_then(|row| blocks.get(&row.0)) else {
            return Ok(Vec::new());
        };
        let mut parts = Vec::with_capacity(first.outputs.len());
        for (number, like) in first.outputs.iter().enumerate() {
            let (kind, axes) = like.form();
            let size = axes.iter().product::<usize>() * kind.size();
            let mut buffer = self.spare.take(kept.len() * size);
            let room = buffer.bytes_mut().chunks_exact_mut(size.max(1));
            for (room, &place) in room.zip(kept) {
                let (block, row) = rows[place];
                let block = &blocks[&block];
                let stored = &block.outputs[number];
                if stored.form() != (kind, axes) {
                    return Err(Box::new((place, unlike(block, row, axes, stored.form().1))));
                }
                match stored {
                    Stored::Numbers(matrix) => {
                        let from = row as usize * size;
                        room.copy_from_slice(&matrix.data[from..from + size]);
                    }
                    Stored::Images(images) => {
                        let mut random = self.sequence.random(rows[place]);
                        let file = images.files.value(row as usize);
                        images
                            .pipeline
                            .run(self.decoder, file, &mut random, room)
                            .map_err(|error| Box::new((place, undecoded(block, row, images, &error))))?;
                    }
                }
            }
            let mut shape = vec![kept.len()];
            shape.extend(axes);
            parts.push(Part { kind, shape, buffer });
        }
        Ok(parts)
    }
}

fn unlike(block: &Packed, row: u64, one: &[usize], other: &[usize]) -> DataError {
    DataError::WrongValue {
        place: block.place.clone().row(row),
        why: format!("rows of shape {one:?} and of shape {other:?} do not make one batch: pad them to one"),
    }
}

fn undecoded(block: &Packed, row: u64, images: &Images, error: &ImageError) -> DataError {
    DataError::WrongValue {
        place: block.place.clone().row(row).column(&images.column),
        why: error.to_string(),
    }
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
