//! How a camera was held: the orientation that EXIF or XMP names.

use image::metadata::Orientation;

use super::Picture;
use super::header::Format;
use super::notes::Notes;

/// What must be done with the pixels of a file so that the picture stands upright; nothing where its notes say nothing.
pub(super) fn find(format: Format, bytes: &[u8]) -> Orientation {
    let number = Notes::of(format, bytes).orientation();
    number
        .and_then(|number| u8::try_from(number).ok())
        .and_then(Orientation::from_exif)
        .unwrap_or(Orientation::NoTransforms)
}

/// Width and height of the upright picture.
pub(super) fn upright_size(orientation: Orientation, (width, height): (u32, u32)) -> (u32, u32) {
    match orientation {
        Orientation::Rotate90
        | Orientation::Rotate270
        | Orientation::Rotate90FlipH
        | Orientation::Rotate270FlipH => (height, width),
        _ => (width, height),
    }
}

/// Turns a picture upright; `spare` is memory to do it in.
pub(super) fn turn(orientation: Orientation, picture: &mut Picture, spare: &mut Vec<u8>) {
    if orientation == Orientation::NoTransforms {
        return;
    }
    match picture.channels {
        1 => turn_pixels::<1>(orientation, picture, spare),
        _ => turn_pixels::<3>(orientation, picture, spare),
    }
    std::mem::swap(&mut picture.pixels, spare);
    (picture.width, picture.height) = upright_size(orientation, (picture.width, picture.height));
}

fn turn_pixels<const CHANNELS: usize>(orientation: Orientation, from: &Picture, into: &mut Vec<u8>) {
    let (width, height) = (i64::from(from.width), i64::from(from.height));
    let last = width * height - 1;
    // Where the first pixel comes from, and how far away its neighbours to the right and below come from.
    let (first, right, below) = match orientation {
        Orientation::NoTransforms => (0, 1, width),
        Orientation::FlipHorizontal => (width - 1, -1, width),
        Orientation::Rotate180 => (last, -1, -width),
        Orientation::FlipVertical => (last + 1 - width, 1, -width),
        Orientation::Rotate90FlipH => (0, width, 1),
        Orientation::Rotate90 => (last + 1 - width, -width, 1),
        Orientation::Rotate270FlipH => (last, -width, -1),
        Orientation::Rotate270 => (width - 1, width, -1),
    };
    let pixels = from.pixels.as_chunks::<CHANNELS>().0;
    let (columns, rows) = upright_size(orientation, (from.width, from.height));
    into.clear();
    into.reserve(from.pixels.len());
    for row in 0..i64::from(rows) {
        for column in 0..i64::from(columns) {
            into.extend_from_slice(&pixels[(first + row * below + column * right) as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a b c` over `d e f`, turned so that what EXIF calls the top and the left is there.
    #[test]
    fn all_eight_are_turned() {
        let upright = [
            "abcdef", "cbafed", "fedcba", "defabc", "adbecf", "daebfc", "fcebda", "cfbead",
        ];
        for (number, wanted) in (1..).zip(upright) {
            let mut picture = Picture {
                width: 3,
                height: 2,
                channels: 1,
                pixels: b"abcdef".to_vec(),
            };
            let orientation = Orientation::from_exif(number).unwrap();
            turn(orientation, &mut picture, &mut Vec::new());
            assert_eq!(picture.pixels, wanted.as_bytes(), "orientation {number}");
            let size = if number < 5 { (3, 2) } else { (2, 3) };
            assert_eq!((picture.width, picture.height), size, "orientation {number}");
        }
    }

    #[test]
    fn notes_that_are_cut_short_or_hostile_say_nothing() {
        let tiff = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0";
        let png = |exif: &[u8]| {
            let size = (exif.len() as u32).to_be_bytes();
            [b"\x89PNG\r\n\x1a\n", &size[..], b"eXIf", exif, b"CRC?"].concat()
        };
        assert_eq!(find(Format::Png, &png(tiff)), Orientation::Rotate90);
        for length in 0..tiff.len() {
            assert_eq!(
                find(Format::Png, &png(&tiff[..length])),
                Orientation::NoTransforms
            );
        }
        let far = b"MM\0*\xff\xff\xff\xff";
        assert_eq!(find(Format::Png, &png(far)), Orientation::NoTransforms);
        assert_eq!(find(Format::Png, &png(tiff)[..30]), Orientation::NoTransforms);
    }
}
