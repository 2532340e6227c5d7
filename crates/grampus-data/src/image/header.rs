//! What the first bytes of a file claim, read before anything is allocated.

use std::fmt;

use super::{ImageError, Limits};

/// A format of encoded images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Baseline or progressive JPEG.
    Jpeg,
    /// PNG of any colour type and depth.
    Png,
    /// WebP, lossy or lossless; the first frame of an animation.
    Webp,
}

impl fmt::Display for Format {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::Webp => "WebP",
        })
    }
}

impl Format {
    /// The format that the first bytes name.
    pub(super) fn of(bytes: &[u8]) -> Result<Self, ImageError> {
        match bytes {
            [0xff, 0xd8, 0xff, ..] => Ok(Self::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Ok(Self::Png),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Ok(Self::Webp),
            _ => Err(ImageError::UnknownFormat {
                found: beginning(bytes),
            }),
        }
    }

    /// The error for a file of this format.
    pub(super) fn damaged(self, reason: impl fmt::Display) -> ImageError {
        ImageError::Damaged {
            format: self,
            reason: reason.to_string(),
        }
    }
}

fn beginning(bytes: &[u8]) -> String {
    let first: Vec<String> = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    match first.is_empty() {
        true => "the image has no bytes".to_owned(),
        false => format!(
            "the image begins with {}, which is no known format",
            first.join(" ")
        ),
    }
}

/// Refuses a size that is over the limits, or empty.
pub(super) fn check_size(format: Format, width: u32, height: u32, limits: Limits) -> Result<(), ImageError> {
    if width == 0 || height == 0 {
        return Err(format.damaged(format_args!("it is {width} x {height} pixels")));
    }
    limits.check(width, height)
}

/// Whether the image data of a JPEG has an end. Its decoder makes up the last pixels of a file that was cut short; the
/// mark of the end cannot stand inside the data, but may stand before it, in a thumbnail.
pub(super) fn jpeg_ends(bytes: &[u8]) -> bool {
    let mut rest = bytes.get(2..).unwrap_or_default();
    loop {
        match *rest {
            [0xff, 0xff, ..] => rest = &rest[1..],
            [0xff, kind, high, low, ..] => {
                let length = usize::from(u16::from_be_bytes([high, low]));
                rest = rest.get(2 + length..).unwrap_or_default();
                if kind == START_OF_SCAN {
                    return memchr::memmem::rfind(rest, &END_OF_IMAGE).is_some();
                }
            }
            // Not where a segment should be: what it is, its decoder says.
            [_, ..] => rest = &rest[1..],
            [] => return false,
        }
    }
}

const START_OF_SCAN: u8 = 0xda;
const END_OF_IMAGE: [u8; 2] = [0xff, 0xd9];

/// Width and height of a PNG, which stand at a fixed place.
pub(super) fn png_size(bytes: &[u8]) -> Result<(u32, u32), ImageError> {
    match bytes.get(8..24) {
        Some(&[_, _, _, _, b'I', b'H', b'D', b'R', a, b, c, d, e, f, g, h]) => {
            Ok((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])))
        }
        _ => Err(Format::Png.damaged("it ends within its header")),
    }
}

/// Checks every size that stands in a WebP: that of the canvas, and those of the pictures on it. Its decoder allocates
/// what a picture claims before it compares that with the canvas.
pub(super) fn check_webp(bytes: &[u8], limits: Limits) -> Result<(), ImageError> {
    check_chunks(bytes.get(12..).unwrap_or_default(), limits)
}

fn check_chunks(mut bytes: &[u8], limits: Limits) -> Result<(), ImageError> {
    while let Some((head, rest)) = bytes.split_first_chunk::<8>() {
        let [a, b, c, d, size @ ..] = *head;
        let size = u32::from_le_bytes(size) as usize;
        let body = &rest[..size.min(rest.len())];
        let claimed = match (&[a, b, c, d], body) {
            (b"VP8X", &[_, _, _, _, a, b, c, d, e, f, ..]) => {
                Some((u24(a, b, c).saturating_add(1), u24(d, e, f).saturating_add(1)))
            }
            (b"VP8 ", &[_, _, _, _, _, _, a, b, c, d, ..]) => {
                Some((u24(a, b & 0x3f, 0), u24(c, d & 0x3f, 0)))
            }
            (b"VP8L", &[_, a, b, c, d, ..]) => {
                let packed = u32::from_le_bytes([a, b, c, d]);
                Some(((packed & 0x3fff) + 1, ((packed >> 14) & 0x3fff) + 1))
            }
            (b"ANMF", body) => {
                check_chunks(body.get(16..).unwrap_or_default(), limits)?;
                None
            }
            _ => None,
        };
        if let Some((width, height)) = claimed {
            check_size(Format::Webp, width, height, limits)?;
        }
        // Chunks begin at even places.
        bytes = rest.get(size.saturating_add(size & 1)..).unwrap_or_default();
    }
    Ok(())
}

fn u24(low: u8, middle: u8, high: u8) -> u32 {
    u32::from_le_bytes([low, middle, high, 0])
}
