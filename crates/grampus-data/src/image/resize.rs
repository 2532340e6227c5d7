//! Pictures in another size.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::{U8, U8x3};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions};

use super::view::View;
use super::{ImageError, Limits, Picture};

/// Bilinear, over all pixels that a new one covers (antialias): what Pillow does, and torchvision by default.
#[derive(Debug, Default)]
pub(super) struct Resizer {
    engine: fast_image_resize::Resizer,
    part: Picture,
    target: Picture,
}

impl Resizer {
    /// Puts the view of a picture, in another size, in its place; a mirrored view stays one of the new picture.
    pub(super) fn resize(
        &mut self,
        picture: &mut Picture,
        view: &View,
        (width, height): (u32, u32),
        limits: Limits,
    ) -> Result<View, ImageError> {
        // A picture of one row can become one of millions of columns.
        limits.check(width, height)?;
        let upright = match view.mirrored {
            true => view.mirror(),
            false => view.clone(),
        };
        if upright != View::whole(picture.width, picture.height) {
            self.part.clear(view.width, view.height, picture.channels);
            cut(picture, &upright, &mut self.part);
            std::mem::swap(picture, &mut self.part);
        }
        if (width, height) != (picture.width, picture.height) {
            self.target.clear(width, height, picture.channels);
            self.fill_target(picture)
                .map_err(|reason| ImageError::WrongPipeline {
                    place: format!("resize to {width} x {height}"),
                    reason,
                })?;
            std::mem::swap(picture, &mut self.target);
        }
        let whole = View::whole(width, height);
        Ok(if view.mirrored { whole.mirror() } else { whole })
    }

    fn fill_target(&mut self, picture: &Picture) -> Result<(), String> {
        match picture.channels {
            1 => self.fill::<U8>(picture),
            _ => self.fill::<U8x3>(picture),
        }
    }

    /// With the type of pixels named: where it is looked up, the code of all thirteen kinds is compiled.
    fn fill<P: PixelTrait>(&mut self, picture: &Picture) -> Result<(), String> {
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
        let source = TypedImageRef::<P>::from_buffer(picture.width, picture.height, &picture.pixels)
            .map_err(|error| error.to_string())?;
        let (width, height) = (self.target.width, self.target.height);
        let mut target = TypedImage::<P>::from_buffer(width, height, &mut self.target.pixels)
            .map_err(|error| error.to_string())?;
        self.engine
            .resize_typed(&source, &mut target, &options)
            .map_err(|error| error.to_string())
    }
}

/// The pixels of an upright view, into a picture of its size that is black.
fn cut(from: &Picture, view: &View, into: &mut Picture) {
    let channels = usize::from(from.channels);
    for (number, target) in into
        .pixels
        .chunks_exact_mut(view.width as usize * channels)
        .enumerate()
    {
        let row = view.row(from, number);
        let start = row.black_before * channels;
        target[start..start + row.pixels.len()].copy_from_slice(row.pixels);
    }
}
