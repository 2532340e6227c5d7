//! Buffers in the memory that the members of a host share.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::shared::{Segment, skew};
use crate::{CollectiveError, Element};

/// Elements in shared memory, zero at first: what [`crate::Group::all_reduce`] and [`crate::Group::reduce`] reduce
/// where it lies, without a copy. Use it like a slice.
pub struct SharedBuffer<T: Element> {
    bytes: SharedBytes,
    elements: PhantomData<T>,
}

/// The memory of a [`SharedBuffer`], whatever lies in it.
pub struct SharedBytes {
    segment: Arc<Segment>,
    /// All that was taken of the arena.
    offset: usize,
    whole: usize,
    len: usize,
    start: *mut u8,
}

// SAFETY: the memory is this owner's alone between calls, like that of a box.
unsafe impl Send for SharedBytes {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    pub(crate) fn take(segment: Arc<Segment>, len: usize) -> Result<Self, CollectiveError> {
        let arena = segment.arena()?;
        // Begins elsewhere in its page than the buffers of others: see [`skew`].
        let skew = skew(segment.me());
        let whole = len.saturating_add(skew);
        let offset = arena.take(whole)?;
        let start = arena
            .at(offset + skew, len)
            .ok_or_else(|| CollectiveError::System("shared memory is smaller than announced".into()))?;
        Ok(Self {
            offset,
            whole,
            len,
            start,
            segment,
        })
    }

    /// Where it lies in this process.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True where there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for SharedBytes {
    fn drop(&mut self) {
        // The pages are the parent's also where this process was forked from it.
        if !self.segment.is_inherited()
            && let Ok(arena) = self.segment.arena()
        {
            arena.give_back(self.offset, self.whole);
        }
    }
}

impl<T: Element> SharedBuffer<T> {
    pub(crate) fn new(bytes: SharedBytes) -> Self {
        Self {
            bytes,
            elements: PhantomData,
        }
    }

    fn count(&self) -> usize {
        self.bytes.len / size_of::<T>()
    }
}

impl<T: Element> Deref for SharedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: aligned to a cache line, as long as asked for, and any bytes that were written are elements; zeros are.
        unsafe { std::slice::from_raw_parts(self.bytes.start.cast::<T>(), self.count()) }
    }
}

impl<T: Element> DerefMut for SharedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.start.cast::<T>(), self.count()) }
    }
}

impl<T: Element> AsMut<[T]> for SharedBuffer<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}
