//! Products of matrices.

use gemm_common::Parallelism;

use crate::real::Real;

/// A matrix in memory that somebody else owns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a, T> {
    data: &'a [T],
    rows: usize,
    columns: usize,
    /// How far one row, and one column, lies behind the other.
    steps: (usize, usize),
}

impl<'a, T> Matrix<'a, T> {
    /// Rows one behind the other.
    pub(crate) fn new(data: &'a [T], rows: usize, columns: usize) -> Self {
        Self::strided(data, rows, columns, columns)
    }

    /// Rows that begin `step` apart.
    pub(crate) fn strided(data: &'a [T], rows: usize, columns: usize, step: usize) -> Self {
        let needed = if rows == 0 || columns == 0 {
            0
        } else {
            (rows - 1) * step + columns
        };
        assert!(
            data.len() >= needed,
            "a matrix of {rows} x {columns} in {} numbers",
            data.len()
        );
        Self {
            data,
            rows,
            columns,
            steps: (step, 1),
        }
    }

    /// Rows become columns.
    pub(crate) fn turned(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            steps: (self.steps.1, self.steps.0),
            ..self
        }
    }
}

/// `out = a * b`, or `out += a * b`; rows of `out` begin `step` apart.
pub(crate) fn multiply<T: Real>(
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    adds: bool,
    out: &mut [T],
    step: usize,
    threads: usize,
) {
    assert_eq!(a.columns, b.rows, "the inner sides of a product");
    if a.rows == 0 || b.columns == 0 {
        return;
    }
    assert!(
        step >= b.columns && out.len() >= (a.rows - 1) * step + b.columns,
        "the result of a product"
    );
    let parallelism = match threads {
        0..=1 => Parallelism::None,
        _ => Parallelism::Rayon(threads),
    };
    // The kernels write columns, and these are rows: so it is the product of both turned.
    let (out_steps, a, b) = match step {
        1 => ((1, 1), a, b),
        step => ((step, 1), b.turned(), a.turned()),
    };
    // SAFETY: all three matrices lie inside their slices, which was checked above and when they were made.
    unsafe {
        T::product()(
            a.rows,
            b.columns,
            a.columns,
            out.as_mut_ptr(),
            out_steps.0 as isize,
            out_steps.1 as isize,
            adds,
            a.data.as_ptr(),
            a.steps.1 as isize,
            a.steps.0 as isize,
            b.data.as_ptr(),
            b.steps.1 as isize,
            b.steps.0 as isize,
            T::one(),
            T::one(),
            false,
            false,
            false,
            parallelism,
        );
    }
}
