//! Sums of squares that do not depend on who owns what.
//!
//! The flat buffer is cut into blocks of fixed size. Squares are summed over each block, as far as it lies in
//! a tensor, always in the same order; then the sums of a tensor's blocks are added up, the first first. An
//! owner that has only a part of a block cannot know its sum: it sends the squares themselves.

use std::ops::Range;

use crate::error::NativeError;
use crate::real::{Real, wide_loop};

/// How many elements are summed at once.
pub(super) const BLOCK: usize = 4096;

/// How many sums run side by side within a block.
const LANES: usize = 16;

/// What one owner sends to the others for sums of squares over whole tensors: one number for each block that
/// it has, and the squares of each element where it has only a part of a block.
///
/// Owners whose ranges begin at multiples of 4,096 send least.
pub fn squares<T: Real>(tensors: &[Range<usize>], range: Range<usize>, values: &[T]) -> Vec<f64> {
    let mut sent = Vec::new();
    for piece in pieces(tensors, &range) {
        piece.put(&values[piece.here.clone()], &mut sent);
    }
    sent
}

/// The sum of squares of each tensor, from what all owners sent; owners come in the order of their ranges,
/// which leave nothing out.
pub fn combine(
    tensors: &[Range<usize>],
    owners: &[(Range<usize>, Vec<f64>)],
) -> Result<Vec<f64>, NativeError> {
    let wrong = |reason: &str| {
        Err(NativeError::Input(format!(
            "sums of squares do not fit together: {reason}"
        )))
    };
    let joined = owners.windows(2).all(|pair| pair[0].0.end == pair[1].0.start);
    let begin = owners.first().map_or(0, |(range, _)| range.start);
    let end = owners.last().map_or(0, |(range, _)| range.end);
    if !joined
        || tensors
            .iter()
            .any(|place| !place.is_empty() && (place.start < begin || place.end > end))
    {
        return wrong("give those of all owners, in the order of their ranges");
    }
    let mut sums = vec![0.0; tensors.len()];
    let mut shared = Vec::with_capacity(BLOCK);
    for (range, sent) in owners {
        let mut sent = sent.as_slice();
        for piece in pieces(tensors, range) {
            let count = if piece.is_whole() { 1 } else { piece.here.len() };
            let Some((numbers, rest)) = sent.split_at_checked(count) else {
                return wrong("an owner sent too few");
            };
            sent = rest;
            shared.extend_from_slice(numbers);
            if piece.is_whole() || shared.len() == piece.whole.len() {
                sums[piece.tensor] += add_up(&shared, |square| square);
                shared.clear();
            }
        }
        if !sent.is_empty() {
            return wrong("an owner sent too many");
        }
    }
    Ok(sums)
}

/// The norm over all tensors, from the sum of squares of each.
pub fn norm(sums: &[f64]) -> f64 {
    sums.iter().sum::<f64>().sqrt()
}

/// What an owner has of a block, as far as that is in one tensor.
pub(super) struct Piece {
    pub(super) tensor: usize,
    /// The block, as far as it is in the tensor.
    whole: Range<usize>,
    /// The part of it that the owner has.
    pub(super) here: Range<usize>,
}

impl Piece {
    fn is_whole(&self) -> bool {
        self.here == self.whole
    }

    /// Adds what the owner has to send for these values of the piece.
    pub(super) fn put<T: Real>(&self, values: &[T], sent: &mut Vec<f64>) {
        if self.is_whole() {
            sent.push(wide_loop(
                #[inline(always)]
                || add_up(values, square),
            ));
        } else {
            sent.extend(values.iter().map(|value| square(*value)));
        }
    }
}

#[inline(always)]
fn square<T: Real>(value: T) -> f64 {
    value.wide() * value.wide()
}

/// The pieces of a range, in order.
pub(super) fn pieces(tensors: &[Range<usize>], range: &Range<usize>) -> impl Iterator<Item = Piece> {
    tensors.iter().enumerate().flat_map(move |(tensor, place)| {
        let inside = common(place, range);
        let blocks = inside.start / BLOCK..inside.end.div_ceil(BLOCK);
        let all = blocks.map(move |block| {
            let whole = common(place, &(block * BLOCK..(block + 1) * BLOCK));
            Piece {
                tensor,
                here: common(&whole, range),
                whole,
            }
        });
        all.filter(|piece| !piece.here.is_empty())
    })
}

/// What two ranges have in common.
pub(super) fn common(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    let start = one.start.max(other.start);
    start..one.end.min(other.end).max(start)
}

/// Always in the same order, however long the processor's vectors are.
#[inline(always)]
fn add_up<V: Copy>(values: &[V], number: impl Fn(V) -> f64) -> f64 {
    let mut lanes = [0.0; LANES];
    let mut rows = values.chunks_exact(LANES);
    for row in &mut rows {
        for (lane, value) in lanes.iter_mut().zip(row) {
            *lane += number(*value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rows.remainder()) {
        *lane += number(*value);
    }
    lanes.iter().sum()
}
