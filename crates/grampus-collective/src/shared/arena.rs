//! Buffers in shared memory: reduced where they lie.

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

/// The part of a segment from which members take buffers, each from a window of its own: what one gave back is not of
/// use to another, so that a window that all shared would fill up with holes.
pub(crate) struct Arena {
    map: MmapRaw,
    memory: Memory,
    start: u64,
    window: Mutex<Window>,
}

/// What a member has given back, in order, and where what it never took begins and ends.
struct Window {
    free: Vec<Range>,
    top: usize,
    end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    offset: usize,
    len: usize,
}

impl Arena {
    /// Maps all windows; this member takes from number `me` of `members`.
    pub fn map(memory: &Memory, start: u64, me: usize, members: usize) -> Result<Self, CollectiveError> {
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
            window: Mutex::new(Window::new(len as usize, me, members)),
        })
    }

    /// Takes `len` bytes, zeroed; their offset.
    pub fn take(&self, len: usize) -> Result<usize, CollectiveError> {
        let rounded = len.max(1).checked_next_multiple_of(GRAIN);
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        rounded.and_then(|len| window.take(len)).ok_or_else(|| {
            CollectiveError::System(format!(
                "no room for {len} bytes of shared memory: drop buffers that are no longer used"
            ))
        })
    }

    /// Gives bytes back to the host, and their place to this member.
    pub fn give_back(&self, offset: usize, len: usize) {
        let len = len.max(1).next_multiple_of(GRAIN);
        self.free_pages(offset, len);
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        window.give_back(Range { offset, len });
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
}

impl Window {
    fn new(len: usize, me: usize, members: usize) -> Self {
        let size = len / members / GRAIN * GRAIN;
        Self {
            free: Vec::new(),
            top: size * me,
            end: size * (me + 1),
        }
    }

    fn take(&mut self, len: usize) -> Option<usize> {
        let Some(at) = self.free.iter().position(|range| range.len >= len) else {
            let offset = self.top;
            self.top = offset.checked_add(len).filter(|top| *top <= self.end)?;
            return Some(offset);
        };
        let Range { offset, len: found } = self.free[at];
        if found == len {
            self.free.remove(at);
        } else {
            self.free[at] = Range {
                offset: offset + len,
                len: found - len,
            };
        }
        Some(offset)
    }

    fn give_back(&mut self, range: Range) {
        let at = self.free.partition_point(|other| other.offset < range.offset);
        self.free.insert(at, range);
        for at in [at + 1, at] {
            if at > 0 && at < self.free.len() && self.free[at - 1].end() == self.free[at].offset {
                self.free[at - 1].len += self.free.remove(at).len;
            }
        }
        if let Some(last) = self.free.pop_if(|last| last.end() == self.top) {
            self.top = last.offset;
        }
    }
}

impl Range {
    fn end(self) -> usize {
        self.offset + self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_back_is_whole_again() {
        let mut window = Window::new(64 * GRAIN, 1, 2);
        let (start, all) = (32 * GRAIN, 32 * GRAIN);
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1]] {
            let taken: Vec<Range> = [1, 2, 3]
                .map(|pages| pages * GRAIN)
                .map(|len| Range {
                    offset: window.take(len).unwrap(),
                    len,
                })
                .to_vec();
            assert_eq!(taken[0].offset, start);
            for index in order {
                window.give_back(taken[index]);
            }
            assert!(window.free.is_empty());
            assert_eq!(window.take(all), Some(start));
            assert_eq!(window.take(GRAIN), None, "the next window is another member's");
            window.give_back(Range {
                offset: start,
                len: all,
            });
        }
        assert_eq!(window.take(usize::MAX / GRAIN * GRAIN), None);
        assert_eq!(window.top, start, "a refusal takes nothing");
    }

    #[test]
    fn holes_are_filled_first() {
        let mut window = Window::new(8 * GRAIN, 0, 1);
        let offsets = [0; 3].map(|_| window.take(2 * GRAIN).unwrap());
        window.give_back(Range {
            offset: offsets[1],
            len: 2 * GRAIN,
        });
        assert_eq!(window.take(GRAIN), Some(offsets[1]));
        assert_eq!(window.take(GRAIN), Some(offsets[1] + GRAIN));
        assert_eq!(window.take(GRAIN), Some(6 * GRAIN));
    }
}
