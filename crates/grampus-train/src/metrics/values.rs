//! A view of numbers in plain memory.

use grampus_collective::{DType, Element, bytes_of};
use half::{bf16, f16};

use super::error::{Described, MetricError};

/// Rows are decoded in blocks of about so many elements: they stay in the processor's nearest cache.
const BLOCK: usize = 1024;

/// Contiguous numbers of one type, in row-major order. They need not be aligned, and are only read.
///
/// ```
/// use grampus_train::metrics::Values;
///
/// let scores = Values::of(&[2, 3], &[0.1f32, 0.7, 0.2, 0.5, 0.3, 0.2])?;
/// assert_eq!(scores.shape(), [2, 3]);
/// assert!(Values::of(&[2, 3], &[0.1f32]).is_err());
/// # Ok::<(), grampus_train::metrics::MetricError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    dtype: DType,
    shape: &'a [usize],
    bytes: &'a [u8],
}

impl<'a> Values<'a> {
    /// The elements of a slice.
    pub fn of<T: Element>(shape: &'a [usize], elements: &'a [T]) -> Result<Self, MetricError> {
        Self::from_bytes(T::DTYPE, shape, bytes_of(elements))
    }

    /// Elements as they lie in memory.
    pub fn from_bytes(dtype: DType, shape: &'a [usize], bytes: &'a [u8]) -> Result<Self, MetricError> {
        let values = Self { dtype, shape, bytes };
        let expected = shape
            .iter()
            .try_fold(dtype.size(), |size, length| size.checked_mul(*length));
        if expected != Some(bytes.len()) {
            return Err(MetricError::Length {
                described: values.described(),
                bytes: bytes.len(),
            });
        }
        Ok(values)
    }

    /// Type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Lengths of the axes.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    pub(super) fn described(&self) -> Described {
        Described {
            dtype: self.dtype,
            shape: self.shape.to_vec(),
        }
    }

    /// One element.
    pub(super) fn number(&self, at: usize) -> f64 {
        let mut one = [0.0];
        self.decode(at, &mut one);
        one[0]
    }

    /// One row of so many elements.
    pub(super) fn row(&self, at: usize, width: usize) -> Vec<f64> {
        let mut row = vec![0.0; width];
        self.decode(at * width, &mut row);
        row
    }

    /// Whether two arrays of integers have the same number here: as floats, large ones could seem to.
    pub(super) fn same_integer(&self, other: &Self, at: usize) -> bool {
        match (self.dtype, other.dtype) {
            (DType::I64, DType::I64) => self.element::<8>(at) == other.element::<8>(at),
            _ => self.number(at) == other.number(at),
        }
    }

    /// The first element for which this holds.
    pub(super) fn find(&self, wanted: impl Fn(f64) -> bool) -> Option<(usize, f64)> {
        let mut block = [0.0; BLOCK];
        let count = self.count();
        (0..count).step_by(BLOCK).find_map(|start| {
            let block = &mut block[..BLOCK.min(count - start)];
            self.decode(start, block);
            let at = block.iter().position(|value| wanted(*value))?;
            Some((start + at, block[at]))
        })
    }

    fn element<const SIZE: usize>(&self, at: usize) -> Option<&[u8; SIZE]> {
        self.bytes.as_chunks().0.get(at)
    }

    /// Elements from `start` on, as many as fit.
    fn decode(&self, start: usize, into: &mut [f64]) {
        let bytes = &self.bytes[start * self.dtype.size()..];
        match self.dtype {
            DType::F32 => read(bytes, into, |raw| f64::from(f32::from_ne_bytes(raw))),
            DType::F64 => read(bytes, into, f64::from_ne_bytes),
            DType::F16 => read(bytes, into, |raw| f16::from_ne_bytes(raw).to_f64()),
            DType::Bf16 => read(bytes, into, |raw| bf16::from_ne_bytes(raw).to_f64()),
            DType::I8 => read(bytes, into, |raw| f64::from(i8::from_ne_bytes(raw))),
            DType::U8 => read(bytes, into, |raw| f64::from(u8::from_ne_bytes(raw))),
            DType::I32 => read(bytes, into, |raw| f64::from(i32::from_ne_bytes(raw))),
            DType::I64 => read(bytes, into, |raw| i64::from_ne_bytes(raw) as f64),
            DType::Bool => read(bytes, into, |raw: [u8; 1]| f64::from(u8::from(raw[0] != 0))),
        }
    }
}

fn read<const SIZE: usize>(bytes: &[u8], into: &mut [f64], number: impl Fn([u8; SIZE]) -> f64) {
    for (value, raw) in into.iter_mut().zip(bytes.as_chunks().0) {
        *value = number(*raw);
    }
}

/// Goes through rows of `widths.0` predictions beside rows of `widths.1` targets, as many as both have.
pub(super) fn for_each_row(
    predictions: &Values<'_>,
    targets: &Values<'_>,
    widths: (usize, usize),
    mut each: impl FnMut(&[f64], &[f64]),
) {
    let rows = (predictions.count() / widths.0).min(targets.count() / widths.1);
    let together = (BLOCK / widths.0.max(widths.1)).clamp(1, rows.max(1));
    let mut left = vec![0.0; together * widths.0];
    let mut right = vec![0.0; together * widths.1];
    for start in (0..rows).step_by(together) {
        predictions.decode(start * widths.0, &mut left);
        targets.decode(start * widths.1, &mut right);
        let pairs = left.chunks_exact(widths.0).zip(right.chunks_exact(widths.1));
        for (row, of) in pairs.take(rows - start) {
            each(row, of);
        }
    }
}
