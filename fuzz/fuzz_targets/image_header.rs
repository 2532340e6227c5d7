//! Any bytes as an image: refused, or pixels within the limits, the same each time.

#![no_main]

// The decoders alone: their crate would bring Arrow and the client of object stores into this build.
#[allow(dead_code, unused_imports)]
#[path = "../../crates/grampus-data/src/image/mod.rs"]
mod images;

use grampus_core::Random;
use images::{Channels, Decoder, Limits, Pipeline};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits {
    max_pixels: 1 << 16,
    max_side: 1 << 12,
};

const STEPS: &str = r#"{"steps": [{"step": "resize_shorter", "side": 9}, {"step": "random_crop", "width": 8, "height": 8},
    {"step": "flip_horizontal", "probability": 0.5}]}"#;

fuzz_target!(|bytes: &[u8]| {
    let mut decoder = Decoder::new(LIMITS);
    let size = decoder.size(bytes);
    for channels in [Channels::Rgb, Channels::Gray, Channels::AsIs] {
        let Ok(picture) = decoder.decode(bytes, channels).cloned() else {
            continue;
        };
        let (width, height) = (picture.width, picture.height);
        assert_eq!(size.as_ref().unwrap(), &(width, height));
        assert!(u64::from(width) * u64::from(height) <= LIMITS.max_pixels);
        let samples = width as usize * height as usize * usize::from(picture.channels);
        assert_eq!(picture.pixels.len(), samples);
        assert_eq!(decoder.decode(bytes, channels).unwrap(), &picture);
    }
    let pipeline: Pipeline = serde_json::from_str(STEPS).unwrap();
    let mut place = vec![0; pipeline.output_bytes(None).unwrap()];
    let _ = pipeline.run(&mut decoder, bytes, &mut Random::new(1), &mut place);
});
