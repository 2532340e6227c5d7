//! From files to numbers. What Pillow makes of the same files is compared in the Python tests.

use grampus_core::Random;
use image::codecs::{jpeg::JpegEncoder, png::PngEncoder, webp::WebPEncoder};
use image::{ExtendedColorType, ImageEncoder};
use proptest::prelude::*;

use super::*;

fn png(pixels: &[u8], width: u32, height: u32, colour: ExtendedColorType) -> Vec<u8> {
    let mut file = Vec::new();
    PngEncoder::new(&mut file)
        .write_image(pixels, width, height, colour)
        .unwrap();
    file
}

fn webp(pixels: &[u8], width: u32, height: u32, colour: ExtendedColorType) -> Vec<u8> {
    let mut file = Vec::new();
    WebPEncoder::new_lossless(&mut file)
        .write_image(pixels, width, height, colour)
        .unwrap();
    file
}

fn jpeg(pixels: &[u8], width: u32, height: u32, colour: ExtendedColorType) -> Vec<u8> {
    let mut file = Vec::new();
    JpegEncoder::new_with_quality(&mut file, 95)
        .write_image(pixels, width, height, colour)
        .unwrap();
    file
}

fn decode(bytes: &[u8], channels: Channels) -> Result<Picture, ImageError> {
    Decoder::new(Limits::default()).decode(bytes, channels).cloned()
}

fn run(steps: Vec<Step>, output: Output, bytes: &[u8], seed: u64) -> Result<Vec<u8>, ImageError> {
    let pipeline = Pipeline::new(steps, output)?;
    let mut decoder = Decoder::new(Limits::default());
    let size = decoder.size(bytes)?;
    let mut out = vec![0xee; pipeline.output_bytes(Some(size))?];
    pipeline.run(&mut decoder, bytes, &mut Random::new(seed), &mut out)?;
    Ok(out)
}

fn bytes_hwc(channels: Order) -> Output {
    Output {
        kind: Kind::U8,
        layout: Layout::Hwc,
        channels,
        ..Output::default()
    }
}

fn numbered(width: u8, height: u8) -> Vec<u8> {
    (0..width * height).flat_map(|at| [at, 100 + at, 200]).collect()
}

#[test]
fn lossless_files_come_back_exactly() {
    let pixels = numbered(5, 4);
    for file in [
        png(&pixels, 5, 4, ExtendedColorType::Rgb8),
        webp(&pixels, 5, 4, ExtendedColorType::Rgb8),
    ] {
        let picture = decode(&file, Channels::AsIs).unwrap();
        assert_eq!((picture.width, picture.height, picture.channels), (5, 4, 3));
        assert_eq!(picture.pixels, pixels);
    }
}

#[test]
fn alpha_is_dropped_and_gray_is_repeated() {
    let rgba = [1, 2, 3, 0, 4, 5, 6, 255];
    for file in [
        png(&rgba, 2, 1, ExtendedColorType::Rgba8),
        webp(&rgba, 2, 1, ExtendedColorType::Rgba8),
    ] {
        assert_eq!(decode(&file, Channels::AsIs).unwrap().pixels, [1, 2, 3, 4, 5, 6]);
    }
    let gray = png(&[7, 9], 2, 1, ExtendedColorType::L8);
    assert_eq!(decode(&gray, Channels::AsIs).unwrap().pixels, [7, 9]);
    assert_eq!(decode(&gray, Channels::Rgb).unwrap().pixels, [7, 7, 7, 9, 9, 9]);
    let with_alpha = png(&[7, 0, 9, 0], 2, 1, ExtendedColorType::La8);
    assert_eq!(decode(&with_alpha, Channels::AsIs).unwrap().pixels, [7, 9]);
}

#[test]
fn a_decoder_is_as_new_after_any_image() {
    let large = png(&numbered(9, 9), 9, 9, ExtendedColorType::Rgb8);
    let gray = jpeg(&[50; 64], 8, 8, ExtendedColorType::L8);
    let small = png(&[1, 2, 3], 1, 1, ExtendedColorType::Rgb8);
    let mut decoder = Decoder::new(Limits::default());
    for file in [
        &large,
        &small,
        &gray,
        &large[..60].to_vec(),
        &small,
        &gray,
        &large,
    ] {
        let reused = decoder.decode(file, Channels::Rgb).ok().cloned();
        assert_eq!(reused, decode(file, Channels::Rgb).ok());
    }
}

#[test]
fn every_file_that_is_cut_short_is_an_error() {
    let pixels: Vec<u8> = (0..24 * 24 * 3).map(|at| (at * 37 % 251) as u8).collect();
    let colour = ExtendedColorType::Rgb8;
    for file in [
        jpeg(&pixels, 24, 24, colour),
        png(&pixels, 24, 24, colour),
        webp(&pixels, 24, 24, colour),
    ] {
        decode(&file, Channels::Rgb).unwrap();
        // Its last bytes may be a mark of the end, or padding.
        for length in 0..file.len() - 20 {
            let error = decode(&file[..length], Channels::Rgb).unwrap_err().to_string();
            assert!(
                error.contains("damaged") || error.contains("give JPEG, PNG or WebP"),
                "{error}"
            );
        }
    }
}

#[test]
fn a_header_that_claims_too_much_is_refused_by_itself() {
    let mut huge_png = png(&[0], 1, 1, ExtendedColorType::L8);
    huge_png[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
    let mut huge_jpeg = jpeg(&[0], 1, 1, ExtendedColorType::L8);
    let frame = huge_jpeg.windows(2).position(|at| at == [0xff, 0xc0]).unwrap();
    huge_jpeg[frame + 5..frame + 9].copy_from_slice(&[0xea, 0x60, 0xea, 0x60]);
    // A canvas of 60,000 x 60,000, and a small canvas with a picture of 16,383 x 16,383 on it.
    let canvas = |side: u32| {
        let [a, b, c, _] = (side - 1).to_le_bytes();
        [
            &b"RIFF\xff\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0"[..],
            &[a, b, c, a, b, c],
        ]
        .concat()
    };
    let large_on_small = [
        &canvas(8)[..],
        b"VP8 \x0a\0\0\0\x10\0\0\x9d\x01\x2a\xff\x3f\xff\x3f",
    ]
    .concat();
    for file in [huge_png, huge_jpeg, canvas(60_000), large_on_small] {
        let error = decode(&file, Channels::Rgb).unwrap_err();
        assert!(matches!(error, ImageError::TooLarge { .. }), "{error}");
        let error = Decoder::new(Limits::default()).size(&file).unwrap_err();
        assert!(matches!(error, ImageError::TooLarge { .. }), "{error}");
    }
}

/// Frames of an animation, each within the one before, as deep as a file of 24 bytes a frame can be.
fn nested_webp(depth: usize) -> Vec<u8> {
    let frames = (0..depth).rev().flat_map(|inside| {
        let size = (16 + 24 * inside as u32).to_le_bytes();
        [&b"ANMF"[..], &size, &[0; 16]].concat()
    });
    b"RIFF\xff\xff\xff\x7fWEBP"
        .iter()
        .copied()
        .chain(frames)
        .collect()
}

#[test]
fn frames_within_frames_are_refused_at_any_depth() {
    for depth in [2, 3, 14_000, 1 << 20] {
        let file = nested_webp(depth);
        let error = Decoder::new(Limits::default())
            .size(&file)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("an animation frame (ANMF) within another"),
            "{error}"
        );
        assert!(decode(&file, Channels::Rgb).is_err());
    }
}

#[test]
fn a_picture_must_have_the_size_of_its_frame() {
    let still = webp(&[0; 12 * 10 * 3], 12, 10, ExtendedColorType::Rgb8);
    let picture = &still[12..];
    let file = |width: u8, height: u8| {
        let size = (16 + picture.len() as u32).to_le_bytes();
        [
            &b"RIFF\xff\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\x0b\0\0\x09\0\0"[..],
            b"ANIM\x06\0\0\0\0\0\0\0\0\0ANMF",
            &size,
            &[0, 0, 0, 0, 0, 0, width - 1, 0, 0, height - 1, 0, 0, 9, 0, 0, 0],
            picture,
        ]
        .concat()
    };
    assert_eq!(
        Decoder::new(Limits::default()).size(&file(12, 10)).unwrap(),
        (12, 10)
    );
    let error = decode(&file(12, 9), Channels::Rgb).unwrap_err().to_string();
    assert!(error.contains("another size than its frame"), "{error}");
}

#[test]
fn a_resize_cannot_make_more_than_the_limits_allow() {
    let line = png(&[0; 60_000], 60_000, 1, ExtendedColorType::L8);
    let error = run(
        vec![
            Step::ResizeShorter { side: 256 },
            Step::CenterCrop { width: 8, height: 8 },
        ],
        Output::default(),
        &line,
        0,
    );
    assert!(matches!(error, Err(ImageError::TooLarge { .. })), "{error:?}");
}

#[test]
fn what_is_no_image_says_how_it_begins() {
    let error = decode(b"text", Channels::Rgb).unwrap_err().to_string();
    assert_eq!(
        error,
        "the image begins with 74 65 78 74, which is no known format: give JPEG, PNG or WebP"
    );
    let error = decode(b"GIF89a", Channels::Rgb).unwrap_err().to_string();
    assert_eq!(
        error,
        "the image is a GIF file, which Grampus does not read: give JPEG, PNG or WebP"
    );
    let error = decode(b"", Channels::Rgb).unwrap_err().to_string();
    assert_eq!(error, "the image has no bytes: give JPEG, PNG or WebP");
}

#[test]
fn crops_and_flips_of_flips_are_right_at_the_borders() {
    let file = png(&[1, 2, 3, 4, 5, 6], 3, 2, ExtendedColorType::L8);
    let flip = Step::FlipHorizontal { probability: 1.0 };
    let wide = Step::CenterCrop { width: 5, height: 1 };
    let narrow = Step::CenterCrop { width: 1, height: 3 };
    let out = |steps| run(steps, bytes_hwc(Order::Gray), &file, 0).unwrap();
    assert_eq!(out(vec![flip.clone()]), [3, 2, 1, 6, 5, 4]);
    assert_eq!(out(vec![wide.clone()]), [0, 1, 2, 3, 0]);
    assert_eq!(out(vec![flip.clone(), wide.clone()]), [0, 3, 2, 1, 0]);
    // The black that a crop brought stays, and what it cut away does not come back.
    assert_eq!(
        out(vec![narrow.clone(), flip.clone(), wide.clone()]),
        [0, 0, 5, 0, 0]
    );
    assert_eq!(out(vec![narrow]), [2, 5, 0]);
    assert_eq!(out(vec![flip.clone(), wide, flip]), [0, 1, 2, 3, 0]);
}

#[test]
fn a_mirrored_part_is_mirrored_after_a_resize_too() {
    let file = png(&[10, 20, 30, 40], 4, 1, ExtendedColorType::L8);
    let steps = vec![
        Step::FlipHorizontal { probability: 1.0 },
        Step::CenterCrop { width: 2, height: 1 },
        Step::Resize { width: 2, height: 2 },
    ];
    let out = run(steps, bytes_hwc(Order::Gray), &file, 0).unwrap();
    assert_eq!(out, [30, 20, 30, 20]);
}

#[test]
fn numbers_are_scaled_normalised_and_ordered() {
    let file = png(&[0, 51, 255, 255, 102, 0], 2, 1, ExtendedColorType::Rgb8);
    let floats = |output| -> Vec<f32> {
        let out = run(vec![], output, &file, 0).unwrap();
        out.as_chunks()
            .0
            .iter()
            .map(|four| f32::from_ne_bytes(*four))
            .collect()
    };
    assert_eq!(floats(Output::default()), [0.0, 1.0, 0.2, 0.4, 1.0, 0.0]);
    let hwc = Output {
        layout: Layout::Hwc,
        channels: Order::Bgr,
        ..Output::default()
    };
    assert_eq!(floats(hwc), [1.0, 0.2, 0.0, 0.0, 0.4, 1.0]);
    // The mean of a channel goes with its place in the output.
    let normalised = Output {
        channels: Order::Bgr,
        mean: vec![0.5, 0.2, 0.0],
        std: vec![0.5, 1.0, 2.0],
        ..Output::default()
    };
    assert_eq!(floats(normalised), [1.0, -1.0, 0.0, 0.2, 0.0, 0.5]);
    let scaled = Output {
        scale: Some(1.0),
        ..Output::default()
    };
    assert_eq!(floats(scaled), [0.0, 255.0, 51.0, 102.0, 255.0, 0.0]);
}

#[test]
fn wrong_pipelines_are_refused_with_their_place() {
    let refused = |text: &str| serde_json::from_str::<Pipeline>(text).unwrap_err().to_string();
    let error = refused(r#"{"steps": [{"step": "resize", "width": 8, "height": 0}]}"#);
    assert!(
        error.contains("image step 1: a side of 0 pixels: give 1 to 65535"),
        "{error}"
    );
    let error = refused(r#"{"output": {"mean": [0.5, 0.5]}}"#);
    assert!(
        error.contains("image output: 2 numbers as mean for 3 channels"),
        "{error}"
    );
    let error = refused(r#"{"output": {"std": [0]}}"#);
    assert!(error.contains("a std of 0"), "{error}");
    let error = refused(r#"{"output": {"kind": "u8", "mean": [0.5]}}"#);
    assert!(error.contains("ask for f32"), "{error}");
    assert!(refused(r#"{"outputs": {}}"#).contains("unknown field"));
}

#[test]
fn images_of_different_sizes_need_a_step_that_makes_them_equal() {
    let pipeline = Pipeline::new(vec![], bytes_hwc(Order::Gray)).unwrap();
    assert!(matches!(pipeline.output_shape(None), Err(ImageError::NoSize)));
    assert_eq!(pipeline.output_shape(Some((3, 2))).unwrap(), [2, 3, 1]);
    let files = [
        png(&[0; 6], 3, 2, ExtendedColorType::L8),
        png(&[0; 4], 2, 2, ExtendedColorType::L8),
    ];
    let rows = Rows {
        seed: 0,
        epoch: 0,
        first: 0,
    };
    let (number, error) = decode_batch(&pipeline, &files, rows, 1, &mut [0; 12]).unwrap_err();
    assert_eq!(number, 1);
    assert!(error.to_string().contains("2 x 2"), "{error}");
}

fn any_step() -> impl Strategy<Value = Step> {
    let side = || 1..40_u32;
    prop_oneof![
        (side(), side()).prop_map(|(width, height)| Step::Resize { width, height }),
        side().prop_map(|side| Step::ResizeShorter { side }),
        (side(), side()).prop_map(|(width, height)| Step::CenterCrop { width, height }),
        (1..5_u32, 1..5_u32, 2..5_u32).prop_map(|(width, height, padding)| Step::RandomCrop {
            width,
            height,
            padding
        }),
        (side(), side()).prop_map(|(width, height)| Step::RandomResizedCrop {
            width,
            height,
            scale: (0.1, 0.9),
            ratio: (0.5, 2.0)
        }),
        Just(Step::FlipHorizontal { probability: 0.5 }),
    ]
}

proptest! {
    #[test]
    fn any_steps_fill_their_place_the_same_on_any_number_of_threads(
        steps in prop::collection::vec(any_step(), 0..5),
        (width, height) in (1..12_u8, 1..12_u8),
        seed: u64,
        gray: bool,
    ) {
        let order = if gray { Order::Gray } else { Order::Rgb };
        let file = png(&numbered(width, height), width.into(), height.into(), ExtendedColorType::Rgb8);
        let files = vec![file; 5];
        let pipeline = Pipeline::new(steps, bytes_hwc(order)).unwrap();
        let bytes = pipeline.output_bytes(Some((width.into(), height.into()))).unwrap();
        let rows = Rows { seed, epoch: 3, first: 10 };
        let decoded = |threads, filler| {
            let mut out = vec![filler; 5 * bytes];
            decode_batch(&pipeline, &files, rows, threads, &mut out).unwrap();
            out
        };
        let alone = decoded(1, 0xaa);
        prop_assert_eq!(&alone, &decoded(3, 0x55));
        prop_assert_eq!(&alone, &decoded(9, 0x55));
    }
}
