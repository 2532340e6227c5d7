//! Many images at once.

use grampus_core::Random;

use super::{Decoder, ImageError, Limits, Pipeline};

/// Which rows of the data images are: all that their random numbers depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Seed of the run.
    pub seed: u64,
    /// Pass over the data.
    pub epoch: u64,
    /// Row of the first image; the others follow it.
    pub first: u64,
}

impl Rows {
    /// The random numbers of the image that is `number` places behind the first.
    pub fn random(self, number: u64) -> Random {
        Random::from_parts(&[self.seed, self.epoch, self.first.wrapping_add(number)])
    }
}

/// Decodes images into `out`, one after the other, with up to `threads` threads; the numbers do not depend on how many.
/// All must end in one size. An error comes with the number of its image, the first if there are several.
pub fn decode_batch<T: AsRef<[u8]> + Sync>(
    pipeline: &Pipeline,
    images: &[T],
    rows: Rows,
    threads: usize,
    out: &mut [u8],
) -> Result<(), (usize, ImageError)> {
    if images.is_empty() {
        return Ok(());
    }
    let room = out.len() / images.len();
    let share = images.len().div_ceil(threads.max(1));
    let decode_share = |number: usize, images: &[T], places: &mut [u8]| {
        let first = number * share;
        let mut decoder = Decoder::new(Limits::default());
        let places = places.chunks_exact_mut(room.max(1));
        for (at, (image, place)) in (first..).zip(images.iter().zip(places)) {
            pipeline
                .run(&mut decoder, image.as_ref(), &mut rows.random(at as u64), place)
                .map_err(|error| (at, error))?;
        }
        Ok(())
    };
    if threads <= 1 {
        return decode_share(0, images, out);
    }
    std::thread::scope(|scope| {
        let shares = images
            .chunks(share)
            .zip(out.chunks_mut((share * room).max(1)))
            .enumerate();
        let running: Vec<_> = shares
            .map(|(number, (images, places))| {
                std::thread::Builder::new()
                    .spawn_scoped(scope, move || decode_share(number, images, places))
                    .map_err(|error| (number * share, ImageError::NoThread(error)))
            })
            .collect();
        running.into_iter().try_for_each(|thread| {
            thread?
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}
