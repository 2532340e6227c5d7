//! Pictures made smaller.

use serde::{Deserialize, Serialize};

use crate::description::Describe;
use crate::error::NativeError;
use crate::kernel::{Backward, Forward, Kernel};
use crate::layers::convolution::pair;
use crate::real::{Real, wide_loop};
use crate::shape::Shape;

/// The greatest pixel of each window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MaxPool2d {
    /// Height and width of the window.
    pub kernel: [usize; 2],
    /// How far apart windows are.
    pub stride: [usize; 2],
    /// Pixels around the picture that never are the greatest.
    pub padding: [usize; 2],
}

impl MaxPool2d {
    /// Square windows beside each other.
    pub fn new(kernel: usize) -> Self {
        Self {
            kernel: [kernel; 2],
            stride: [kernel; 2],
            padding: [0; 2],
        }
    }

    /// How far apart windows are.
    pub fn stride(self, stride: usize) -> Self {
        Self {
            stride: [stride; 2],
            ..self
        }
    }

    /// Pixels around the picture that never are the greatest.
    pub fn padding(self, padding: usize) -> Self {
        Self {
            padding: [padding; 2],
            ..self
        }
    }
}

impl Describe for MaxPool2d {
    fn check(&self) -> Result<(), String> {
        if self.kernel.contains(&0) || self.stride.contains(&0) {
            return Err("kernel and stride must be at least 1".into());
        }
        match self
            .padding
            .iter()
            .zip(&self.kernel)
            .all(|(padding, kernel)| 2 * padding <= *kernel)
        {
            true => Ok(()),
            false => Err("padding must be at most half of the kernel".into()),
        }
    }

    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        let [channels, height, width] = *inputs[0].axes() else {
            return Err(format!(
                "needs pictures of channels x height x width, and {} came in",
                inputs[0]
            ));
        };
        let along = |axis: usize, length: usize| {
            let whole = (length + 2 * self.padding[axis]).checked_sub(self.kernel[axis])?;
            Some(whole / self.stride[axis] + 1)
        };
        match (along(0, height), along(1, width)) {
            (Some(height), Some(width)) => Ok(Shape::from([channels, height, width])),
            _ => Err(format!("its window is larger than what came in, {}", inputs[0])),
        }
    }

    fn kernel<T: Real>(&self, inputs: &[Shape], _rows: usize) -> Box<dyn Kernel<T>> {
        let axes = inputs[0].axes();
        let output = self.shape(inputs).unwrap_or_default();
        let output = [output.0[1], output.0[2]];
        Box::new(Greatest {
            of: self.clone(),
            channels: axes[0],
            input: [axes[1], axes[2]],
            output,
            taken: Vec::new(),
        })
    }

    fn told(&self) -> String {
        let mut text = format!("MaxPool2d({}", pair(self.kernel));
        if self.stride != self.kernel {
            text += &format!(", stride={}", pair(self.stride));
        }
        if self.padding != [0; 2] {
            text += &format!(", padding={}", pair(self.padding));
        }
        text + ")"
    }
}

struct Greatest {
    of: MaxPool2d,
    channels: usize,
    input: [usize; 2],
    output: [usize; 2],
    /// Which pixel of its picture each output is.
    taken: Vec<u32>,
}

impl<T: Real> Kernel<T> for Greatest {
    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError> {
        self.taken.resize(at.output.len(), 0);
        let ([height, width], pixels) = (self.input, self.input[0] * self.input[1]);
        let pictures = at.inputs[0].chunks_exact(pixels);
        let outputs = self.output[0] * self.output[1];
        let outputs = at
            .output
            .chunks_exact_mut(outputs)
            .zip(self.taken.chunks_exact_mut(outputs));
        let plain = self.of.kernel == [2; 2] && self.of.stride == [2; 2] && self.of.padding == [0; 2];
        let along = self.output[1];
        if plain {
            wide_loop(
                #[inline(always)]
                || {
                    for (picture, (output, taken)) in pictures.zip(outputs) {
                        let rows = output.chunks_exact_mut(along).zip(taken.chunks_exact_mut(along));
                        for (y, (output, taken)) in rows.enumerate() {
                            pairs(picture, width, 2 * y, output, taken);
                        }
                    }
                },
            );
            return Ok(());
        }
        for (picture, (output, taken)) in pictures.zip(outputs) {
            let rows = output.chunks_exact_mut(along).zip(taken.chunks_exact_mut(along));
            for (y, (output, taken)) in rows.enumerate() {
                let ys = window(
                    y,
                    self.of.stride[0],
                    self.of.padding[0],
                    self.of.kernel[0],
                    height,
                );
                for (x, (output, taken)) in output.iter_mut().zip(taken).enumerate() {
                    let xs = window(x, self.of.stride[1], self.of.padding[1], self.of.kernel[1], width);
                    (*output, *taken) = greatest(picture, width, ys.clone(), xs);
                }
            }
        }
        Ok(())
    }

    fn backward(&mut self, at: Backward<'_, T>) {
        let Some(d_input) = &mut at.d_inputs[0] else {
            return;
        };
        d_input.fill(T::zero());
        let pictures = d_input.chunks_exact_mut(self.input[0] * self.input[1]);
        let outputs = self.output[0] * self.output[1];
        let errors = at
            .d_output
            .chunks_exact(outputs)
            .zip(self.taken.chunks_exact(outputs));
        for (picture, (errors, taken)) in pictures.zip(errors) {
            for (error, taken) in errors.iter().zip(taken) {
                picture[*taken as usize] += *error;
            }
        }
        debug_assert_eq!(at.rows * self.channels * outputs, at.d_output.len());
    }
}

/// Where a window lies that begins before the picture, or ends behind it.
fn window(
    place: usize,
    stride: usize,
    padding: usize,
    kernel: usize,
    length: usize,
) -> std::ops::Range<usize> {
    let start = place * stride;
    start.saturating_sub(padding)..(start + kernel).saturating_sub(padding).min(length)
}

/// The first of the greatest pixels; one that is no number is greater than all.
fn greatest<T: Real>(
    picture: &[T],
    width: usize,
    ys: std::ops::Range<usize>,
    xs: std::ops::Range<usize>,
) -> (T, u32) {
    let mut found = (T::neg_infinity(), ys.start * width + xs.start);
    for y in ys {
        for x in xs.clone() {
            let value = picture[y * width + x];
            if value > found.0 || value.is_nan() {
                found = (value, y * width + x);
            }
        }
    }
    (found.0, found.1 as u32)
}

/// Windows of two by two pixels beside each other, along two rows of a picture.
#[inline(always)]
fn pairs<T: Real>(picture: &[T], width: usize, y: usize, output: &mut [T], taken: &mut [u32]) {
    let upper = picture[y * width..][..2 * output.len()].as_chunks::<2>().0;
    let lower = picture[(y + 1) * width..][..2 * output.len()].as_chunks::<2>().0;
    let (first, below) = ((y * width) as u32, width as u32);
    let windows = upper.iter().zip(lower);
    for (x, ((output, taken), (up, low))) in output.iter_mut().zip(taken).zip(windows).enumerate() {
        let mut found = (up[0], 0);
        for (value, place) in [(up[1], 1), (low[0], below), (low[1], below + 1)] {
            // What is no number comes in too. Both are asked at once: a branch would keep the loop from being wide.
            let takes = (value > found.0) | value.is_nan();
            found = (
                if takes { value } else { found.0 },
                if takes { place } else { found.1 },
            );
        }
        *output = found.0;
        *taken = first + 2 * x as u32 + found.1;
    }
}
