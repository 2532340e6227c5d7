//! The two inner loops of convolutions.
//!
//! Rows of numbers lie in *tracks*. A *tap* is a place in one of them; sliding along, output `o` reads the number `o` places
//! behind each tap. What a convolution multiplies is so read where it lies: nothing is unrolled into columns.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use crate::real::{Real, lanes, vectorized};

/// `out[c][o] = sum over t of weights[t][c] * track[taps[t] + o]`, for `channels` rows of `length` numbers.
pub(crate) struct Slide<'a, T> {
    /// What is read.
    pub(crate) track: &'a [T],
    /// Where each tap begins.
    pub(crate) taps: &'a [usize],
    /// From [`pack`].
    pub(crate) weights: &'a [T],
    /// Rows of `pitch` numbers, one for each channel.
    pub(crate) out: &'a mut [T],
    pub(crate) pitch: usize,
    pub(crate) channels: usize,
    /// How many numbers of each row are wanted; a few more may be written.
    pub(crate) length: usize,
}

/// More numbers than wanted are read and written, up to this many.
pub(crate) const SPILL: usize = 64;

/// How many taps are gone over before the next channels are taken.
const TAPS_AT_ONCE: usize = 96;

/// How many channels are computed together: their sums stay in registers.
pub(crate) fn block_of(channels: usize) -> usize {
    match channels {
        0..=1 => 1,
        2 => 2,
        3..=4 => 4,
        5..=6 => 6,
        _ => 8,
    }
}

/// Weights in the order in which they are read: for each block of channels, each tap, each channel. `weight(c, t)` says them.
pub(crate) fn pack<T: Real>(
    into: &mut Vec<T>,
    channels: usize,
    taps: usize,
    weight: impl Fn(usize, usize) -> T,
) {
    let block = block_of(channels);
    into.clear();
    into.reserve(channels.next_multiple_of(block) * taps);
    for first in (0..channels).step_by(block) {
        for tap in 0..taps {
            for channel in first..first + block {
                into.push(if channel < channels {
                    weight(channel, tap)
                } else {
                    T::zero()
                });
            }
        }
    }
}

impl<T: Real> Slide<'_, T> {
    pub(crate) fn run(self) {
        let last = self.taps.iter().max().copied().unwrap_or(0);
        let block = block_of(self.channels);
        assert!(last + self.length + SPILL <= self.track.len());
        assert!(self.length + SPILL <= self.pitch && self.out.len() >= self.channels * self.pitch);
        assert!(self.weights.len() >= self.channels.next_multiple_of(block) * self.taps.len());
        vectorized(self);
    }
}

impl<T: Real> WithSimd for Slide<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let wide = S::REGISTER_COUNT >= 32;
        match (block_of(self.channels), wide) {
            (1, _) => slide::<T, S, 1, 4>(simd, self),
            (2, _) => slide::<T, S, 2, 4>(simd, self),
            (4, true) => slide::<T, S, 4, 4>(simd, self),
            (6, true) => slide::<T, S, 6, 4>(simd, self),
            (_, true) => slide::<T, S, 8, 3>(simd, self),
            (4, false) => slide::<T, S, 4, 2>(simd, self),
            (6, false) => slide::<T, S, 6, 2>(simd, self),
            (_, false) => slide::<T, S, 8, 1>(simd, self),
        }
    }
}

#[inline(always)]
fn slide<T: Real, S: Simd, const C: usize, const V: usize>(simd: S, job: Slide<'_, T>) {
    let count = job.taps.len();
    let step = V * lanes::<T, S>();
    for (number, first) in (0..job.channels).step_by(C).enumerate() {
        let weights = job.weights[number * C * count..].as_ptr();
        let rows = (job.channels - first).min(C);
        for at in (0..job.length).step_by(step) {
            let mut sums = [[T::splat(simd, T::zero()); V]; C];
            for (index, tap) in job.taps.iter().enumerate() {
                // SAFETY: `run` has checked that the last tap may be read to the end and `SPILL` further, and that there
                // is a weight for every tap of every block.
                unsafe {
                    let track = job.track.as_ptr().add(tap + at).cast::<T::Vector<S>>();
                    let read: [T::Vector<S>; V] = std::array::from_fn(|v| track.add(v).read_unaligned());
                    let weights = weights.add(index * C);
                    for (c, sums) in sums.iter_mut().enumerate() {
                        let weight = T::splat(simd, *weights.add(c));
                        for (sum, read) in sums.iter_mut().zip(read) {
                            *sum = T::fused(simd, weight, read, *sum);
                        }
                    }
                }
            }
            for (c, sums) in sums.iter().enumerate().take(rows) {
                // SAFETY: `run` has checked that rows may be written `SPILL` further than wanted.
                unsafe {
                    let out = job.out.as_mut_ptr().add((first + c) * job.pitch + at);
                    let out = out.cast::<T::Vector<S>>();
                    for (v, sum) in sums.iter().enumerate() {
                        out.add(v).write_unaligned(*sum);
                    }
                }
            }
        }
    }
}

/// `out[c][t] += sum over o of rows[c][o] * track[taps[t] + o]`: what a weight has to do with an error.
pub(crate) struct Correlate<'a, T> {
    /// One row of `pitch` numbers for each channel; behind its `length` numbers lie zeros, up to [`SPILL`].
    pub(crate) rows: &'a [T],
    pub(crate) pitch: usize,
    pub(crate) channels: usize,
    pub(crate) length: usize,
    pub(crate) track: &'a [T],
    pub(crate) taps: &'a [usize],
    /// `channels` times as many as there are taps.
    pub(crate) out: &'a mut [T],
}

impl<T: Real> Correlate<'_, T> {
    pub(crate) fn run(self) {
        let last = self.taps.iter().max().copied().unwrap_or(0);
        assert!(last + self.length + SPILL <= self.track.len());
        assert!(self.rows.len() >= self.channels.saturating_sub(1) * self.pitch + self.length + SPILL);
        assert!(self.out.len() >= self.channels * self.taps.len());
        vectorized(self);
    }
}

impl<T: Real> WithSimd for Correlate<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let mut job = self;
        // What some taps read is to stay in the cache while all channels go over it.
        for begin in (0..job.taps.len()).step_by(TAPS_AT_ONCE) {
            let end = (begin + TAPS_AT_ONCE).min(job.taps.len());
            let mut first = 0;
            while first < job.channels {
                first += match (job.channels - first, S::REGISTER_COUNT >= 32) {
                    (4.., true) => correlate::<T, S, 4, 6>(simd, &mut job, first, begin..end),
                    (2.., _) => correlate::<T, S, 2, 4>(simd, &mut job, first, begin..end),
                    _ => correlate::<T, S, 1, 8>(simd, &mut job, first, begin..end),
                };
            }
        }
    }
}

#[inline(always)]
fn correlate<T: Real, S: Simd, const C: usize, const K: usize>(
    simd: S,
    job: &mut Correlate<'_, T>,
    first: usize,
    among: Range<usize>,
) -> usize {
    let count = job.taps.len();
    for begin in among.clone().step_by(K) {
        let here = (among.end - begin).min(K);
        // A last block that is not full reads its last tap again, and forgets what comes out.
        let taps: [usize; K] = std::array::from_fn(|k| job.taps[begin + k.min(here - 1)]);
        let mut sums = [[T::splat(simd, T::zero()); K]; C];
        for at in (0..job.length).step_by(lanes::<T, S>()) {
            // SAFETY: `run` has checked that the last row and the last tap may be read to the end and `SPILL` further.
            unsafe {
                let rows: [T::Vector<S>; C] = std::array::from_fn(|c| {
                    let row = job.rows.as_ptr().add((first + c) * job.pitch + at);
                    row.cast::<T::Vector<S>>().read_unaligned()
                });
                for k in 0..K {
                    let track = job.track.as_ptr().add(taps[k] + at);
                    let read = track.cast::<T::Vector<S>>().read_unaligned();
                    for c in 0..C {
                        sums[c][k] = T::fused(simd, rows[c], read, sums[c][k]);
                    }
                }
            }
        }
        for (c, sums) in sums.iter().enumerate() {
            let out = &mut job.out[(first + c) * count + begin..][..here];
            for (out, sum) in out.iter_mut().zip(sums) {
                *out += T::total(simd, *sum);
            }
        }
    }
    C
}
