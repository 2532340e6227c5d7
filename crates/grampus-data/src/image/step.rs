//! What is done to a picture, and which part of it that needs: arithmetic only, no pixel is touched here.

use grampus_core::Random;
use serde::{Deserialize, Serialize};

use super::ImageError;
use super::view::View;

/// One step between the file and the batch. Sizes and rules are those of torchvision's transforms of the same names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// To exactly this size, whatever the proportions were.
    Resize {
        /// New width.
        width: u32,
        /// New height.
        height: u32,
    },
    /// The shorter side to this length, the other in proportion.
    ResizeShorter {
        /// New length of the shorter side.
        side: u32,
    },
    /// The middle; where the picture is smaller, black is added around it.
    CenterCrop {
        /// Width of the part.
        width: u32,
        /// Height of the part.
        height: u32,
    },
    /// A part at a random place of the picture with a black border.
    RandomCrop {
        /// Width of the part.
        width: u32,
        /// Height of the part.
        height: u32,
        /// Width of the border on each of the four sides.
        #[serde(default)]
        padding: u32,
    },
    /// A part of random size, shape and place, resized.
    RandomResizedCrop {
        /// New width.
        width: u32,
        /// New height.
        height: u32,
        /// The part of the area, from and to.
        #[serde(default = "any_scale")]
        scale: (f64, f64),
        /// Width divided by height, from and to.
        #[serde(default = "any_ratio")]
        ratio: (f64, f64),
    },
    /// Left and right exchanged in some of the images.
    FlipHorizontal {
        /// In how many, from 0 to 1.
        probability: f64,
    },
}

fn any_scale() -> (f64, f64) {
    (0.08, 1.0)
}

fn any_ratio() -> (f64, f64) {
    (0.75, 4.0 / 3.0)
}

/// What a step needs: a part of the picture, and that part in another size.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) view: View,
    pub(super) resize: Option<(u32, u32)>,
}

impl Step {
    /// What is wrong with the numbers of the step.
    pub(super) fn problem(&self) -> Option<String> {
        let sides: &[u32] = match self {
            Self::Resize { width, height }
            | Self::CenterCrop { width, height }
            | Self::RandomCrop { width, height, .. }
            | Self::RandomResizedCrop { width, height, .. } => &[*width, *height],
            Self::ResizeShorter { side } => &[*side],
            Self::FlipHorizontal { .. } => &[],
        };
        if let Some(side) = sides.iter().find(|side| !(1..=MAX_SIDE).contains(*side)) {
            return Some(format!("a side of {side} pixels: give 1 to {MAX_SIDE}"));
        }
        match self {
            Self::RandomCrop { padding, .. } if *padding > MAX_SIDE => {
                Some(format!("a padding of {padding} pixels: give 0 to {MAX_SIDE}"))
            }
            Self::RandomResizedCrop { scale, ratio, .. } => {
                range_problem("scale", *scale, 1.0).or_else(|| range_problem("ratio", *ratio, f64::MAX))
            }
            Self::FlipHorizontal { probability } if !(0.0..=1.0).contains(probability) => {
                Some(format!("a probability of {probability}: give 0 to 1"))
            }
            _ => None,
        }
    }

    /// Width and height after the step, where they are known without or with those before it.
    pub(super) fn size_after(&self, before: Option<(u32, u32)>) -> Option<(u32, u32)> {
        match self {
            Self::Resize { width, height }
            | Self::CenterCrop { width, height }
            | Self::RandomCrop { width, height, .. }
            | Self::RandomResizedCrop { width, height, .. } => Some((*width, *height)),
            Self::ResizeShorter { side } => before.map(|size| shorter_to(*side, size)),
            Self::FlipHorizontal { .. } => before,
        }
    }

    /// What to do with the view `of` a picture. A step that has chances draws one number, whatever the image: so it never
    /// shifts the numbers of the next.
    pub(super) fn plan(&self, of: &View, random: &mut Random) -> Result<Plan, ImageError> {
        let size = (of.width, of.height);
        let cropped = |view| Plan { view, resize: None };
        Ok(match *self {
            Self::Resize { width, height } => Plan {
                view: of.clone(),
                resize: Some((width, height)),
            },
            Self::ResizeShorter { side } => Plan {
                view: of.clone(),
                resize: Some(shorter_to(side, size)),
            },
            Self::CenterCrop { width, height } => {
                cropped(of.crop(middle(size.0, width), middle(size.1, height), width, height))
            }
            Self::RandomCrop {
                width,
                height,
                padding,
            } => cropped(random_crop(of, (width, height), padding, &mut own(random))?),
            Self::RandomResizedCrop {
                width,
                height,
                scale,
                ratio,
            } => Plan {
                view: random_part(of, scale, ratio, &mut own(random)),
                resize: Some((width, height)),
            },
            Self::FlipHorizontal { probability } => match fraction(&mut own(random)) < probability {
                true => cropped(of.mirror()),
                false => cropped(of.clone()),
            },
        })
    }
}

/// As JPEG's.
const MAX_SIDE: u32 = 65_535;

fn range_problem(name: &str, (from, to): (f64, f64), most: f64) -> Option<String> {
    (!(from > 0.0 && from <= to && to <= most)).then(|| {
        format!("a {name} from {from} to {to}: give two numbers above 0, the smaller first, none over {most}")
    })
}

fn shorter_to(side: u32, (width, height): (u32, u32)) -> (u32, u32) {
    let shorter = u64::from(width.min(height).max(1));
    let in_proportion =
        |length: u32| u32::try_from(u64::from(side) * u64::from(length) / shorter).unwrap_or(u32::MAX);
    (in_proportion(width), in_proportion(height))
}

/// Where a part begins that is in the middle: halves to the even number, as torchvision rounds.
fn middle(whole: u32, part: u32) -> i64 {
    let over = i64::from(whole) - i64::from(part);
    match over < 0 {
        true => -(-over / 2),
        false => (over as f64 / 2.0).round_ties_even() as i64,
    }
}

/// A generator for one step, which may then draw as often as it likes.
fn own(random: &mut Random) -> Random {
    Random::new(random.next_u64())
}

/// From 0 to below 1.
fn fraction(random: &mut Random) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

fn random_crop(
    of: &View,
    (width, height): (u32, u32),
    padding: u32,
    random: &mut Random,
) -> Result<View, ImageError> {
    let padded = |side: u32| side.saturating_add(2 * padding);
    let (room_x, room_y) = (
        padded(of.width).checked_sub(width),
        padded(of.height).checked_sub(height),
    );
    let (Some(room_x), Some(room_y)) = (room_x, room_y) else {
        return Err(ImageError::TooSmall {
            width: padded(of.width),
            height: padded(of.height),
            crop_width: width,
            crop_height: height,
        });
    };
    let left = random.below(u64::from(room_x) + 1) as i64 - i64::from(padding);
    let top = random.below(u64::from(room_y) + 1) as i64 - i64::from(padding);
    Ok(of.crop(left, top, width, height))
}

/// A part of random area and shape; after ten that do not fit, the largest in the middle whose shape is allowed.
fn random_part(of: &View, scale: (f64, f64), ratio: (f64, f64), random: &mut Random) -> View {
    let (whole_width, whole_height) = (f64::from(of.width), f64::from(of.height));
    for _ in 0..10 {
        let area = whole_width * whole_height * (scale.0 + (scale.1 - scale.0) * fraction(random));
        let shape = ratio.0 * power(ratio.1 / ratio.0, random.next_u64() as u16);
        let (width, height) = ((area * shape).sqrt().round(), (area / shape).sqrt().round());
        if (1.0..=whole_width).contains(&width) && (1.0..=whole_height).contains(&height) {
            let (width, height) = (width as u32, height as u32);
            let left = random.below(u64::from(of.width - width) + 1) as i64;
            let top = random.below(u64::from(of.height - height) + 1) as i64;
            return of.crop(left, top, width, height);
        }
    }
    let shape = (whole_width / whole_height).clamp(ratio.0, ratio.1);
    let width = (whole_height * shape).round().clamp(1.0, whole_width) as u32;
    let height = (whole_width / shape).round().clamp(1.0, whole_height) as u32;
    of.crop(middle(of.width, width), middle(of.height, height), width, height)
}

/// `base` to the power of `exponent` / 65,536, by square roots alone: the last bits of `exp` and `ln` are not the same on
/// all machines, and a crop must be.
fn power(base: f64, exponent: u16) -> f64 {
    let (mut root, mut product) = (base, 1.0);
    for bit in (0..16).rev() {
        root = root.sqrt();
        if exponent >> bit & 1 == 1 {
            product *= root;
        }
    }
    product
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
