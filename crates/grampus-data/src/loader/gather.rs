//! Rows of blocks to a batch.

use std::sync::Arc;

use super::sequence::Sequence;
use crate::DataError;
use crate::batch::{Buffer, Images, Kind, Packed, Spare, Stored, Vectors};
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

/// Rows ahead of the one that is copied: their memory is fetched meanwhile, since shuffled rows lie anywhere.
const AHEAD: usize = 8;

/// The blocks that a batch needs, by number and in order.
pub(super) struct Opened(pub Vec<(usize, Arc<Packed>)>);

impl Opened {
    /// A block that is one of them.
    fn get(&self, block: usize) -> &Packed {
        // Where all blocks are open each stands at its number.
        let place = match self.0.get(block) {
            Some(found) if found.0 == block => block,
            _ => self.0.partition_point(|found| found.0 < block),
        };
        &self.0[place].1
    }
}

/// A row of a batch: its place in what was asked for, its block, and its number there.
type Row<'a> = (usize, &'a Packed, usize);

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
    /// A batch of these rows, which stand at `places` of the blocks: one part for each output, without the rows that must not
    /// be used.
    pub fn batch(
        &mut self,
        rows: &[(usize, u64)],
        places: &[(usize, u64)],
        blocks: &Opened,
    ) -> Result<Batch, DataError> {
        let (mut kept, mut skipped) = usable(places, blocks);
        let like = places.first().map(|row| blocks.get(row.0));
        loop {
            match self.parts(rows, &kept, like) {
                Ok(parts) => {
                    let numbers = kept.iter().map(|row| self.sequence.number(rows[row.0]));
                    return Ok(Batch {
                        parts,
                        rows: numbers.collect(),
                        skipped,
                    });
                }
                Err(wrong) if self.skip => {
                    // Rare enough to make the batch again without it.
                    kept.retain(|row| row.0 != wrong.0);
                    skipped.push(wrong.1.to_string());
                }
                Err(wrong) => return Err(wrong.1),
            }
        }
    }

    fn parts(
        &mut self,
        rows: &[(usize, u64)],
        kept: &[Row<'_>],
        like: Option<&Packed>,
    ) -> Result<Vec<Part>, Wrong> {
        let outputs = like.map_or(&[][..], |like| &like.outputs);
        let mut parts = Vec::with_capacity(outputs.len());
        for (number, like) in outputs.iter().enumerate() {
            let (kind, axes) = like.form();
            let size = axes.iter().product::<usize>() * kind.size();
            let mut buffer = self.spare.take(kept.len() * size);
            let room = buffer.bytes_mut().chunks_exact_mut(size.max(1));
            for (at, (room, &(place, block, row))) in room.zip(kept).enumerate() {
                let stored = &block.outputs[number];
                if stored.form() != (kind, axes) {
                    return Err(Box::new((
                        place,
                        unlike(block, rows[place].1, axes, stored.form().1),
                    )));
                }
                match stored {
                    Stored::Numbers(matrix) => {
                        if let Some(&(_, soon, row)) = kept.get(at + AHEAD)
                            && let Stored::Numbers(matrix) = &soon.outputs[number]
                        {
                            fetch(&matrix.data, row * size, size);
                        }
                        room.copy_from_slice(&matrix.data[row * size..(row + 1) * size]);
                    }
                    Stored::Images(images) => {
                        let mut random = self.sequence.random(rows[place]);
                        let file = images.files.value(row);
                        images
                            .pipeline
                            .run(self.decoder, file, &mut random, room)
                            .map_err(|error| {
                                Box::new((place, undecoded(block, rows[place].1, images, &error)))
                            })?;
                    }
                    Stored::Vectors(vectors) => {
                        let damaged = || Box::new((place, damaged(block, rows[place].1, vectors)));
                        vectors.write(row, room).ok_or_else(damaged)?;
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

/// Lets the processor fetch bytes that will be read soon.
#[cfg(target_arch = "x86_64")]
fn fetch(bytes: &[u8], start: usize, length: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    const LINE: usize = 64;
    for line in bytes.get(start..start + length).unwrap_or(&[]).chunks(LINE) {
        // SAFETY: every x86-64 processor has this instruction, and it has no effect but on caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}

/// Others find out by themselves.
#[cfg(not(target_arch = "x86_64"))]
fn fetch(_: &[u8], _: usize, _: usize) {}

fn unlike(block: &Packed, row: u64, one: &[usize], other: &[usize]) -> DataError {
    DataError::WrongValue {
        place: block.place.clone().row(row),
        why: format!("rows of shape {one:?} and of shape {other:?} do not make one batch: pad them to one"),
    }
}

fn damaged(block: &Packed, row: u64, vectors: &Vectors) -> DataError {
    DataError::WrongValue {
        place: block.place.clone().row(row).column(&vectors.column),
        why: "its vector came damaged: run the same version of grampus everywhere".to_owned(),
    }
}

fn undecoded(block: &Packed, row: u64, images: &Images, error: &ImageError) -> DataError {
    DataError::WrongValue {
        place: block.place.clone().row(row).column(&images.column),
        why: error.to_string(),
    }
}

/// The rows that may be used, and what is wrong with the others.
fn usable<'a>(rows: &[(usize, u64)], blocks: &'a Opened) -> (Vec<Row<'a>>, Vec<String>) {
    let mut skipped = Vec::new();
    let mut kept = Vec::with_capacity(rows.len());
    for (place, &(block, row)) in rows.iter().enumerate() {
        let block = blocks.get(block);
        match block.bad.binary_search_by_key(&(row as usize), |found| found.row) {
            Ok(found) => skipped.push(block.bad[found].why.clone()),
            Err(_) => kept.push((place, block, row as usize)),
        }
    }
    (kept, skipped)
}
