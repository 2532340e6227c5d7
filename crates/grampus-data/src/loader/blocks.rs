//! Where rows come from: blocks, each of which is read as a whole.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;

use crate::batch::{Columns, Output, Packed, pack};
use crate::table::Table;
use crate::table::parquet::Dataset;
use crate::{DataError, Place, parallel};

/// Rows in blocks, such as the row groups of Parquet files.
pub trait Blocks: Send + Sync {
    /// How many rows each block has.
    fn sizes(&self) -> &[u64];

    /// Reads a block; called by several threads at once.
    fn read(&self, block: usize) -> Result<Arc<Packed>, DataError>;

    /// Whether blocks are at hand: reading one costs nothing, and keeping it takes no memory.
    fn held(&self) -> bool;

    /// Whether rows that cannot be used are left out, and listed, instead of being errors.
    fn skips(&self) -> bool;
}

/// Rows of blocks, some of which are elsewhere: only the rows that are wanted are read of them.
pub trait Picked: Send + Sync {
    /// How many rows each block has.
    fn sizes(&self) -> &[u64];

    /// The blocks that hold some rows, by number and in order. Of one that is elsewhere these rows come, so that each has another
    /// number there, which takes the place of its own; called by several threads at once.
    fn pick(&self, rows: &mut [(usize, u64)]) -> Result<Vec<(usize, Arc<Packed>)>, DataError>;

    /// Whether rows that cannot be used are left out, and listed, instead of being errors.
    fn skips(&self) -> bool;
}

/// Blocks that are in memory.
pub struct Held {
    blocks: Vec<Arc<Packed>>,
    sizes: Vec<u64>,
    skip: bool,
}

impl Held {
    /// Reads all blocks into memory, on all cores.
    pub fn read(from: &dyn Blocks) -> Result<Self, DataError> {
        let numbers: Vec<usize> = (0..from.sizes().len()).collect();
        let blocks = parallel::map(parallel::cores(), &numbers, |&block| from.read(block))?;
        Ok(Self::of(blocks, from.skips()))
    }

    fn of(blocks: Vec<Arc<Packed>>, skip: bool) -> Self {
        Self {
            skip,
            sizes: blocks.iter().map(|block| block.rows as u64).collect(),
            blocks,
        }
    }
}

impl Blocks for Held {
    fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    fn read(&self, block: usize) -> Result<Arc<Packed>, DataError> {
        Ok(Arc::clone(&self.blocks[block]))
    }

    fn held(&self) -> bool {
        true
    }

    fn skips(&self) -> bool {
        self.skip
    }
}

/// Tables in memory, packed each time.
pub struct Tables {
    tables: Vec<Table>,
    outputs: Vec<Output>,
    sizes: Vec<u64>,
    skip: bool,
}

impl Tables {
    /// Each table is a block; rows that cannot be used are errors, or left out.
    pub fn new(tables: Vec<Table>, outputs: Vec<Output>, skip: bool) -> Self {
        Self {
            sizes: tables.iter().map(|table| table.num_rows() as u64).collect(),
            tables,
            outputs,
            skip,
        }
    }
}

impl Blocks for Tables {
    fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    fn read(&self, block: usize) -> Result<Arc<Packed>, DataError> {
        let place = Place::file(format!("shard {block}"));
        let packed = pack(&self.tables[block].whole()?, &self.outputs, &place, self.skip)?;
        Ok(Arc::new(packed))
    }

    fn held(&self) -> bool {
        false
    }

    fn skips(&self) -> bool {
        self.skip
    }
}

/// Row groups of Parquet files, read each time.
pub struct Stream {
    dataset: Dataset,
    outputs: Vec<Output>,
    columns: Vec<String>,
    sizes: Vec<u64>,
    skip: bool,
}

impl Stream {
    /// The columns that the outputs need; rows that cannot be used are errors, or left out.
    pub fn new(dataset: Dataset, outputs: Vec<Output>, skip: bool) -> Self {
        let columns = outputs.iter().flat_map(|output| &output.columns);
        let mut columns: Vec<String> = columns.map(|column| column.name.clone()).collect();
        columns.sort_unstable();
        columns.dedup();
        Self {
            sizes: dataset.row_groups().iter().map(|group| group.rows).collect(),
            dataset,
            outputs,
            columns,
            skip,
        }
    }
}

/// A row group, whose columns are decoded one by one.
struct Group<'a> {
    dataset: &'a Dataset,
    number: usize,
}

impl Columns for Group<'_> {
    fn rows(&self) -> usize {
        self.dataset.row_groups()[self.number].rows as usize
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(self.dataset.schema())
    }

    fn column(&self, name: &str) -> Result<ArrayRef, DataError> {
        let table = self.dataset.read_group(self.number, Some(&[name.to_owned()]))?;
        Ok(Arc::clone(table.whole()?.column(0)))
    }
}

impl Blocks for Stream {
    fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    fn read(&self, block: usize) -> Result<Arc<Packed>, DataError> {
        let place = self.dataset.place(block);
        let packed = if self.dataset.is_remote(block) {
            // One request for all columns is faster than one for each.
            let table = self.dataset.read_group(block, Some(&self.columns))?;
            pack(&table.whole()?, &self.outputs, &place, self.skip)
        } else {
            let group = Group {
                dataset: &self.dataset,
                number: block,
            };
            pack(&group, &self.outputs, &place, self.skip)
        };
        packed.map(Arc::new)
    }

    fn held(&self) -> bool {
        false
    }

    fn skips(&self) -> bool {
        self.skip
    }
}

#[cfg(test)]
impl Held {
    /// These blocks, in order.
    pub(crate) fn new(blocks: Vec<Packed>, skip: bool) -> Self {
        Self::of(blocks.into_iter().map(Arc::new).collect(), skip)
    }
}
