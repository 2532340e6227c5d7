//! EXIF and XMP: where they stand in a file, and the orientation that they name.
//!
//! This is what Pillow's `getexif` finds, which programs expect.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::ZlibDecoder;

use super::header::{self, Format, Segment};

const EXIF: &[u8] = b"Exif\0\0";
const ADOBE: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";
/// The names of texts in a PNG. `ImageMagick` and older programs write EXIF as digits.
const PNG_EXIF: &[u8] = b"Raw profile type exif";
const PNG_XMP: &[u8] = b"XML:com.adobe.xmp";
/// What stands before the digits: an empty line, a name and a length.
const LINES_BEFORE: usize = 3;
/// A text of a PNG that is longer is not read; nor by Pillow, which refuses the picture.
const MAX_TEXT: usize = 1 << 20;

/// The notes of a file, each nothing where it has none.
#[derive(Default)]
pub(super) struct Notes<'a> {
    exif: Option<Cow<'a, [u8]>>,
    xmp: Option<Cow<'a, [u8]>>,
}

impl<'a> Notes<'a> {
    pub(super) fn of(format: Format, bytes: &'a [u8]) -> Self {
        match format {
            Format::Jpeg => Self::of_jpeg(bytes),
            Format::Png => Self::of_png(bytes),
            Format::Webp => Self::of_webp(bytes),
        }
    }

    /// The number of an orientation, as EXIF names it, else XMP; it may be one that does not exist.
    pub(super) fn orientation(&self) -> Option<u64> {
        let exif = self.exif.as_deref().and_then(of_exif);
        exif.or_else(|| self.xmp.as_deref().and_then(of_xmp))
    }

    fn of_jpeg(bytes: &'a [u8]) -> Self {
        let mut notes = Self::default();
        for Segment { kind, body, .. } in header::jpeg_segments(bytes) {
            if kind != header::APP1 {
                continue;
            }
            if let Some(more) = body.strip_prefix(EXIF) {
                // A segment holds 64 KB: what is longer goes on in the next.
                match &mut notes.exif {
                    Some(exif) => exif.to_mut().extend_from_slice(more),
                    None => notes.exif = Some(Cow::Borrowed(more)),
                }
            } else if let Some(xmp) = body.strip_prefix(ADOBE) {
                notes.xmp = Some(Cow::Borrowed(xmp));
            }
        }
        notes
    }

    fn of_png(bytes: &'a [u8]) -> Self {
        let mut notes = Self::default();
        // The last one counts. No other is unpacked: a file may hold thousands that each grow a thousandfold.
        let (mut xmp, mut digits) = (None, None);
        for (kind, body) in header::png_chunks(bytes).take_while(|(kind, _)| kind != b"IEND") {
            if kind == *b"eXIf" {
                notes.exif = Some(Cow::Borrowed(body));
            } else if let Some(text) = text_named(PNG_XMP, kind, body) {
                xmp = Some((kind, text));
            } else if let Some(text) = text_named(PNG_EXIF, kind, body) {
                digits = Some((kind, text));
            }
        }
        notes.xmp = xmp.and_then(|(kind, text)| text_of(kind, text));
        if notes.exif.is_none() {
            let digits = digits.and_then(|(kind, text)| text_of(kind, text));
            notes.exif = digits.and_then(|text| from_digits(&text)).map(Cow::Owned);
        }
        notes
    }

    fn of_webp(bytes: &'a [u8]) -> Self {
        let chunks = || header::webp_chunks(bytes.get(12..).unwrap_or_default());
        // Notes count where the header says that there are some.
        let flags = match chunks().next() {
            Some((kind, &[flags, ..])) if kind == *b"VP8X" => flags,
            _ => 0,
        };
        let find = |flag: u8, name: &[u8; 4]| {
            let found = chunks().find(|(kind, _)| kind == name && flags & flag != 0);
            found.map(|(_, body)| Cow::Borrowed(body))
        };
        Self {
            exif: find(0x08, b"EXIF"),
            xmp: find(0x04, b"XMP "),
        }
    }
}

/// What follows the name of a text of a PNG, if it is this one.
fn text_named<'a>(name: &[u8], kind: [u8; 4], body: &'a [u8]) -> Option<&'a [u8]> {
    let is_text = [*b"tEXt", *b"zTXt", *b"iTXt"].contains(&kind);
    let behind = body.strip_prefix(name).filter(|_| is_text)?;
    behind.strip_prefix(b"\0")
}

/// A text of a PNG, of what follows its name.
fn text_of(kind: [u8; 4], behind: &[u8]) -> Option<Cow<'_, [u8]>> {
    match &kind {
        b"tEXt" => Some(Cow::Borrowed(behind)),
        b"zTXt" => inflated(behind.strip_prefix(b"\0")?),
        b"iTXt" => {
            let (&[packed, method], rest) = behind.split_first_chunk::<2>()?;
            // Behind a language and a name in it.
            let text = rest.splitn(3, |byte| *byte == 0).nth(2)?;
            match (packed, method) {
                (0, _) => Some(Cow::Borrowed(text)),
                (_, 0) => inflated(text),
                _ => None,
            }
        }
        _ => None,
    }
}

fn inflated(packed: &[u8]) -> Option<Cow<'static, [u8]>> {
    let mut text = Vec::new();
    let mut source = ZlibDecoder::new(packed).take(MAX_TEXT as u64 + 1);
    source.read_to_end(&mut text).ok()?;
    (text.len() <= MAX_TEXT).then_some(Cow::Owned(text))
}

/// Bytes that are written as hexadecimal digits.
fn from_digits(text: &[u8]) -> Option<Vec<u8>> {
    let lines = text.splitn(LINES_BEFORE + 1, |byte| *byte == b'\n');
    let mut digits = lines.last()?.iter().filter(|byte| !byte.is_ascii_whitespace());
    let mut bytes = Vec::new();
    let value = |digit: &u8| char::from(*digit).to_digit(16);
    while let Some(high) = digits.next() {
        let low = digits.next()?;
        bytes.push((value(high)? << 4 | value(low)?) as u8);
    }
    Some(bytes)
}

/// The orientation in a TIFF, if its first directory has one: 0 where it is no whole number.
fn of_exif(exif: &[u8]) -> Option<u64> {
    let exif = exif.strip_prefix(EXIF).unwrap_or(exif);
    let tiff = exif.strip_prefix(EXIF).unwrap_or(exif);
    let reader = match tiff.get(..4)? {
        b"II*\0" | b"II\0*" => Reader { tiff, little: true },
        b"MM\0*" | b"MM*\0" => Reader { tiff, little: false },
        _ => return None,
    };
    let start = reader.number(4, 4)? as usize;
    let entries = reader.number(start, 2)? as usize;
    (0..entries)
        // What is cut short ends the directory.
        .map_while(|entry| {
            let at = start + 2 + ENTRY * entry;
            reader.tiff.get(at..at.checked_add(ENTRY)?).map(|_| at)
        })
        .filter(|at| reader.number(*at, 2) == Some(ORIENTATION))
        .find_map(|at| reader.value(at))
}

const ORIENTATION: u64 = 0x0112;
const ENTRY: usize = 12;

struct Reader<'a> {
    tiff: &'a [u8],
    little: bool,
}

impl Reader<'_> {
    /// The first value of an entry; nothing where it does not hold one that is there.
    fn value(&self, entry: usize) -> Option<u64> {
        // Negative ones are no orientation, whether they are read as such or not.
        let (width, is_whole) = match self.number(entry + 2, 2)? {
            1 | 2 | 7 => (1, false),
            6 => (1, true),
            3 | 8 => (2, true),
            4 | 9 | 13 => (4, true),
            11 => (4, false),
            5 | 10 | 12 => (8, false),
            16 => (8, true),
            _ => return None,
        };
        let size = width * self.number(entry + 4, 4)? as usize;
        let at = match size {
            0 => return None,
            1..=4 => entry + 8,
            _ => self.number(entry + 8, 4)? as usize,
        };
        self.tiff.get(at..at.checked_add(size)?)?;
        if is_whole { self.number(at, width) } else { Some(0) }
    }

    fn number(&self, at: usize, width: usize) -> Option<u64> {
        let bytes = self.tiff.get(at..at.checked_add(width)?)?;
        let join = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        Some(match self.little {
            true => bytes.iter().rev().fold(0, join),
            false => bytes.iter().fold(0, join),
        })
    }
}

/// The first orientation in a text of XMP: that of an attribute or of an element.
fn of_xmp(xmp: &[u8]) -> Option<u64> {
    let name = b"tiff:Orientation";
    memchr::memmem::find_iter(xmp, name).find_map(|at| {
        let behind = &xmp[at + name.len()..];
        match behind.strip_prefix(b"=\"").or(behind.strip_prefix(b">"))? {
            [digit @ b'0'..=b'9', ..] => Some(u64::from(digit - b'0')),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIFF: &[u8] = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x04\0\0\0\x01\0\0\0\x06";

    #[test]
    fn notes_that_are_cut_short_or_hostile_say_nothing() {
        assert_eq!(of_exif(TIFF), Some(6));
        assert_eq!((0..TIFF.len()).find_map(|length| of_exif(&TIFF[..length])), None);
        // Every place, count and offset as large as it can be.
        for at in 4..TIFF.len() {
            for length in 1..=4.min(TIFF.len() - at) {
                let mut tiff = TIFF.to_vec();
                tiff[at..at + length].fill(0xff);
                assert_ne!(of_exif(&tiff), Some(3));
            }
        }
        let xmp = b"tiff:Orientation tiff:Orientation>9";
        assert_eq!(of_xmp(xmp), Some(9));
        assert_eq!((0..xmp.len()).find_map(|length| of_xmp(&xmp[..length])), None);
    }

    #[test]
    fn texts_of_a_png_are_read_in_all_their_forms() {
        let text = |kind: &[u8; 4], body: &[u8]| {
            let behind = text_named(b"k", *kind, body)?.to_vec();
            text_of(*kind, &behind).map(Cow::into_owned)
        };
        assert_eq!(text(b"tEXt", b"k\0v"), Some(b"v".to_vec()));
        assert_eq!(text(b"iTXt", b"k\0\0\0en\0\0v\0w"), Some(b"v\0w".to_vec()));
        for (kind, body) in [
            (b"tEXt", &b"kk\0v"[..]),
            (b"zTXt", b"k\0\0no zlib"),
            (b"zTXt", b"k\0\x01"),
            (b"iTXt", b"k\0\x01\x01\0\0v"),
            (b"iTXt", b"k\0\0\0en\0"),
            (b"iTXt", b"k\0\0"),
            (b"gAMA", b"k\0v"),
        ] {
            assert_eq!(text(kind, body), None);
        }
        assert_eq!(from_digits(b"\nexif\n 2\n4a\nF F"), Some(vec![0x4a, 0xff]));
        for text in [&b"\nexif\n 2\n4"[..], b"\nexif\n 2\n4g"] {
            assert_eq!(from_digits(text), None);
        }
    }
}
