//! Memory for the rows of a block.

use std::marker::PhantomData;

use arrow::datatypes::{ArrowNativeType, ToByteSlice};
use bytes::Bytes;
use memmap2::{Advice, MmapMut};

use crate::DataError;

/// What is worth memory of its own, in pages of 2 MiB.
const LARGE: usize = 4 << 20;

/// Numbers that are zero at first.
///
/// Large ones get memory of their own from the system: an allocator would keep it when a window is done with, or cut it up
/// for others. Their pages are large where the system has such, because rows are read in any order, and a small page is
/// found again more slowly than what lies in it.
pub(super) enum Room<N> {
    Small(Vec<N>),
    Large(MmapMut, PhantomData<N>),
}

impl<N: ArrowNativeType> Room<N> {
    pub fn of(count: usize) -> Result<Self, DataError> {
        let size = count * size_of::<N>();
        if size < LARGE {
            return Ok(Self::Small(vec![N::default(); count]));
        }
        let memory = MmapMut::map_anon(size).map_err(|error| DataError::io("memory for rows", error))?;
        // Where there are none, pages stay small.
        let _ = memory.advise(Advice::HugePage);
        Ok(Self::Large(memory, PhantomData))
    }

    pub fn numbers(&mut self) -> &mut [N] {
        match self {
            Self::Small(numbers) => numbers,
            Self::Large(memory, _) => {
                let count = memory.len() / size_of::<N>();
                // SAFETY: a mapping begins at a page, which suits every number, and holds so many of them; any bits are
                // one, and nobody else has this memory.
                unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), count) }
            }
        }
    }

    /// The numbers as the bytes that they are, without a copy.
    pub fn bytes(self) -> Bytes
    where
        N: Send + 'static,
    {
        struct Numbers<N>(Vec<N>);
        impl<N: ArrowNativeType> AsRef<[u8]> for Numbers<N> {
            fn as_ref(&self) -> &[u8] {
                self.0.to_byte_slice()
            }
        }
        match self {
            Self::Small(numbers) => Bytes::from_owner(Numbers(numbers)),
            Self::Large(memory, _) => Bytes::from_owner(memory),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_hold_what_was_written() {
        for count in [0, 1, 1000, LARGE / 4, LARGE / 4 + 3] {
            let mut room = Room::<f32>::of(count).unwrap();
            assert!(room.numbers().iter().all(|&number| number == 0.0));
            assert_eq!(room.numbers().len(), count);
            for (at, number) in room.numbers().iter_mut().enumerate() {
                *number = at as f32;
            }
            let bytes = room.bytes();
            assert_eq!(bytes.len(), count * 4);
            let last = bytes.chunks_exact(4).last();
            let last = last.map(|four| f32::from_ne_bytes(four.try_into().unwrap()));
            assert_eq!(last, count.checked_sub(1).map(|last| last as f32));
        }
    }
}
