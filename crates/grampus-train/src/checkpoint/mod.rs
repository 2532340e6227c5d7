//! Checkpoints: safetensors and a manifest that is written last.
//!
//! A checkpoint is a folder of safetensors files and a `manifest.json`, which names them with length and checksum and holds
//! whatever JSON the caller adds. A [`Store`] holds several, such as `step-00000120`. Reading runs no code, and what is
//! damaged or unfinished is an error that names the place, never a wrong number.

mod bucket;
mod encoding;
mod error;
mod folder;
mod keep;
mod manifest;
mod place;
mod store;
mod tensor;
#[cfg(test)]
mod tests;
mod writer;

pub use error::CheckpointError;
pub use keep::{Held, Keep, Surplus, surplus};
pub use manifest::{MANIFEST, Manifest, ManifestError, Sealed};
pub use store::{Checkpoint, Entry, Latest, Skipped, Store, read, read_tensors, write_tensors};
pub use tensor::{DType, Tensor, dtype};
pub use writer::{Order, Writer, Written};
