//! Buffers in shared memory: reduced where they lie.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use grampus_net::Memory;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::CollectiveError;

/// A page, so that what is given back can be freed whole.
const GRAIN: usize = 4096;
/// What is copied at once where a buffer is detached.
const PIECE: usize = 4 << 20;

/// The part of a segment from which members take buffers. Each keeps what it gave back for itself.
pub(crate) struct Arena {
    map: MmapRaw,
    memory: Memory,
    start: u64,
    free: Mutex<Vec<Range>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    offset: usize,
    len: usize,
}

impl Arena {
    pub fn map(memory: &Memory, start: u64) -> Result<Self, CollectiveError> {
        let len = memory.len() - start;
        let fd = rustix::fd::AsRawFd::as_raw_fd(&memory.fd());
        let map = MmapOptions::new()
            .offset(start)
            .len(len as usize)
            .no_reserve_swap()
            .map_raw(fd)
            .map_err(|error| {
                CollectiveError::System(format!(
                    "cannot map {len} bytes of shared memory: {error}: raise `ulimit -v`, or use ordinary buffers"
                ))
            })?;
        Ok(Self {
            map,
            memory: memory.clone(),
            start,
            free: Mutex::default(),
        })
    }

    /// Takes `len` bytes, zeroed; their offset. `taken` is what all members together took.
    pub fn take(&self, len: usize, taken: &AtomicU64) -> Result<usize, CollectiveError> {
        let full = || {
            CollectiveError::System(format!(
                "no room for {len} bytes of shared memory: drop buffers that are no longer used"
            ))
        };
        let len = len.max(1).checked_next_multiple_of(GRAIN).ok_or_else(full)?;
        if let Some(offset) = self.reuse(len) {
            return Ok(offset);
        }
        // Never counted first and taken back: another could take what lies behind meanwhile.
        let end = |offset: u64| {
            let end = offset.checked_add(len as u64)?;
            (end <= self.map.len() as u64).then_some(end)
        };
        let offset = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end);
        offset.map(|offset| offset as usize).map_err(|_| full())
    }

    /// Gives bytes back to the host, and their place to this member.
    pub fn give_back(&self, offset: usize, len: usize) {
        let len = len.max(1).next_multiple_of(GRAIN);
        self.free_pages(offset, len);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let at = free.partition_point(|range| range.offset < offset);
        free.insert(at, Range { offset, len });
        if at + 1 < free.len() && offset + len == free[at + 1].offset {
            free[at].len += free.remove(at + 1).len;
        }
        if at > 0 && free[at - 1].offset + free[at - 1].len == offset {
            free[at - 1].len += free.remove(at).len;
        }
    }

    /// Makes a range this process's own, with what lies there: others may still write to the shared pages, such as one
    /// that was stopped in the middle of a sum and goes on when the group has long ended.
    pub fn detach(&self, offset: usize, len: usize) {
        let start = offset / GRAIN * GRAIN;
        let end = (offset + len).next_multiple_of(GRAIN).min(self.map.len());
        for from in (start..end).step_by(PIECE) {
            self.detach_piece(from, PIECE.min(end - from));
        }
    }

    fn detach_piece(&self, offset: usize, len: usize) {
        let Some(place) = self.at(offset, len) else { return };
        let mut kept: Vec<u8> = Vec::with_capacity(len);
        // SAFETY: the range lies in the mapping and is the caller's; it is mapped throughout, before and after.
        unsafe {
            std::ptr::copy_nonoverlapping(place, kept.as_mut_ptr(), len);
            let (rights, flags) = (
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED,
            );
            // Where the kernel refuses, the pages stay shared: the call has failed in any case.
            if mmap_anonymous(place.cast(), len, rights, flags).is_ok() {
                std::ptr::copy_nonoverlapping(kept.as_ptr(), place, len);
                self.free_pages(offset, len);
            }
        }
    }

    /// Where the kernel cannot free the pages they stay, and are used again.
    fn free_pages(&self, offset: usize, len: usize) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(self.memory.fd(), flags, self.start + offset as u64, len as u64);
    }

    /// Where an offset lies in this process; `None` where the range is not inside the arena.
    pub fn at(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        // SAFETY: inside the mapping, which lives as long as `self`.
        (end <= self.map.len()).then(|| unsafe { self.map.as_mut_ptr().add(offset) })
    }

    /// The offset of a buffer that lies in the arena.
    pub fn offset_of(&self, buffer: *const u8, len: usize) -> Option<usize> {
        let offset = (buffer as usize).checked_sub(self.map.as_ptr() as usize)?;
        (offset.checked_add(len)? <= self.map.len()).then_some(offset)
    }

    fn reuse(&self, len: usize) -> Option<usize> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let at = free.iter().position(|range| range.len >= len)?;
        let range = free[at];
        if range.len == len {
            free.remove(at);
        } else {
            free[at] = Range {
                offset: range.offset + len,
                len: range.len - len,
            };
        }
        Some(range.offset)
    }
}
