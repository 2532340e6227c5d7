//! Pixels to the numbers that a model takes, in the order that it takes them.

use serde::{Deserialize, Serialize};

use super::view::View;
use super::{Channels, ImageError, Picture};

/// The type of the numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `(sample * scale - mean) / std`, four bytes each in native order.
    #[default]
    F32,
    /// The samples themselves, 0 to 255.
    U8,
}

/// Which index runs fastest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Channel, row, column: one plane after the other, as PyTorch takes them.
    #[default]
    Chw,
    /// Row, column, channel, as TensorFlow and numpy images have them.
    Hwc,
}

/// Which channels there are, in which order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Red, green, blue.
    #[default]
    Rgb,
    /// Blue, green, red, as OpenCV has them.
    Bgr,
    /// Brightness alone.
    Gray,
}

impl Order {
    /// The channels that the decoder shall give.
    pub(super) fn decoded(self) -> Channels {
        match self {
            Self::Rgb | Self::Bgr => Channels::Rgb,
            Self::Gray => Channels::Gray,
        }
    }

    /// How many there are.
    pub(super) fn count(self) -> usize {
        match self {
            Self::Rgb | Self::Bgr => 3,
            Self::Gray => 1,
        }
    }
}

/// What the steps end in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Output {
    /// Type of the numbers.
    pub kind: Kind,
    /// Order of the indices.
    pub layout: Layout,
    /// Order of the channels.
    pub channels: Order,
    /// What a sample is multiplied with; 1/255 if nothing is said.
    pub scale: Option<f64>,
    /// Taken from each channel: none, one for all, or one for each in their order.
    pub mean: Vec<f64>,
    /// Divides each channel afterwards: none, one for all, or one for each in their order.
    pub std: Vec<f64>,
}

impl Output {
    /// What is wrong with it.
    pub(super) fn problem(&self) -> Option<String> {
        let channels = self.channels.count();
        if self.kind == Kind::U8 && (self.scale.is_some() || !self.mean.is_empty() || !self.std.is_empty()) {
            return Some("u8 holds no scaled or normalised numbers: ask for f32".to_owned());
        }
        if self.scale.is_some_and(|scale| !scale.is_finite()) {
            return Some("the scale is not a finite number".to_owned());
        }
        for (name, values) in [("mean", &self.mean), ("std", &self.std)] {
            if ![0, 1, channels].contains(&values.len()) {
                let given = values.len();
                return Some(format!(
                    "{given} numbers as {name} for {channels} channels: give one for each"
                ));
            }
            if values.iter().any(|value| !value.is_finite()) {
                return Some(format!("a {name} that is not a finite number"));
            }
        }
        (self.std.contains(&0.0)).then(|| "a std of 0: give what to divide by".to_owned())
    }

    fn number(&self, channel: usize, sample: usize) -> f32 {
        let of = |values: &[f64], default| match values {
            [] => default,
            [one] => *one,
            many => many.get(channel).copied().unwrap_or(default),
        };
        let scaled = match self.scale {
            Some(scale) => sample as f64 * scale,
            None => sample as f64 / 255.0,
        };
        ((scaled - of(&self.mean, 0.0)) / of(&self.std, 1.0)) as f32
    }
}

/// What each of the 256 samples becomes, for each channel. Looking it up costs what converting would, needs no case for
/// each output, and gives the bits of the formula in full precision.
#[derive(Clone, Debug)]
pub(super) enum Writer {
    Float(Vec<[[u8; 4]; 256]>),
    Byte,
}

impl Writer {
    pub(super) fn new(output: &Output) -> Self {
        let table = |channel| std::array::from_fn(|sample| output.number(channel, sample).to_ne_bytes());
        match output.kind {
            Kind::F32 => Self::Float((0..output.channels.count()).map(table).collect()),
            Kind::U8 => Self::Byte,
        }
    }

    /// Bytes of one number.
    pub(super) fn width(&self) -> usize {
        match self {
            Self::Float(_) => 4,
            Self::Byte => 1,
        }
    }

    /// Writes a view of a picture to its place in a batch, which must have its size.
    pub(super) fn write(
        &self,
        output: &Output,
        picture: &Picture,
        view: &View,
        out: &mut [u8],
    ) -> Result<(), ImageError> {
        let (width, height) = (view.width as usize, view.height as usize);
        let needed = width * height * output.channels.count() * self.width();
        if out.len() != needed {
            return Err(ImageError::OtherSize {
                width: view.width,
                height: view.height,
                needed,
                given: out.len(),
            });
        }
        let source = Source {
            picture,
            view,
            layout: output.layout,
        };
        match (self, output.channels) {
            (Self::Float(tables), order) => {
                let place = out.as_chunks_mut().0;
                match (order, tables.as_slice()) {
                    (Order::Rgb, [r, g, b]) => source.copy([0, 1, 2], [r, g, b], place),
                    (Order::Bgr, [b, g, r]) => source.copy([2, 1, 0], [b, g, r], place),
                    (_, [gray, ..]) => source.copy([0], [gray], place),
                    _ => {}
                }
            }
            (Self::Byte, Order::Rgb) => source.copy([0, 1, 2], [&SAME; 3], out),
            (Self::Byte, Order::Bgr) => source.copy([2, 1, 0], [&SAME; 3], out),
            (Self::Byte, Order::Gray) => source.copy([0], [&SAME], out),
        }
        Ok(())
    }
}

const SAME: [u8; 256] = {
    let mut table = [0; 256];
    let mut sample = 0;
    while sample < 256 {
        table[sample] = sample as u8;
        sample += 1;
    }
    table
};

struct Source<'a> {
    picture: &'a Picture,
    view: &'a View,
    layout: Layout,
}

impl Source<'_> {
    /// Looks up every sample; `from` says which channel of the picture becomes which of the output.
    fn copy<T: Copy, const N: usize>(&self, from: [usize; N], tables: [&[T; 256]; N], out: &mut [T]) {
        let width = self.view.width as usize;
        if self.layout == Layout::Hwc {
            let black = tables.map(|table| table[0]);
            for (number, target) in out.as_chunks_mut::<N>().0.chunks_exact_mut(width).enumerate() {
                self.copy_row(number, target, black, |pixel: &[u8; N]| {
                    std::array::from_fn(|channel| tables[channel][usize::from(pixel[from[channel]])])
                });
            }
            return;
        }
        let planes = out.chunks_exact_mut(width * self.view.height as usize);
        for ((plane, table), channel) in planes.zip(tables).zip(from) {
            for (number, target) in plane.chunks_exact_mut(width).enumerate() {
                self.copy_row(number, target, table[0], |pixel: &[u8; N]| {
                    table[usize::from(pixel[channel])]
                });
            }
        }
    }

    fn copy_row<T: Copy, const N: usize>(
        &self,
        number: usize,
        target: &mut [T],
        black: T,
        mut value: impl FnMut(&[u8; N]) -> T,
    ) {
        let row = self.view.row(self.picture, number);
        let pixels = row.pixels.as_chunks::<N>().0;
        let (before, rest) = target.split_at_mut(row.black_before.min(target.len()));
        let (seen, after) = rest.split_at_mut(pixels.len().min(rest.len()));
        before.fill(black);
        after.fill(black);
        match self.view.mirrored {
            true => seen
                .iter_mut()
                .rev()
                .zip(pixels)
                .for_each(|(to, pixel)| *to = value(pixel)),
            false => seen
                .iter_mut()
                .zip(pixels)
                .for_each(|(to, pixel)| *to = value(pixel)),
        }
    }
}
