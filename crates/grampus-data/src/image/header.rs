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
    let name = match bytes {
        [] => return "the image has no bytes".to_owned(),
        [b'G', b'I', b'F', b'8', ..] => "GIF",
        [b'B', b'M', ..] => "BMP",
        [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => "TIFF",
        [_, _, _, _, b'f', b't', b'y', b'p', ..] => "HEIC or AVIF",
        _ => {
            let first: Vec<String> = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            return format!(
                "the image begins with {}, which is no known format",
                first.join(" ")
            );
        }
    };
    format!("the image is a {name} file, which Grampus does not read")
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
    jpeg_segments(bytes)
        .find(|segment| segment.kind == START_OF_SCAN)
        .is_some_and(|scan| memchr::memmem::rfind(scan.behind, &END_OF_IMAGE).is_some())
}

/// A segment of an application: EXIF, XMP.
pub(super) const APP1: u8 = 0xe1;
const START_OF_SCAN: u8 = 0xda;
const END_OF_IMAGE: [u8; 2] = [0xff, 0xd9];

/// A segment of a JPEG.
pub(super) struct Segment<'a> {
    pub(super) kind: u8,
    pub(super) body: &'a [u8],
    /// All that follows it.
    behind: &'a [u8],
}

/// The segments of a JPEG up to its image data, whose segment is the last.
pub(super) fn jpeg_segments(bytes: &[u8]) -> impl Iterator<Item = Segment<'_>> {
    let mut rest = bytes.get(2..).unwrap_or_default();
    std::iter::from_fn(move || {
        loop {
            match *rest {
                [0xff, 0xff, ..] => rest = &rest[1..],
                [0xff, kind, high, low, ..] => {
                    let end = 2 + usize::from(u16::from_be_bytes([high, low]));
                    let (body, behind) = (
                        rest.get(4..end).unwrap_or_default(),
                        rest.get(end..).unwrap_or_default(),
                    );
                    rest = if kind == START_OF_SCAN { &[] } else { behind };
                    return Some(Segment { kind, body, behind });
                }
                // Not where a segment should be: what it is, its decoder says.
                [_, ..] => rest = &rest[1..],
                [] => return None,
            }
        }
    })
}

/// Whether a PNG holds gray of 16 bits without alpha.
pub(super) fn is_gray_16(bytes: &[u8]) -> bool {
    bytes.get(24..26) == Some(&[16, 0])
}

/// Width and height of a PNG, which stand at a fixed place.
pub(super) fn png_size(bytes: &[u8]) -> Result<(u32, u32), ImageError> {
    match bytes.get(8..24) {
        Some(&[_, _, _, _, b'I', b'H', b'D', b'R', a, b, c, d, e, f, g, h]) => {
            Ok((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])))
        }
        _ => Err(Format::Png.damaged("it ends within its header")),
    }
}

/// The chunks of a PNG: their names and what they hold, up to the first that is cut short.
pub(super) fn png_chunks(bytes: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    let mut rest = bytes.get(8..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (&[a, b, c, d, kind @ ..], behind) = rest.split_first_chunk::<8>()?;
        let size = u32::from_be_bytes([a, b, c, d]) as usize;
        let body = behind.get(..size)?;
        // Behind it stands its checksum.
        rest = behind.get(size + 4..).unwrap_or_default();
        Some((kind, body))
    })
}

/// Checks every size that stands in a WebP: that of the canvas, and those of the pictures on it. Its decoder allocates
/// what a picture claims before it compares that with the canvas.
pub(super) fn check_webp(bytes: &[u8], limits: Limits) -> Result<(), ImageError> {
    for (kind, body) in webp_chunks(bytes.get(12..).unwrap_or_default()) {
        check_chunk(kind, body, limits)?;
        let (b"ANMF", &[_, _, _, _, _, _, a, b, c, d, e, f, ..]) = (&kind, body) else {
            continue;
        };
        let frame = (u24(a, b, c).saturating_add(1), u24(d, e, f).saturating_add(1));
        for (kind, body) in webp_chunks(body.get(16..).unwrap_or_default()) {
            // The format knows no frames within frames, and following them would have no bound but the stack.
            if kind == *b"ANMF" {
                return Err(Format::Webp.damaged("it has an animation frame (ANMF) within another"));
            }
            // The decoder takes the size of the frame for that of the picture in it.
            if check_chunk(kind, body, limits)?.is_some_and(|picture| picture != frame) {
                return Err(Format::Webp.damaged("a picture in it has another size than its frame"));
            }
        }
    }
    Ok(())
}

/// The size that a chunk claims, if it claims one that is within the limits.
fn check_chunk(kind: [u8; 4], body: &[u8], limits: Limits) -> Result<Option<(u32, u32)>, ImageError> {
    let (width, height) = match (&kind, body) {
        (b"VP8X", &[_, _, _, _, a, b, c, d, e, f, ..]) => {
            (u24(a, b, c).saturating_add(1), u24(d, e, f).saturating_add(1))
        }
        (b"VP8 ", &[_, _, _, _, _, _, a, b, c, d, ..]) => (u24(a, b & 0x3f, 0), u24(c, d & 0x3f, 0)),
        (b"VP8L", &[_, a, b, c, d, ..]) => {
            let packed = u32::from_le_bytes([a, b, c, d]);
            ((packed & 0x3fff) + 1, ((packed >> 14) & 0x3fff) + 1)
        }
        _ => return Ok(None),
    };
    check_size(Format::Webp, width, height, limits)?;
    Ok(Some((width, height)))
}

/// The chunks of a WebP or of a frame in it: their names and what they hold, as far as it is there.
pub(super) fn webp_chunks(mut bytes: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = bytes.split_first_chunk::<8>()?;
        let [a, b, c, d, size @ ..] = *head;
        let size = u32::from_le_bytes(size) as usize;
        // Chunks begin at even places.
        bytes = rest.get(size.saturating_add(size & 1)..).unwrap_or_default();
        Some(([a, b, c, d], &rest[..size.min(rest.len())]))
    })
}

fn u24(low: u8, middle: u8, high: u8) -> u32 {
    u32::from_le_bytes([low, middle, high, 0])
}
