//! Rows of numbers in memory that workers see.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};

use grampus_collective::bytes_of;
use grampus_data::batch::{Kind, Output};
use grampus_data::loader::{self, Blocks, Stream, Tables};
use grampus_data::source::find;
use grampus_data::table::Table;
use grampus_data::table::parquet::Dataset;
use grampus_train::native::{Array, PackedArray, Source};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::error::{Error, Result};

/// Memory that lives as long as this value.
pub(super) struct Pack {
    memory: File,
    pub arrays: Vec<PackedArray>,
}

impl Pack {
    pub fn files(paths: &[String], outputs: Vec<Output>) -> Result<Self> {
        Self::blocks(&Stream::new(dataset(paths)?, outputs, false))
    }

    pub fn table(table: &Table, outputs: Vec<Output>) -> Result<Self> {
        Self::blocks(&Tables::new(vec![table.clone()], outputs, false))
    }

    fn blocks(blocks: &dyn Blocks) -> Result<Self> {
        let memory = memory()?;
        let layout = loader::write_packed(blocks, memory.as_fd(), 0)?;
        let arrays = layout.outputs.into_iter().map(PackedArray::from).collect();
        Self::sealed(memory, layout.end, arrays)
    }

    pub fn arrays(arrays: &[Array<f32>]) -> Result<Self> {
        let mut memory = memory()?;
        let (mut end, mut written) = (0, Vec::with_capacity(arrays.len()));
        for array in arrays {
            let bytes = bytes_of(&array.values);
            memory.write_all(bytes).map_err(Error::cluster)?;
            let rows = array.values.len() / array.shape.size().max(1);
            written.push(PackedArray {
                kind: Kind::F32,
                shape: [&[rows], array.shape.axes()].concat(),
                offset: end,
            });
            end += bytes.len() as u64;
        }
        Self::sealed(memory, end, written)
    }

    /// Nobody may change its size from here on, so that no mapping of it can fault.
    fn sealed(memory: File, end: u64, arrays: Vec<PackedArray>) -> Result<Self> {
        // An empty file cannot be mapped.
        ftruncate(&memory, end.max(1)).map_err(Error::cluster)?;
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW).map_err(Error::cluster)?;
        Ok(Self { memory, arrays })
    }

    /// How many rows there are.
    pub fn rows(&self) -> u64 {
        let rows = self.arrays.first().and_then(|array| array.shape.first());
        rows.copied().unwrap_or(0) as u64
    }

    /// The first so many arrays, as workers of this machine open them.
    pub fn source(&self, count: usize) -> Result<Source> {
        if self.arrays.len() < count {
            return Err(Error::Asked(
                "the rows have no labels: make them with Shards::arrays".to_owned(),
            ));
        }
        Ok(Source::Packed {
            path: format!("/proc/{}/fd/{}", std::process::id(), self.memory.as_raw_fd()),
            arrays: self.arrays[..count].to_vec(),
        })
    }
}

fn memory() -> Result<File> {
    let memory = memfd_create("grampus", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    Ok(memory.map_err(Error::cluster)?.into())
}

pub(super) fn dataset(paths: &[String]) -> Result<Dataset> {
    Ok(Dataset::open(&find(paths, &["parquet", "pq"])?)?)
}
