//! Batches, made ready by threads before they are asked for.

mod blocks;
mod crew;
mod depth;
mod gather;
mod sequence;

pub use blocks::{Blocks, Held, Stream};
pub use crew::Loader;
pub use depth::Depth;
pub use gather::{Batch, Part};
pub use sequence::Sequence;
