//! Where rows come from: blocks, each of which is read as a whole.

use std::sync::Arc;

use crate::DataError;
use crate::batch::Packed;

/// Rows in blocks, such as the row groups of Parquet files.
pub trait Blocks: Send + Sync {
    /// How many rows each block has.
    fn sizes(&self) -> &[u64];

    /// Reads a block; called by several threads at once.
    fn read(&self, block: usize) -> Result<Arc<Packed>, DataError>;

    /// Whether blocks are at hand: reading one costs nothing, and keeping it takes no memory.
    fn held(&self) -> bool;
}

/// Blocks that are in memory.
pub struct Held {
    blocks: Vec<Arc<Packed>>,
    sizes: Vec<u64>,
}

impl Held {
    /// These blocks, in order.
    pub fn new(blocks: Vec<Packed>) -> Self {
        Self {
            sizes: blocks.iter().map(|block| block.rows as u64).collect(),
            blocks: blocks.into_iter().map(Arc::new).collect(),
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
}
