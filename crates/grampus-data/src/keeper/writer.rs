//! Packed rows into blocks of sealed memory, as they come.

use std::os::fd::{AsFd, OwnedFd};

use grampus_net::Memory;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::pwrite;
use twox_hash::XxHash3_128;

use super::layout::{END, Files, Laid, Layout};
use super::message::Form;
use crate::batch::{Packed, Stored};
use crate::{DataError, Place};

/// Bytes of a block, about: large enough that few are mapped, small enough that one more does not matter.
const BLOCK: u64 = 64 << 20;
/// Room for the files of a block. What is not written takes no memory.
const FILES: u64 = 4 << 30;
/// Where arrays begin: at a page, so that none shares one with another.
const PAGE: u64 = 4096;

/// Blocks of one partition, the last of which is still being written.
pub(super) struct Writer {
    partition: u64,
    forms: Vec<Form>,
    open: Option<Block>,
    /// One for each array, over all of its rows, so that it does not matter how they were cut.
    digests: Vec<XxHash3_128>,
    pub blocks: Vec<u64>,
    pub rows: u64,
    pub bytes: u64,
    pub bad: u64,
}

struct Block {
    fd: OwnedFd,
    layout: Layout,
    capacity: u64,
}

impl Writer {
    pub fn new(partition: u64) -> Self {
        Self {
            partition,
            forms: Vec::new(),
            open: None,
            digests: Vec::new(),
            blocks: Vec::new(),
            rows: 0,
            bytes: 0,
            bad: 0,
        }
    }

    /// Writes rows behind those before; gives away blocks that are full.
    pub fn append(
        &mut self,
        packed: &Packed,
        mut give: impl FnMut(Layout, Memory) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        if packed.rows == 0 {
            return Ok(());
        }
        self.check(packed)?;
        let mut at = 0;
        while at < packed.rows {
            let mut block = match self.open.take() {
                Some(block) => block,
                None => Block::open(packed, self.rows)?,
            };
            let count = block.room(packed, at);
            self.write(&mut block, packed, at, count)?;
            at += count;
            if block.is_full() {
                self.close(block, &mut give)?;
            } else {
                self.open = Some(block);
            }
        }
        Ok(())
    }

    /// Gives away the last block; returns the digest.
    pub fn finish(
        &mut self,
        mut give: impl FnMut(Layout, Memory) -> Result<(), DataError>,
    ) -> Result<String, DataError> {
        if let Some(block) = self.open.take() {
            self.close(block, &mut give)?;
        }
        let mut whole = XxHash3_128::new();
        whole.write(&self.rows.to_le_bytes());
        for digest in &self.digests {
            whole.write(&digest.finish_128().to_le_bytes());
        }
        Ok(format!("{:032x}", whole.finish_128()))
    }

    pub fn forms(&self) -> &[Form] {
        &self.forms
    }

    /// Rows of one frame have one form, or they make no batches.
    fn check(&mut self, packed: &Packed) -> Result<(), DataError> {
        let forms: Vec<Form> = packed.outputs.iter().map(Form::of).collect();
        if self.forms.is_empty() {
            self.digests = forms.iter().map(|_| XxHash3_128::new()).collect();
            // One more for the rows that cannot be used.
            self.digests.push(XxHash3_128::new());
            self.forms = forms;
        } else if let Some((one, other)) = self.forms.iter().zip(&forms).find(|(one, other)| one != other) {
            return Err(DataError::WrongValue {
                place: Place::partition(self.partition, self.rows).row(0),
                why: format!(
                    "rows of shape {:?} and of shape {:?} do not make one batch: pad them to one",
                    one.shape, other.shape
                ),
            });
        }
        Ok(())
    }

    fn write(
        &mut self,
        block: &mut Block,
        packed: &Packed,
        at: usize,
        count: usize,
    ) -> Result<(), DataError> {
        let first = block.layout.rows;
        let fd = block.fd.as_fd();
        for ((stored, laid), digest) in packed
            .outputs
            .iter()
            .zip(&mut block.layout.outputs)
            .zip(&mut self.digests)
        {
            match stored {
                Stored::Numbers(matrix) => {
                    let size = matrix.row_size();
                    let bytes = &matrix.data[at * size..(at + count) * size];
                    digest.write(bytes);
                    put(fd, bytes, laid.offset + first * size as u64)?;
                    self.bytes += bytes.len() as u64;
                }
                _ => {
                    let (Some(files), Some((_, loose))) = (&mut laid.files, stored.loose()) else {
                        continue;
                    };
                    let mut ends = Vec::with_capacity(count * END as usize);
                    for row in at..at + count {
                        let file = loose.value(row);
                        digest.write(&(file.len() as u64).to_le_bytes());
                        digest.write(file);
                        files.size += file.len() as u64;
                        ends.extend_from_slice(&files.size.to_le_bytes());
                    }
                    // They lie one behind the other there, too.
                    let [first_byte, end] = [at, at + count].map(|row| loose.value_offsets()[row] as usize);
                    let bytes = &loose.value_data()[first_byte..end];
                    put(fd, bytes, files.offset + files.size - bytes.len() as u64)?;
                    self.bytes += bytes.len() as u64;
                    put(fd, &ends, laid.offset + (first + 1) * END)?;
                }
            }
        }
        for bad in packed
            .bad
            .iter()
            .filter(|bad| (at..at + count).contains(&bad.row))
        {
            let row = (bad.row - at) as u64;
            block.layout.bad.push((first + row, bad.why.clone()));
            if let Some(digest) = self.digests.last_mut() {
                digest.write(&(self.rows + row).to_le_bytes());
            }
            self.bad += 1;
        }
        block.layout.rows += count as u64;
        self.rows += count as u64;
        Ok(())
    }

    fn close(
        &mut self,
        block: Block,
        give: &mut impl FnMut(Layout, Memory) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let (fd, mut layout) = (block.fd, block.layout);
        // Nothing cannot be mapped.
        layout.length = layout.extents().iter().map(|part| part.end).fold(1, u64::max);
        ftruncate(&fd, layout.length).map_err(no_memory)?;
        self.blocks.push(layout.rows);
        let memory = Memory::from_fd(fd, layout.length)?;
        give(layout, memory)
    }
}

impl Block {
    /// Room for rows like these.
    fn open(like: &Packed, before: u64) -> Result<Self, DataError> {
        let row: u64 = like
            .outputs
            .iter()
            .map(|stored| match stored {
                Stored::Numbers(matrix) => matrix.row_size() as u64,
                _ => END,
            })
            .sum();
        // Row numbers of a block have 32 bits.
        let capacity = (BLOCK / row.max(1)).clamp(1, u64::from(u32::MAX));
        let mut end = 0;
        let mut room = |size: u64| {
            let offset = end;
            end += size.next_multiple_of(PAGE);
            offset
        };
        let mut outputs = Vec::with_capacity(like.outputs.len());
        for stored in &like.outputs {
            let offset = match stored {
                Stored::Numbers(matrix) => room(capacity * matrix.row_size() as u64),
                _ => room((capacity + 1) * END),
            };
            let (form, files) = (Form::of(stored), None);
            outputs.push(Laid { form, offset, files });
        }
        // Behind all else: nobody knows how much room they take.
        for (stored, laid) in like.outputs.iter().zip(&mut outputs) {
            if let Some((column, _)) = stored.loose() {
                let (column, offset) = (column.to_owned(), room(FILES));
                laid.files = Some(Files {
                    column,
                    offset,
                    size: 0,
                });
            }
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("grampus", flags).map_err(no_memory)?;
        let layout = Layout {
            rows: 0,
            outputs,
            bad: Vec::new(),
            before,
            length: 0,
        };
        Ok(Self { fd, layout, capacity })
    }

    /// How many of the rows from `at` on still go in, at least one.
    fn room(&self, packed: &Packed, at: usize) -> usize {
        let mut count = (self.capacity - self.layout.rows).min((packed.rows - at) as u64) as usize;
        for (stored, laid) in packed.outputs.iter().zip(&self.layout.outputs) {
            if let (Some((_, loose)), Some(files)) = (stored.loose(), &laid.files) {
                let ends = loose.value_offsets();
                let fits = |count: &usize| files.size + (ends[at + count] - ends[at]) as u64 <= BLOCK;
                count = (1..=count).take_while(fits).last().unwrap_or(1);
            }
        }
        count.max(1)
    }

    fn is_full(&self) -> bool {
        let files = self.layout.outputs.iter().filter_map(|laid| laid.files.as_ref());
        self.layout.rows == self.capacity || files.map(|files| files.size).any(|size| size >= BLOCK / 2)
    }
}

fn put(fd: impl AsFd, bytes: &[u8], mut offset: u64) -> Result<(), DataError> {
    let mut left = bytes;
    while !left.is_empty() {
        let done = pwrite(&fd, left, offset).map_err(no_memory)?;
        offset += done as u64;
        left = &left[done..];
    }
    Ok(())
}

fn no_memory(error: rustix::io::Errno) -> DataError {
    DataError::io("memory for rows", error.into())
}
