//! Batches, made ready by threads before they are asked for.

mod blocks;
mod crew;
mod depth;
mod gather;
mod sequence;
mod written;

pub use blocks::{Blocks, Held, Picked, Stream, Tables};
pub use crew::Loader;
pub use depth::Depth;
pub use gather::{Batch, Part};
pub use sequence::Sequence;
pub use written::{Layout, Written, write_packed};
