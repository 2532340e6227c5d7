//! Shapes of what goes from layer to layer, without the axis of the rows.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Lengths of the axes of one row: `[1, 28, 28]` for a grey picture, `[]` for a single number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shape(pub Vec<usize>);

impl Shape {
    /// Numbers of one row.
    pub fn size(&self) -> usize {
        self.0.iter().product()
    }

    /// Whether both hold the same numbers in the same order: axes of length one do not count.
    ///
    /// ```
    /// use grampus_native::Shape;
    /// assert!(Shape::from([1]).is_like(&Shape::default()));
    /// assert!(!Shape::from([2, 3]).is_like(&Shape::from([3, 2])));
    /// ```
    pub fn is_like(&self, other: &Self) -> bool {
        let long = |shape: &Self| {
            shape
                .0
                .iter()
                .copied()
                .filter(|axis| *axis != 1)
                .collect::<Vec<_>>()
        };
        long(self) == long(other)
    }

    /// The lengths.
    pub fn axes(&self) -> &[usize] {
        &self.0
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(axes: [usize; N]) -> Self {
        Self(axes.to_vec())
    }
}

impl From<&[usize]> for Shape {
    fn from(axes: &[usize]) -> Self {
        Self(axes.to_vec())
    }
}

impl From<Vec<usize>> for Shape {
    fn from(axes: Vec<usize>) -> Self {
        Self(axes)
    }
}

impl fmt::Display for Shape {
    /// As a person writes it: `1 x 28 x 28`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("one number");
        }
        for (index, axis) in self.0.iter().enumerate() {
            let between = if index == 0 { "" } else { " x " };
            write!(f, "{between}{axis}")?;
        }
        Ok(())
    }
}
