//! Where the rows of a block lie in its memory.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::LargeBinaryArray;
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::message::Form;
use crate::batch::{Bad, Images, Kind, Matrix, Output, Packed, Stored, Vectors};
use crate::{DataError, Place};

/// A block in memory, or in a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Layout {
    pub rows: u64,
    pub outputs: Vec<Laid>,
    /// Rows that must not be used, and why, in order.
    pub bad: Vec<(u64, String)>,
    /// Rows of the partition that stand before.
    pub before: u64,
    /// How far it reaches, with what is between the arrays and takes no memory.
    pub length: u64,
}

/// One array of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Laid {
    pub form: Form,
    /// Where the numbers begin; of files, where the table of their ends does.
    pub offset: u64,
    pub files: Option<Files>,
}

/// What takes different room in each row, one behind the other: files of images, and vectors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Files {
    pub column: String,
    pub offset: u64,
    pub size: u64,
}

/// Bytes of an end in the table of files.
pub(super) const END: u64 = 8;

impl Laid {
    /// Bytes of a row of numbers.
    pub fn row_size(&self) -> usize {
        self.form.shape.iter().product::<usize>() * self.form.kind.size()
    }
}

impl Layout {
    /// What is written of the memory.
    pub fn extents(&self) -> Vec<Range<u64>> {
        let mut found = Vec::new();
        for laid in &self.outputs {
            match &laid.files {
                None => found.push(laid.offset..laid.offset + self.rows * laid.row_size() as u64),
                Some(files) => {
                    found.push(laid.offset..laid.offset + (self.rows + 1) * END);
                    found.push(files.offset..files.offset + files.size);
                }
            }
        }
        found
    }

    /// How many bytes that is.
    pub fn bytes(&self) -> u64 {
        self.extents().iter().map(|part| part.end - part.start).sum()
    }

    fn fits(&self, memory: u64) -> bool {
        self.extents().iter().all(|part| part.end <= memory)
    }

    /// The block over its memory, without a copy.
    pub fn view(&self, memory: &Bytes, outputs: &[Output], partition: u64) -> Result<Packed, DataError> {
        if !self.fits(memory.len() as u64) || outputs.len() != self.outputs.len() {
            return Err(unlike("its memory is shorter than its rows"));
        }
        let cut = |from: u64, size: u64| memory.slice(from as usize..(from + size) as usize);
        let mut stored = Vec::with_capacity(outputs.len());
        for (laid, output) in self.outputs.iter().zip(outputs) {
            stored.push(match &laid.files {
                None => {
                    let size = self.rows * laid.row_size() as u64;
                    numbers(laid, cut(laid.offset, size))
                }
                Some(files) => {
                    let ends = Buffer::from(cut(laid.offset, (self.rows + 1) * END));
                    let ends = OffsetBuffer::new(ScalarBuffer::new(ends, 0, self.rows as usize + 1));
                    loose(laid, files, output, ends, cut(files.offset, files.size))?
                }
            });
        }
        let bad = self.bad.iter().map(|(row, why)| Bad {
            row: *row as usize,
            why: why.clone(),
        });
        Ok(Packed {
            rows: self.rows as usize,
            outputs: stored,
            bad: bad.collect(),
            place: Place::partition(partition, self.before),
        })
    }

    /// Copies some rows behind what is in `parts` already: one part for each array of numbers, two for each of files.
    pub fn pick(&self, memory: &[u8], rows: &[u32], parts: &mut [Vec<u8>]) -> Result<(), DataError> {
        let known = self.fits(memory.len() as u64) && rows.iter().all(|&row| u64::from(row) < self.rows);
        if !known || parts.len() != self.parts() {
            return Err(unlike("it does not have the rows that are asked for"));
        }
        let mut parts = parts.iter_mut();
        for laid in &self.outputs {
            let Some(part) = parts.next() else { break };
            let start = laid.offset as usize;
            let Some(files) = &laid.files else {
                let size = laid.row_size();
                part.reserve(rows.len() * size);
                for &row in rows {
                    let from = start + row as usize * size;
                    part.extend_from_slice(&memory[from..from + size]);
                }
                continue;
            };
            let Some(bytes) = parts.next() else { break };
            for &row in rows {
                let end = |number: usize| {
                    let from = start + number * END as usize;
                    let mut end = [0; END as usize];
                    end.copy_from_slice(&memory[from..from + END as usize]);
                    u64::from_le_bytes(end).min(files.size) as usize
                };
                let (first, end) = (end(row as usize), end(row as usize + 1));
                part.extend_from_slice(&(end.saturating_sub(first) as u64).to_le_bytes());
                let file = files.offset as usize;
                bytes.extend_from_slice(memory.get(file + first..file + end).unwrap_or(&[]));
            }
        }
        Ok(())
    }

    /// How many parts picked rows have.
    pub fn parts(&self) -> usize {
        self.outputs
            .iter()
            .map(|laid| 1 + usize::from(laid.files.is_some()))
            .sum()
    }

    /// The first rows of `parts`, which were picked, as a block of their own; they are taken away.
    pub fn picked(
        &self,
        rows: &[u32],
        parts: &mut [Bytes],
        outputs: &[Output],
        partition: u64,
    ) -> Result<Packed, DataError> {
        let short = || unlike("it sent fewer rows than were asked for");
        let mut parts = parts.iter_mut();
        let mut take = |size: usize| {
            let part = parts.next().filter(|part| part.len() >= size);
            part.map(|part| part.split_to(size)).ok_or_else(short)
        };
        let mut stored = Vec::with_capacity(outputs.len());
        for (laid, output) in self.outputs.iter().zip(outputs) {
            stored.push(match &laid.files {
                None => numbers(laid, take(rows.len() * laid.row_size())?),
                Some(files) => {
                    let lengths = take(rows.len() * END as usize)?;
                    let lengths = lengths.chunks_exact(END as usize).map(length);
                    let ends = OffsetBuffer::<i64>::from_lengths(lengths);
                    let size = ends.inner().last().copied().unwrap_or(0) as usize;
                    loose(laid, files, output, ends, take(size)?)?
                }
            });
        }
        let bad = rows.iter().enumerate().filter_map(|(at, &row)| {
            let found = self.bad.binary_search_by_key(&u64::from(row), |bad| bad.0).ok()?;
            let why = self.bad[found].1.clone();
            Some(Bad { row: at, why })
        });
        Ok(Packed {
            rows: rows.len(),
            outputs: stored,
            bad: bad.collect(),
            place: Place::partition(partition, self.before),
        })
    }
}

fn length(bytes: &[u8]) -> usize {
    let mut whole = [0; END as usize];
    whole.copy_from_slice(bytes);
    u64::from_le_bytes(whole) as usize
}

fn numbers(laid: &Laid, data: Bytes) -> Stored {
    let Form { kind, shape } = laid.form.clone();
    Stored::Numbers(Matrix { kind, shape, data })
}

fn loose(
    laid: &Laid,
    files: &Files,
    output: &Output,
    ends: OffsetBuffer<i64>,
    data: Bytes,
) -> Result<Stored, DataError> {
    let Form { kind, shape } = laid.form.clone();
    let column = files.column.clone();
    let rows = LargeBinaryArray::try_new(ends, Buffer::from(data), None)?;
    Ok(match &output.images {
        Some(pipeline) => Stored::Images(Images {
            column,
            pipeline: Arc::clone(pipeline),
            kind,
            shape,
            files: rows,
        }),
        None => Stored::Vectors(Vectors {
            column,
            kind,
            shape,
            rows,
        }),
    })
}

/// A block of whoever is of another build.
pub(super) fn unlike(why: &str) -> DataError {
    DataError::option(
        "a block of a keeper",
        format!("{why}: use the same version of grampus everywhere"),
    )
}

impl Form {
    /// That of a packed array.
    pub(super) fn of(stored: &Stored) -> Self {
        let (kind, shape): (Kind, &[usize]) = stored.form();
        Self {
            kind,
            shape: shape.to_vec(),
        }
    }
}
