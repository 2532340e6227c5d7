//! Rust types that can be reduced.

use half::{bf16, f16};

use crate::numerics::DType;

/// A type whose values travel between members as they lie in memory.
///
/// # Safety
/// The type has the size and representation of [`Element::DTYPE`], without padding.
pub unsafe trait Element: Copy + Send + 'static {
    /// What it is.
    const DTYPE: DType;
}

/// The bytes of some elements, as they lie in memory.
///
/// ```
/// assert_eq!(grampus_collective::bytes_of(&[1_i32, -1]).len(), 8);
/// ```
pub fn bytes_of<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: an element is as large as its type says and has no padding, so all its bytes may be read.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {
        // SAFETY: each pair has the same size and representation.
        $(unsafe impl Element for $rust { const DTYPE: DType = DType::$dtype; })*
    };
}

elements! {
    f32 => F32, f64 => F64, f16 => F16, bf16 => Bf16, i8 => I8, u8 => U8, i32 => I32, i64 => I64, bool => Bool,
}
