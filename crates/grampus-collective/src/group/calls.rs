//! The calls of a group on Rust slices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Group, Handle, Letter, Way};
use crate::numerics::Op;
use crate::request::{RawPart, Request};
use crate::{CollectiveError, Element};

fn part<T>(slice: &mut [T]) -> RawPart {
    (slice.as_mut_ptr().cast(), slice.len())
}

/// Read only, whatever the type says: requests never write sources.
fn source<T>(slice: &[T]) -> RawPart {
    (slice.as_ptr().cast_mut().cast(), slice.len())
}

impl Group {
    fn blocking(&self, request: Request) -> Result<(), CollectiveError> {
        // SAFETY: made from slices that the caller lends for the length of the call.
        unsafe { self.call(request, &|| false) }
    }

    /// Every member's buffer becomes the sum (or mean, …) of all members' buffers.
    pub fn all_reduce<T: Element>(&self, buffer: &mut [T], op: Op) -> Result<(), CollectiveError> {
        self.blocking(Request::AllReduce {
            dtype: T::DTYPE,
            op,
            buffer: part(buffer),
        })
    }

    /// Like [`Group::all_reduce`], but returns at once; the handle gives the buffer back.
    pub fn all_reduce_async<T: Element, B: AsMut<[T]> + Send + 'static>(
        &self,
        buffer: B,
        op: Op,
    ) -> Result<Handle<B>, CollectiveError> {
        let mut buffer = Box::new(buffer);
        let request = Request::AllReduce {
            dtype: T::DTYPE,
            op,
            buffer: part((*buffer).as_mut()),
        };
        // SAFETY: the handle keeps the buffer until the call is through.
        let raw = unsafe { self.start_call(request, Box::new(())) }?;
        Ok(Handle {
            raw,
            buffer: Some(buffer),
        })
    }

    /// Every lane's buffer becomes the sum over all lanes of all members, added up in the one tree that belongs to
    /// the number of lanes: the bits do not depend on who drives which lane.
    pub fn all_reduce_lanes<T: Element>(
        &self,
        lanes: &mut [(u32, &mut [T])],
        op: Op,
    ) -> Result<(), CollectiveError> {
        let count = lanes.first().map_or(0, |(_, buffer)| buffer.len());
        if lanes.iter().any(|(_, buffer)| buffer.len() != count) {
            return Err(CollectiveError::Argument(
                "the buffers of a member's lanes must be of equal length".into(),
            ));
        }
        self.blocking(Request::AllReduceLanes {
            dtype: T::DTYPE,
            op,
            lanes: lanes
                .iter_mut()
                .map(|(lane, buffer)| (*lane, buffer.as_mut_ptr().cast()))
                .collect(),
            count,
        })
    }

    /// The root's buffer becomes the sum; the others' stay as they are.
    pub fn reduce<T: Element>(&self, buffer: &mut [T], op: Op, root: u32) -> Result<(), CollectiveError> {
        self.blocking(Request::Reduce {
            dtype: T::DTYPE,
            op,
            buffer: part(buffer),
            root,
        })
    }

    /// `target` becomes this rank's part of the sum; `source` holds one part for every rank.
    pub fn reduce_scatter<T: Element>(
        &self,
        whole: &[T],
        target: &mut [T],
        op: Op,
    ) -> Result<(), CollectiveError> {
        if whole.len() != target.len() * self.size() {
            return Err(CollectiveError::Argument(format!(
                "reduce_scatter needs {} parts of {} elements, not {} elements in all",
                self.size(),
                target.len(),
                whole.len()
            )));
        }
        self.blocking(Request::ReduceScatter {
            dtype: T::DTYPE,
            op,
            source: source(whole).0,
            target: part(target),
        })
    }

    /// `parts` become the parts of all ranks, which may be of unequal length.
    pub fn all_gather<T: Element>(&self, mine: &[T], parts: &mut [&mut [T]]) -> Result<(), CollectiveError> {
        self.all_gather_while(mine, parts, &|| false)
    }

    /// Like [`Group::all_gather`]; where `gives_up` says so, the call is given up and the group ends.
    pub fn all_gather_while<T: Element>(
        &self,
        mine: &[T],
        parts: &mut [&mut [T]],
        gives_up: &dyn Fn() -> bool,
    ) -> Result<(), CollectiveError> {
        let request = Request::AllGather {
            dtype: T::DTYPE,
            source: source(mine),
            targets: parts.iter_mut().map(|target| part(target)).collect(),
        };
        // SAFETY: made from slices that the caller lends for the length of the call.
        unsafe { self.call(request, gives_up) }
    }

    /// What each rank has to say, in order: bytes of any length.
    pub fn gather_bytes(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, CollectiveError> {
        self.gather_bytes_while(mine, &|| false)
    }

    /// Like [`Group::gather_bytes`]; where `gives_up` says so, the call is given up and the group ends.
    pub fn gather_bytes_while(
        &self,
        mine: &[u8],
        gives_up: &dyn Fn() -> bool,
    ) -> Result<Vec<Vec<u8>>, CollectiveError> {
        let mut lengths = vec![0_i64; self.size()];
        let mut parts: Vec<&mut [i64]> = lengths.chunks_mut(1).collect();
        self.all_gather_while(&[mine.len() as i64], &mut parts, gives_up)?;
        let mut all: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0; *length as usize]).collect();
        let mut parts: Vec<&mut [u8]> = all.iter_mut().map(Vec::as_mut_slice).collect();
        self.all_gather_while(mine, &mut parts, gives_up)?;
        Ok(all)
    }

    /// At the root, `parts` become the parts of all ranks, of equal length; elsewhere it is empty.
    pub fn gather<T: Element>(
        &self,
        mine: &[T],
        parts: &mut [&mut [T]],
        root: u32,
    ) -> Result<(), CollectiveError> {
        if parts.iter().any(|part| part.len() != mine.len()) {
            return Err(CollectiveError::Argument(
                "gather needs parts of equal length; all_gather takes unequal ones".into(),
            ));
        }
        self.blocking(Request::Gather {
            dtype: T::DTYPE,
            source: source(mine),
            targets: parts.iter_mut().map(|target| part(target).0).collect(),
            root,
        })
    }

    /// `target` becomes this rank's part of `parts` at the root; elsewhere `parts` is empty.
    pub fn scatter<T: Element>(
        &self,
        parts: &[&[T]],
        target: &mut [T],
        root: u32,
    ) -> Result<(), CollectiveError> {
        if parts.iter().any(|part| part.len() != target.len()) {
            return Err(CollectiveError::Argument(
                "scatter needs parts of equal length".into(),
            ));
        }
        self.blocking(Request::Scatter {
            dtype: T::DTYPE,
            sources: parts.iter().map(|part| source(part).0).collect(),
            target: part(target),
            root,
        })
    }

    /// Every member's buffer becomes the root's.
    pub fn broadcast<T: Element>(&self, buffer: &mut [T], root: u32) -> Result<(), CollectiveError> {
        self.blocking(Request::Broadcast {
            dtype: T::DTYPE,
            buffer: part(buffer),
            root,
        })
    }

    /// `targets[r]` becomes what rank `r` has in `sources` for this rank; lengths may differ.
    pub fn all_to_all<T: Element>(
        &self,
        sources: &[&[T]],
        targets: &mut [&mut [T]],
    ) -> Result<(), CollectiveError> {
        self.blocking(Request::AllToAll {
            dtype: T::DTYPE,
            sources: sources.iter().map(|part| source(part)).collect(),
            targets: targets.iter_mut().map(|target| part(target)).collect(),
        })
    }

    /// Sends a buffer to another rank and returns when it has arrived there. Buffers of one tag arrive in the order in
    /// which they were sent; the receiver must ask for as many elements of the same type.
    pub fn send<T: Element>(&self, buffer: &[T], to: usize, tag: u32) -> Result<(), CollectiveError> {
        let letter = Letter {
            dtype: T::DTYPE,
            buffer: source(buffer),
            way: Way::To(to),
            tag,
        };
        // SAFETY: made from a slice that the caller lends for the length of the call.
        unsafe { self.mail(letter, &|| false) }
    }

    /// Fills a buffer with what another rank sends.
    pub fn recv<T: Element>(&self, buffer: &mut [T], from: usize, tag: u32) -> Result<(), CollectiveError> {
        let letter = Letter {
            dtype: T::DTYPE,
            buffer: part(buffer),
            way: Way::From(from),
            tag,
        };
        // SAFETY: as above.
        unsafe { self.mail(letter, &|| false) }
    }

    /// Waits until all members have come here.
    pub fn barrier(&self) -> Result<(), CollectiveError> {
        self.blocking(Request::Barrier)
    }

    /// The Euclidean norm of a buffer that all members hold alike. Its bits do not depend on how many members there
    /// are.
    pub fn norm<T: Element>(&self, buffer: &[T]) -> Result<f64, CollectiveError> {
        let answer = Arc::new(AtomicU64::new(0));
        self.blocking(Request::Norm {
            dtype: T::DTYPE,
            buffer: source(buffer),
            answer: Arc::clone(&answer),
        })?;
        Ok(f64::from_bits(answer.load(Ordering::Acquire)))
    }
}
