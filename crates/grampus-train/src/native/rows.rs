//! Rows as a native model takes them.

use grampus_collective::Element;
use grampus_data::batch::Kind;
use grampus_native::{Real, Rows, Shape};

/// Numbers of some rows, one row behind the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Array<T> {
    /// The numbers.
    pub values: Vec<T>,
    /// The shape of one row.
    pub shape: Shape,
}

impl<T> Array<T> {
    /// As the engine sees them.
    pub fn rows(&self) -> Rows<'_, T> {
        Rows {
            values: &self.values,
            shape: &self.shape,
        }
    }
}

/// What one lane has of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LaneBatch<T> {
    /// What goes into the model.
    pub inputs: Vec<Array<T>>,
    /// What should come out, where that is known.
    pub target: Option<Array<T>>,
    /// The numbers of the rows among all.
    pub rows: Vec<u64>,
}

impl<T> LaneBatch<T> {
    /// From arrays, of which the first so many go into the model; another is what should come out.
    pub(super) fn of(mut arrays: Vec<Array<T>>, inputs: usize, rows: Vec<u64>) -> Self {
        let target = arrays.drain(inputs.min(arrays.len())..).next();
        Self {
            inputs: arrays,
            target,
            rows,
        }
    }
}

/// Writes numbers of some kind behind others, as those that the model computes with.
pub(super) fn append<T: Real + Element>(to: &mut Vec<T>, bytes: &[u8], kind: Kind) {
    fn each<T: Real, const SIZE: usize>(to: &mut Vec<T>, bytes: &[u8], number: impl Fn([u8; SIZE]) -> f64) {
        to.extend(bytes.as_chunks().0.iter().map(|raw| T::of(number(*raw))));
    }
    let same = match kind {
        Kind::F32 => size_of::<T>() == 4,
        Kind::F64 => size_of::<T>() == 8,
        _ => false,
    };
    if same {
        let (start, count) = (to.len(), bytes.len() / size_of::<T>());
        to.reserve(count);
        // SAFETY: there is room for so many numbers, and these bytes are such numbers.
        unsafe {
            let room = to.as_mut_ptr().add(start).cast::<u8>();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), room, count * size_of::<T>());
            to.set_len(start + count);
        }
        return;
    }
    match kind {
        Kind::F32 => each(to, bytes, |raw| f64::from(f32::from_ne_bytes(raw))),
        Kind::F64 => each(to, bytes, f64::from_ne_bytes),
        Kind::I8 => each(to, bytes, |raw| f64::from(i8::from_ne_bytes(raw))),
        Kind::I16 => each(to, bytes, |raw| f64::from(i16::from_ne_bytes(raw))),
        Kind::I32 => each(to, bytes, |raw| f64::from(i32::from_ne_bytes(raw))),
        Kind::I64 => each(to, bytes, |raw| i64::from_ne_bytes(raw) as f64),
        Kind::U8 | Kind::Bool => each(to, bytes, |raw: [u8; 1]| f64::from(raw[0])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_kinds_are_taken() {
        let mut all: Vec<f32> = Vec::new();
        append(&mut all, &1.5_f32.to_ne_bytes(), Kind::F32);
        append(&mut all, &2.5_f64.to_ne_bytes(), Kind::F64);
        append(&mut all, &(-3_i8).to_ne_bytes(), Kind::I8);
        append(&mut all, &(-4_i16).to_ne_bytes(), Kind::I16);
        append(&mut all, &(-5_i32).to_ne_bytes(), Kind::I32);
        append(&mut all, &(-6_i64).to_ne_bytes(), Kind::I64);
        append(&mut all, &[7, 8], Kind::U8);
        append(&mut all, &[1], Kind::Bool);
        assert_eq!(all, [1.5, 2.5, -3.0, -4.0, -5.0, -6.0, 7.0, 8.0, 1.0]);
    }

    #[test]
    fn what_comes_after_the_inputs_is_the_target() {
        let array = |value: f32| Array {
            values: vec![value],
            shape: Shape::default(),
        };
        let batch = LaneBatch::of(vec![array(1.0), array(2.0)], 1, vec![0]);
        assert_eq!(batch.inputs, [array(1.0)]);
        assert_eq!(batch.target, Some(array(2.0)));
        assert_eq!(LaneBatch::of(vec![array(1.0)], 1, vec![0]).target, None);
    }
}
