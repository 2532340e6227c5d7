//! Samples of any number and depth to 8-bit gray or RGB.

/// The channels that a decoded picture shall have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// Three; gray is repeated.
    Rgb,
    /// One; colours become their brightness.
    Gray,
    /// One or three, as the file has it.
    AsIs,
}

impl Channels {
    /// How many a picture gets whose file has `found`, alpha included.
    pub(super) fn count(self, found: u8) -> u8 {
        match (self, found) {
            (Self::Rgb, _) => 3,
            (Self::Gray, _) => 1,
            (Self::AsIs, 1 | 2) => 1,
            (Self::AsIs, _) => 3,
        }
    }
}

/// 16-bit samples in native order to 8-bit samples at the front of the same bytes.
pub(super) fn narrow(samples: &mut Vec<u8>, one: fn(u16) -> u8) {
    for at in 0..samples.len() / 2 {
        samples[at] = one(u16::from_ne_bytes([samples[2 * at], samples[2 * at + 1]]));
    }
    samples.truncate(samples.len() / 2);
}

/// The upper 8 bits of 16, as Pillow reads colours and gray with alpha.
pub(super) fn upper(sample: u16) -> u8 {
    (sample >> 8) as u8
}

/// 16 bits cut off at 255, as Pillow converts its mode `I;16`, in which it reads gray without alpha.
pub(super) fn clipped(sample: u16) -> u8 {
    sample.min(255) as u8
}

/// Pixels of `have` channels (gray, gray and alpha, RGB, or RGB and alpha) to pixels of `want` (1 or 3); alpha is dropped.
pub(super) fn convert(from: &[u8], have: u8, want: u8, into: &mut Vec<u8>) {
    into.clear();
    match (have, want) {
        (1, 3) => into.extend(from.iter().flat_map(|&gray| [gray; 3])),
        (2, 1) => into.extend(from.as_chunks().0.iter().map(|&[gray, _]| gray)),
        (2, _) => into.extend(from.as_chunks().0.iter().flat_map(|&[gray, _]| [gray; 3])),
        (3, 1) => into.extend(from.as_chunks().0.iter().map(|&[r, g, b]| brightness(r, g, b))),
        (4, 1) => into.extend(from.as_chunks().0.iter().map(|&[r, g, b, _]| brightness(r, g, b))),
        (4, _) => into.extend(from.as_chunks().0.iter().flat_map(|&[r, g, b, _]| [r, g, b])),
        _ => into.extend_from_slice(from),
    }
}

/// The luma of ITU-R 601-2, with the rounding of Pillow.
fn brightness(r: u8, g: u8, b: u8) -> u8 {
    ((u32::from(r) * 19_595 + u32::from(g) * 38_470 + u32::from(b) * 7_471 + 0x8000) >> 16) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bits_become_eight() {
        let wide = [0_u16, 255, 256, 0x1234, u16::MAX];
        let narrowed = |one| {
            let mut samples: Vec<u8> = wide.iter().flat_map(|sample| sample.to_ne_bytes()).collect();
            narrow(&mut samples, one);
            samples
        };
        assert_eq!(narrowed(upper), [0, 0, 1, 0x12, 255]);
        assert_eq!(narrowed(clipped), [0, 255, 255, 255, 255]);
    }

    #[test]
    fn channels_are_repeated_dropped_or_weighed() {
        let mut out = Vec::new();
        let mut converted = |from: &[u8], have, want| {
            convert(from, have, want, &mut out);
            out.clone()
        };
        assert_eq!(converted(&[7, 9], 1, 3), [7, 7, 7, 9, 9, 9]);
        assert_eq!(converted(&[7, 255, 9, 0], 2, 1), [7, 9]);
        assert_eq!(converted(&[7, 255, 9, 0], 2, 3), [7, 7, 7, 9, 9, 9]);
        assert_eq!(converted(&[1, 2, 3, 0], 4, 3), [1, 2, 3]);
        assert_eq!(converted(&[255, 0, 0, 0], 4, 1), [76]);
        assert_eq!(converted(&[0, 255, 0, 0, 0, 255], 3, 1), [150, 29]);
        assert_eq!(converted(&[255, 255, 255], 3, 1), [255]);
        assert_eq!(converted(&[5, 6], 1, 1), [5, 6]);
    }
}
