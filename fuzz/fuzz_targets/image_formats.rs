//! Files of each image format that are well formed on the outside: any bytes get past checksums and lengths, deep into the
//! decoders, in any number and depth of chunks.

#![no_main]

// The decoders alone: their crate would bring Arrow and the client of object stores into this build.
#[allow(dead_code, unused_imports)]
#[path = "../../crates/grampus-data/src/image/mod.rs"]
mod images;

use images::{Channels, Decoder, Limits};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits {
    max_pixels: 1 << 16,
    max_side: 1 << 12,
};

fuzz_target!(|bytes: &[u8]| {
    let Some((&[format, repeats, exif], rest)) = bytes.split_first_chunk::<3>() else {
        return;
    };
    // Up to some hundred thousand: depth costs a recursive reader its stack.
    let times = 1_usize << (repeats % 18);
    let file = match format % 4 {
        0 => jpeg(rest, exif, times),
        1 => png(rest, exif, times),
        2 => webp(rest, exif, times),
        _ => nested_webp(rest, times),
    };
    let mut decoder = Decoder::new(LIMITS);
    let size = decoder.size(&file);
    for channels in [Channels::Rgb, Channels::Gray, Channels::AsIs] {
        if let Ok(picture) = decoder.decode(&file, channels) {
            assert_eq!(size.as_ref().unwrap(), &(picture.width, picture.height));
            let samples = picture.width as usize * picture.height as usize * usize::from(picture.channels);
            assert_eq!(picture.pixels.len(), samples);
        }
    }
});

/// An orientation, which may be one that does not exist, as a number of any type.
fn exif(orientation: u8) -> Vec<u8> {
    let mut exif = b"II*\0\x08\0\0\0\x01\0\x12\x01".to_vec();
    exif.extend([3 + orientation / 10, 0, 1, 0, 0, 0, orientation % 10, 0, 0, 0]);
    exif
}

/// The same in XMP, with any bytes behind it.
fn xmp(orientation: u8, rest: &[u8]) -> Vec<u8> {
    let number = format!("tiff:Orientation=\"{}\" tiff:Orientation>", orientation % 10);
    [number.as_bytes(), &rest[..rest.len().min(32)]].concat()
}

/// A file that begins as `rest` does, with its EXIF and comments before.
fn jpeg(rest: &[u8], orientation: u8, times: usize) -> Vec<u8> {
    let segment = |kind: u8, body: &[u8]| {
        let length = (body.len() as u16 + 2).to_be_bytes();
        [&[0xff, kind], &length[..], body].concat()
    };
    let body = [b"Exif\0\0", &exif(orientation)[..]].concat();
    let notes = [b"http://ns.adobe.com/xap/1.0/\0", &xmp(orientation, rest)[..]].concat();
    let comments = segment(0xfe, b"").repeat(times.min(1 << 12));
    [
        &[0xff, 0xd8],
        &segment(0xe1, &body)[..],
        &segment(0xe1, &notes),
        &comments,
        rest,
    ]
    .concat()
}

/// A header, and the rest as samples, which are stored so that they decompress to themselves.
fn png(rest: &[u8], orientation: u8, times: usize) -> Vec<u8> {
    let Some((head, samples)) = rest.split_first_chunk::<5>() else {
        return Vec::new();
    };
    let [width, height, depth, colour, interlaced] = *head;
    let header = [
        &u32::from(width).to_be_bytes()[..],
        &u32::from(height).to_be_bytes(),
        &[1 << (depth % 5), colour % 7, 0, 0, interlaced % 2],
    ];
    let samples = &samples[..samples.len().min(usize::from(u16::MAX))];
    let length = samples.len() as u16;
    let stored = [
        &[0x78, 0x01, 1][..],
        &length.to_le_bytes(),
        &(!length).to_le_bytes(),
        samples,
        &adler32(samples).to_be_bytes(),
    ];
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |kind: &[u8], body: &[u8]| {
        file.extend((body.len() as u32).to_be_bytes());
        let checked = [kind, body].concat();
        file.extend(&checked);
        file.extend(crc32(&checked).to_be_bytes());
    };
    chunk(b"IHDR", &header.concat());
    // One kind of note alone, since EXIF hides the others.
    match orientation % 3 {
        0 => chunk(b"eXIf", &exif(orientation)),
        1 => chunk(
            b"zTXt",
            &[b"Raw profile type exif\0\0", &stored.concat()[..]].concat(),
        ),
        _ => chunk(
            b"iTXt",
            &[b"XML:com.adobe.xmp\0\0\0\0\0", &xmp(orientation, rest)[..]].concat(),
        ),
    }
    chunk(
        b"PLTE",
        samples.get(..samples.len().min(768) / 3 * 3).unwrap_or_default(),
    );
    chunk(b"tRNS", &samples[..samples.len().min(usize::from(depth))]);
    for _ in 0..times.min(1 << 10) {
        chunk(b"tEXt", b"a\0b");
    }
    chunk(b"IDAT", &stored.concat());
    chunk(b"IEND", b"");
    file
}

fn webp_chunk(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let padding: &[u8] = if body.len() % 2 == 1 { &[0] } else { &[] };
    [&kind[..], &(body.len() as u32).to_le_bytes(), body, padding].concat()
}

fn riff(chunks: &[u8]) -> Vec<u8> {
    let length = (chunks.len() as u32 + 4).to_le_bytes();
    [b"RIFF", &length[..], b"WEBP", chunks].concat()
}

/// A canvas with a picture, alone or as frames of an animation.
fn webp(rest: &[u8], orientation: u8, times: usize) -> Vec<u8> {
    let Some((&[kind, width, height], data)) = rest.split_first_chunk::<3>() else {
        return Vec::new();
    };
    let name = if kind % 2 == 0 { b"VP8 " } else { b"VP8L" };
    let picture = [&webp_chunk(b"ALPH", data)[..], &webp_chunk(name, data)].concat();
    let flags = if kind & 4 == 0 { 0x1c } else { 0x1e };
    let canvas = webp_chunk(b"VP8X", &[flags, 0, 0, 0, width, 0, 0, height, 0, 0]);
    let frame = [
        &[0, 0, 0, 0, 0, 0, width, 0, 0, height, 0, 0, 9, 0, 0, 0][..],
        &picture,
    ]
    .concat();
    let pictures = match kind & 4 {
        0 => picture,
        _ => [
            webp_chunk(b"ANIM", &[0; 6]),
            webp_chunk(b"ANMF", &frame).repeat(times.min(64)),
        ]
        .concat(),
    };
    let exif = webp_chunk(b"EXIF", &exif(orientation));
    let xmp = webp_chunk(b"XMP ", &xmp(orientation, data));
    riff(&[canvas, pictures, exif, xmp].concat())
}

/// Frames within frames, each of which holds all that follows; lengths beyond the file are what a hostile one has.
fn nested_webp(rest: &[u8], times: usize) -> Vec<u8> {
    let mut frame = b"ANMF\xf0\xff\xff\x7f".to_vec();
    frame.extend([0; 16]);
    riff(&[&frame.repeat(times)[..], rest].concat())
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

fn adler32(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1_u32, 0_u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    b << 16 | a
}
