//! Encoded images to a place in a batch: decode, resize, crop, flip, normalise.
//!
//! Pure functions of the bytes and of a [`Random`](grampus_core::Random) that the caller seeds by row, so that an image
//! comes out the same whichever worker or thread makes it.
//!
//! ```
//! use grampus_core::Random;
//! use grampus_data::image::{Decoder, Limits, Pipeline};
//!
//! let pipeline: Pipeline = serde_json::from_str(
//!     r#"{"steps": [{"step": "random_crop", "width": 2, "height": 1, "padding": 1}], "output": {"kind": "f32"}}"#,
//! )?;
//! assert_eq!(pipeline.output_shape(None)?, [3, 1, 2]);
//!
//! # let mut png = Vec::new();
//! # use image::ImageEncoder;
//! # image::codecs::png::PngEncoder::new(&mut png).write_image(&[255; 4], 2, 2, image::ExtendedColorType::L8)?;
//! let mut decoder = Decoder::new(Limits::default());
//! let mut place = vec![0; pipeline.output_bytes(None)?];
//! pipeline.run(&mut decoder, &png, &mut Random::from_parts(&[0, 0, 17]), &mut place)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The orientation that EXIF or XMP names is applied, as Pillow's `ImageOps.exif_transpose` does; colour profiles are not. Gray
//! of 16 bits is cut off at 255, as Pillow's `convert` does.

mod batch;
mod colour;
mod decode;
mod error;
mod header;
mod notes;
mod orientation;
mod output;
mod pipeline;
mod resize;
mod step;
mod view;

#[cfg(test)]
mod tests;

pub use batch::{Rows, decode_batch};
pub use colour::Channels;
pub use decode::{Decoder, Limits, Picture};
pub use error::ImageError;
pub use header::Format;
pub use output::{Kind, Layout, Order, Output};
pub use pipeline::Pipeline;
pub use step::Step;
