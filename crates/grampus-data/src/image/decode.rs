//! Bytes of a file to 8-bit pixels.

use std::io::Cursor;

use image::codecs::png::PngDecoder;
use image::codecs::webp::WebPDecoder;
use image::{ColorType, ImageDecoder};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::ImageError;
use super::colour::{self, Channels};
use super::header::{self, Format};
use super::orientation;
use super::resize::Resizer;

/// How large an image may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Width times height.
    pub max_pixels: u64,
    /// Width, and height.
    pub max_side: u32,
}

impl Default for Limits {
    /// A quarter of a gigabyte of RGB, where Pillow begins to warn; and the longest side that JPEG knows.
    fn default() -> Self {
        Self {
            max_pixels: 89_478_485,
            max_side: 65_535,
        }
    }
}

impl Limits {
    /// Refuses what is larger.
    pub(super) fn check(self, width: u32, height: u32) -> Result<(), ImageError> {
        let pixels = u64::from(width) * u64::from(height);
        match width.max(height) > self.max_side || pixels > self.max_pixels {
            true => Err(ImageError::TooLarge {
                width,
                height,
                limits: self,
            }),
            false => Ok(()),
        }
    }
}

/// Pixels of 8 bits a sample, row by row, the channels of a pixel side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// 1 for gray, 3 for red, green and blue.
    pub channels: u8,
    /// `width * height * channels` samples.
    pub pixels: Vec<u8>,
}

impl Picture {
    /// Takes another size; all is black.
    pub(super) fn clear(&mut self, width: u32, height: u32, channels: u8) {
        self.width = width;
        self.height = height;
        self.channels = channels;
        self.pixels.clear();
        self.pixels
            .resize(width as usize * height as usize * usize::from(channels), 0);
    }
}

/// Decodes one image after another into the same memory. One for each thread.
#[derive(Debug, Default)]
pub struct Decoder {
    pub(super) limits: Limits,
    pub(super) picture: Picture,
    pub(super) resizer: Resizer,
    /// What a decoder wrote, where it has other channels or depth than the picture.
    raw: Vec<u8>,
}

impl Decoder {
    /// A decoder that refuses images over the limits by their header.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Width and height of the upright picture, from the header alone.
    pub fn size(&self, bytes: &[u8]) -> Result<(u32, u32), ImageError> {
        let format = Format::of(bytes)?;
        let size = match format {
            Format::Jpeg => jpeg_size(&mut open_jpeg(bytes), self.limits)?,
            Format::Png => {
                let (width, height) = header::png_size(bytes)?;
                header::check_size(Format::Png, width, height, self.limits)?;
                (width, height)
            }
            Format::Webp => open_webp(bytes, self.limits)?.dimensions(),
        };
        Ok(orientation::upright_size(orientation::find(format, bytes), size))
    }

    /// The pixels of an image, upright. A file that is cut short is an error, not a picture with a gray end.
    pub fn decode(&mut self, bytes: &[u8], channels: Channels) -> Result<&Picture, ImageError> {
        let format = Format::of(bytes)?;
        match format {
            Format::Jpeg => self.decode_jpeg(bytes, channels)?,
            Format::Png => {
                let (width, height) = header::png_size(bytes)?;
                header::check_size(Format::Png, width, height, self.limits)?;
                let source = open_png(bytes)?;
                let narrow = if header::is_gray_16(bytes) {
                    colour::clipped
                } else {
                    colour::upper
                };
                self.decode_lossless(source, channels, narrow)
                    .map_err(|error| Format::Png.damaged(error))?;
            }
            Format::Webp => {
                let source = open_webp(bytes, self.limits)?;
                self.decode_lossless(source, channels, colour::upper)
                    .map_err(|error| Format::Webp.damaged(error))?;
            }
        }
        let orientation = orientation::find(format, bytes);
        orientation::turn(orientation, &mut self.picture, &mut self.raw);
        Ok(&self.picture)
    }

    fn decode_jpeg(&mut self, bytes: &[u8], channels: Channels) -> Result<(), ImageError> {
        let mut source = open_jpeg(bytes);
        let (width, height) = jpeg_size(&mut source, self.limits)?;
        if !header::jpeg_ends(bytes) {
            return Err(Format::Jpeg.damaged("it is cut short"));
        }
        let damaged = |error| Format::Jpeg.damaged(error);
        let found = source.input_colorspace();
        let gray_file = found == Some(ColorSpace::Luma);
        let want = channels.count(if gray_file { 1 } else { 3 });
        // The brightness is a channel of its own in most files: nothing else is decoded then.
        let brightness = gray_file || found == Some(ColorSpace::YCbCr);
        if want == 1 && brightness {
            source.set_options(source.options().jpeg_set_out_colorspace(ColorSpace::Luma));
        }
        if want == 1 && !brightness {
            self.raw.clear();
            self.raw.resize(width as usize * height as usize * 3, 0);
            source.decode_into(&mut self.raw).map_err(damaged)?;
            self.picture.clear(width, height, 1);
            colour::convert(&self.raw, 3, 1, &mut self.picture.pixels);
            return Ok(());
        }
        self.picture.clear(width, height, want);
        source.decode_into(&mut self.picture.pixels).map_err(damaged)
    }

    /// PNG and WebP, whose headers were checked; `narrow` makes 8 bits of 16.
    fn decode_lossless(
        &mut self,
        source: impl ImageDecoder,
        channels: Channels,
        narrow: fn(u16) -> u8,
    ) -> image::ImageResult<()> {
        let (width, height) = source.dimensions();
        let colour = source.color_type();
        let have = colour.channel_count();
        let want = channels.count(have);
        let wide = matches!(
            colour,
            ColorType::L16 | ColorType::La16 | ColorType::Rgb16 | ColorType::Rgba16
        );
        self.picture.clear(width, height, want);
        if have == want && !wide {
            return source.read_image(&mut self.picture.pixels);
        }
        self.raw.clear();
        self.raw
            .resize(usize::try_from(source.total_bytes()).unwrap_or(usize::MAX), 0);
        source.read_image(&mut self.raw)?;
        if wide {
            colour::narrow(&mut self.raw, narrow);
        }
        colour::convert(&self.raw, have, want, &mut self.picture.pixels);
        Ok(())
    }
}

type Jpeg<'a> = JpegDecoder<ZCursor<&'a [u8]>>;

fn open_jpeg(bytes: &[u8]) -> Jpeg<'_> {
    // The limits are ours; strict, because the rest of a file that ends early would be made up.
    let options = DecoderOptions::default()
        .jpeg_set_out_colorspace(ColorSpace::RGB)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .set_strict_mode(true);
    JpegDecoder::new_with_options(ZCursor::new(bytes), options)
}

/// Apart from `open_jpeg`, so that no result carries the decoder: it is 30 KB, and moving it costs more than a small image.
fn jpeg_size(source: &mut Jpeg<'_>, limits: Limits) -> Result<(u32, u32), ImageError> {
    source
        .decode_headers()
        .map_err(|error| Format::Jpeg.damaged(error))?;
    let (width, height) = source.dimensions().unwrap_or_default();
    let (width, height) = (width as u32, height as u32);
    header::check_size(Format::Jpeg, width, height, limits)?;
    Ok((width, height))
}

fn open_png(bytes: &[u8]) -> Result<PngDecoder<Cursor<&[u8]>>, ImageError> {
    // For its rows and remarks: a colour profile is compressed, and may be a thousand times its size in the file.
    let mut limits = image::Limits::default();
    limits.max_alloc = Some(64 << 20);
    PngDecoder::with_limits(Cursor::new(bytes), limits).map_err(|error| Format::Png.damaged(error))
}

fn open_webp(bytes: &[u8], limits: Limits) -> Result<WebPDecoder<Cursor<&[u8]>>, ImageError> {
    header::check_webp(bytes, limits)?;
    let source = WebPDecoder::new(Cursor::new(bytes)).map_err(|error| Format::Webp.damaged(error))?;
    let (width, height) = source.dimensions();
    header::check_size(Format::Webp, width, height, limits)?;
    Ok(source)
}
