//! What can be wrong with an image, or with what is asked of it.

use super::{Format, Limits};

/// Why an image did not become numbers.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Bytes that are no image, or one in another format.
    #[error("{found}: give JPEG, PNG or WebP")]
    UnknownFormat {
        /// What the bytes begin with.
        found: String,
    },
    /// An image whose header claims more pixels than are allowed; nothing was allocated for it.
    #[error(
        "the image is {width} x {height} pixels, over the limit of {} in all and {} a side: \
         make it smaller, or raise the limit",
        limits.max_pixels,
        limits.max_side
    )]
    TooLarge {
        /// Its width.
        width: u32,
        /// Its height.
        height: u32,
        /// What is allowed.
        limits: Limits,
    },
    /// A file that is cut short, or that breaks the rules of its format.
    #[error("the {format} file is damaged: {reason}: write it anew, or skip it")]
    Damaged {
        /// The format that the first bytes name.
        format: Format,
        /// What is wrong.
        reason: String,
    },
    /// An image that has no room for a crop.
    #[error(
        "the image is {width} x {height} pixels with its padding, too small for a crop of {crop_width} x {crop_height}: \
         resize it first, or give more padding"
    )]
    TooSmall {
        /// Width of the image, with padding.
        width: u32,
        /// Height of the image, with padding.
        height: u32,
        /// Width of the crop.
        crop_width: u32,
        /// Height of the crop.
        crop_height: u32,
    },
    /// An image that ends in another size than the place for it.
    #[error(
        "the image ends as {width} x {height} pixels, {needed} bytes, and its place in the batch has {given}: \
         all must have one size, so add a resize or a crop"
    )]
    OtherSize {
        /// Width after all steps.
        width: u32,
        /// Height after all steps.
        height: u32,
        /// Bytes that it takes.
        needed: usize,
        /// Bytes that there are.
        given: usize,
    },
    /// Steps that end in a size which only the image tells.
    #[error("the size of the result depends on the image: add a resize to width and height, or a crop")]
    NoSize,
    /// A step or an output that cannot be.
    #[error("{place}: {reason}")]
    WrongPipeline {
        /// Which step, or the output.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A thread that could not be started.
    #[error("cannot start a thread to decode images: {0}: ask for fewer")]
    NoThread(std::io::Error),
}
