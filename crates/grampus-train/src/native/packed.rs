//! Rows in memory that all workers of a machine share.

use std::fs::File;

use grampus_collective::Element;
use grampus_data::batch::Kind;
use grampus_data::loader::Written;
use grampus_native::{Real, Shape};
use memmap2::Mmap;
use serde::{Deserialize, Serialize};

use super::error::RunError;
use super::rows::{Array, LaneBatch, append};

/// One array of all rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedArray {
    /// What its numbers are.
    pub kind: Kind,
    /// Rows, then the numbers of a row along each axis.
    pub shape: Vec<usize>,
    /// Where it begins.
    pub offset: u64,
}

impl From<Written> for PackedArray {
    fn from(written: Written) -> Self {
        Self {
            kind: written.kind,
            shape: written.shape,
            offset: written.offset,
        }
    }
}

impl PackedArray {
    /// Bytes of one row.
    fn width(&self) -> usize {
        self.shape.iter().skip(1).product::<usize>() * self.kind.size()
    }

    /// The shape of one row.
    pub fn row(&self) -> Shape {
        Shape::from(self.shape.get(1..).unwrap_or_default())
    }
}

pub(super) struct Packed {
    map: Mmap,
    arrays: Vec<PackedArray>,
    rows: u64,
}

impl Packed {
    pub fn open(path: &str, arrays: Vec<PackedArray>) -> Result<Self, RunError> {
        let failed = |why: String| RunError::Asked(format!("the rows at {path} cannot be read: {why}"));
        let file = File::open(path).map_err(|error| failed(error.to_string()))?;
        // SAFETY: whoever made it has sealed its size, and writes nothing more.
        let map = unsafe { Mmap::map(&file) }.map_err(|error| failed(error.to_string()))?;
        let rows = arrays.first().and_then(|array| array.shape.first());
        let rows = rows.copied().unwrap_or(0) as u64;
        let ends = arrays
            .iter()
            .map(|array| array.offset + array.width() as u64 * rows);
        if ends.max().unwrap_or(0) > map.len() as u64 {
            return Err(failed("it ends too early".into()));
        }
        Ok(Self { map, arrays, rows })
    }

    pub fn total(&self) -> u64 {
        self.rows
    }

    /// The rows of these numbers.
    pub fn read<T: Real + Element>(&self, rows: Vec<u64>, inputs: usize) -> LaneBatch<T> {
        let arrays = self.arrays.iter().map(|array| {
            let width = array.width();
            let mut values = Vec::with_capacity(rows.len() * width / array.kind.size().max(1));
            for row in &rows {
                let start = array.offset as usize + *row as usize * width;
                append(&mut values, &self.map[start..start + width], array.kind);
            }
            Array {
                values,
                shape: array.row(),
            }
        });
        let arrays = arrays.collect();
        LaneBatch::of(arrays, inputs, rows)
    }
}
