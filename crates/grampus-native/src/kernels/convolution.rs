//! Convolutions, forward and backward, over the tracks of [`super::taps`].
//!
//! A picture is laid onto a track row by row, with zeros around it. The zeros behind a row serve as those before the next one, and
//! those below a picture as those above the next, so few places are wasted. With a stride, the picture is dealt onto several
//! tracks (*planes*), one for each remainder of row and column: along each of them the stride is one again.

use std::ops::Range;

use crate::real::Real;

use super::taps::{Correlate, SPILL, Slide, pack};

/// Bytes that the tracks of one round of pictures may take: they are to stay in the cache of a core.
const CACHE: usize = 2 << 20;
/// Places of an output track beyond which longer ones do not pay.
const LONG: usize = 1536;

/// A convolution of pictures of one size.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Geometry {
    pub(crate) in_channels: usize,
    pub(crate) out_channels: usize,
    pub(crate) groups: usize,
    pub(crate) input: [usize; 2],
    pub(crate) output: [usize; 2],
    pub(crate) kernel: [usize; 2],
    pub(crate) stride: [usize; 2],
    pub(crate) padding: [usize; 2],
    pub(crate) dilation: [usize; 2],
}

/// One of the places that an output reads.
#[derive(Clone, Copy, Debug)]
struct Tap {
    plane: usize,
    /// How far behind the output's own place it lies.
    offset: usize,
}

/// How tracks are laid out.
#[derive(Clone, Debug)]
struct Layout {
    /// Places of a row, and of a picture.
    row: usize,
    picture: usize,
    /// For each row and column of the kernel.
    taps: Vec<Tap>,
    planes: usize,
    /// Zeros before the first picture, as many as the furthest tap is away.
    lead: usize,
    /// Pictures of a round, and places of a track.
    round: usize,
    track: usize,
}

/// A convolution, with the memory that it needs.
#[derive(Clone, Debug)]
pub(crate) struct Convolution<T> {
    of: Geometry,
    layout: Layout,
    /// Pictures, errors, and what comes out, on tracks.
    inputs: Vec<T>,
    errors: Vec<T>,
    out: Vec<T>,
    packed: Vec<T>,
    taps: Vec<usize>,
}

impl<T: Real> Convolution<T> {
    pub(crate) fn new(of: Geometry, rows: usize) -> Self {
        let layout = Layout::new(&of, rows, size_of::<T>());
        Self {
            of,
            layout,
            inputs: Vec::new(),
            errors: Vec::new(),
            out: Vec::new(),
            packed: Vec::new(),
            taps: Vec::new(),
        }
    }

    /// `output = convolution of input`; `finish(channel, row)` has the last word on each row of it.
    pub(crate) fn forward(
        &mut self,
        rows: usize,
        input: &[T],
        weights: &[T],
        output: &mut [T],
        mut finish: impl FnMut(usize, &mut [T]),
    ) {
        let (per_in, per_out) = self.per_group();
        for group in 0..self.of.groups {
            self.pack_forward(group, weights);
            for round in rounds(rows, self.layout.round) {
                self.lay_inputs(input, &round, group * per_in);
                let length = round.len() * self.layout.picture;
                self.out.resize(per_out * self.layout.track, T::zero());
                Slide {
                    track: &self.inputs,
                    taps: &self.taps,
                    weights: &self.packed,
                    out: &mut self.out,
                    pitch: self.layout.track,
                    channels: per_out,
                    length,
                }
                .run();
                let [height, width] = self.of.output;
                for (place, picture) in round.clone().enumerate() {
                    for channel in 0..per_out {
                        let from = &self.out[channel * self.layout.track + place * self.layout.picture..];
                        let whole = group * per_out + channel;
                        let start = (picture * self.of.out_channels + whole) * height * width;
                        let into = &mut output[start..start + height * width];
                        for (into, from) in into.chunks_exact_mut(width).zip(from.chunks(self.layout.row)) {
                            into.copy_from_slice(&from[..width]);
                        }
                        finish(whole, into);
                    }
                }
            }
        }
    }

    /// Adds to the gradient of the weights.
    pub(crate) fn weight_gradient(&mut self, rows: usize, input: &[T], errors: &[T], d_weights: &mut [T]) {
        let (per_in, per_out) = self.per_group();
        let per_group = d_weights.len() / self.of.groups;
        self.place_taps();
        for (group, d_weights) in d_weights.chunks_exact_mut(per_group).enumerate() {
            for round in rounds(rows, self.layout.round) {
                self.lay_inputs(input, &round, group * per_in);
                self.lay_errors(errors, &round, group * per_out);
                Correlate {
                    rows: &self.errors[self.layout.lead..],
                    pitch: self.layout.track,
                    channels: per_out,
                    length: round.len() * self.layout.picture,
                    track: &self.inputs,
                    taps: &self.taps,
                    out: d_weights,
                }
                .run();
            }
        }
    }

    /// Writes the gradient of the input.
    pub(crate) fn input_gradient(&mut self, rows: usize, weights: &[T], errors: &[T], d_input: &mut [T]) {
        let (per_in, per_out) = self.per_group();
        let kernel = self.layout.taps.len();
        for group in 0..self.of.groups {
            let weights = &weights[group * per_out * per_in * kernel..];
            for plane in 0..self.layout.planes {
                self.pack_plane(plane, weights);
                for round in rounds(rows, self.layout.round) {
                    self.lay_errors(errors, &round, group * per_out);
                    self.out.resize(per_in * self.layout.track, T::zero());
                    Slide {
                        track: &self.errors,
                        taps: &self.taps,
                        weights: &self.packed,
                        out: &mut self.out,
                        pitch: self.layout.track,
                        channels: per_in,
                        length: round.len() * self.layout.picture,
                    }
                    .run();
                    self.take_plane(plane, &round, group * per_in, d_input);
                }
            }
        }
    }

    /// Taps and weights that lead from errors to one plane of the input.
    fn pack_plane(&mut self, plane: usize, weights: &[T]) {
        let (per_in, per_out) = self.per_group();
        let layout = &self.layout;
        let kernel = layout.taps.len();
        let mine: Vec<usize> = (0..kernel)
            .filter(|tap| layout.taps[*tap].plane == plane)
            .collect();
        self.taps.clear();
        for channel in 0..per_out {
            let offsets = mine.iter().map(|tap| layout.taps[*tap].offset);
            self.taps
                .extend(offsets.map(|offset| channel * layout.track + layout.lead - offset));
        }
        pack(&mut self.packed, per_in, self.taps.len(), |channel, tap| {
            let (from, tap) = (tap / mine.len(), mine[tap % mine.len()]);
            weights[(from * per_in + channel) * kernel + tap]
        });
    }

    fn per_group(&self) -> (usize, usize) {
        (
            self.of.in_channels / self.of.groups,
            self.of.out_channels / self.of.groups,
        )
    }

    /// Where outputs read the input.
    fn place_taps(&mut self) {
        let layout = &self.layout;
        let track = |channel: usize, tap: &Tap| (channel * layout.planes + tap.plane) * layout.track;
        self.taps.clear();
        for channel in 0..self.of.in_channels / self.of.groups {
            let taps = layout.taps.iter();
            self.taps
                .extend(taps.map(|tap| track(channel, tap) + layout.lead + tap.offset));
        }
    }

    fn pack_forward(&mut self, group: usize, weights: &[T]) {
        let (per_in, per_out) = self.per_group();
        self.place_taps();
        let count = per_in * self.layout.taps.len();
        let weights = &weights[group * per_out * count..];
        pack(&mut self.packed, per_out, count, |channel, tap| {
            weights[channel * count + tap]
        });
    }

    /// Pictures onto tracks, whose zeros nobody writes to.
    fn lay_inputs(&mut self, input: &[T], round: &Range<usize>, first: usize) {
        let (per_in, _) = self.per_group();
        let layout = &self.layout;
        self.inputs
            .resize(per_in * layout.planes * layout.track, T::zero());
        let [height, width] = self.of.input;
        for channel in 0..per_in {
            for plane in 0..layout.planes {
                let track =
                    &mut self.inputs[(channel * layout.planes + plane) * layout.track..][..layout.track];
                for (place, picture) in round.clone().enumerate() {
                    let from = &input[(picture * self.of.in_channels + first + channel) * height * width..];
                    self.of.each_row(plane, |row, y, column, xs| {
                        let into =
                            &mut track[layout.lead + place * layout.picture + row * layout.row + column..];
                        let from = &from[y * width..][..width];
                        spread(&from[xs.start..], self.of.stride[1], &mut into[..xs.len()]);
                    });
                }
            }
        }
    }

    fn lay_errors(&mut self, errors: &[T], round: &Range<usize>, first: usize) {
        let (_, per_out) = self.per_group();
        let layout = &self.layout;
        self.errors.resize(per_out * layout.track, T::zero());
        let [height, width] = self.of.output;
        for channel in 0..per_out {
            let track = &mut self.errors[channel * layout.track..][..layout.track];
            for (place, picture) in round.clone().enumerate() {
                let from = &errors[(picture * self.of.out_channels + first + channel) * height * width..];
                let from = from[..height * width].chunks_exact(width);
                let into = track[layout.lead + place * layout.picture..].chunks_mut(layout.row);
                for (into, from) in into.zip(from) {
                    into[..width].copy_from_slice(from);
                }
            }
            // A shorter round leaves pictures of the one before, which must not count.
            let end = layout.lead + round.len() * layout.picture;
            track[end..end + SPILL].fill(T::zero());
        }
    }

    fn take_plane(&self, plane: usize, round: &Range<usize>, first: usize, d_input: &mut [T]) {
        let (per_in, _) = self.per_group();
        let layout = &self.layout;
        let [height, width] = self.of.input;
        for channel in 0..per_in {
            for (place, picture) in round.clone().enumerate() {
                let from = &self.out[channel * layout.track + place * layout.picture..];
                let into = &mut d_input[(picture * self.of.in_channels + first + channel) * height * width..];
                self.of.each_row(plane, |row, y, column, xs| {
                    let from = &from[row * layout.row + column..][..xs.len()];
                    let into = &mut into[y * width..][..width];
                    gather(from, self.of.stride[1], &mut into[xs.start..]);
                });
            }
        }
    }
}

/// Every `step`th of the numbers.
fn spread<T: Real>(from: &[T], step: usize, into: &mut [T]) {
    match step {
        1 => into.copy_from_slice(&from[..into.len()]),
        2 => {
            // Pairs, all but the last of which are whole: this becomes one shuffle for many of them.
            let whole = into.len().saturating_sub(1);
            for (into, from) in into[..whole].iter_mut().zip(from.chunks_exact(2)) {
                *into = from[0];
            }
            if let Some(last) = into.last_mut() {
                *last = from[2 * whole];
            }
        }
        _ => {
            for (into, from) in into.iter_mut().zip(from.iter().step_by(step)) {
                *into = *from;
            }
        }
    }
}

/// To every `step`th of the places.
fn gather<T: Real>(from: &[T], step: usize, into: &mut [T]) {
    if step == 1 {
        into[..from.len()].copy_from_slice(from);
    } else {
        for (into, from) in into.iter_mut().step_by(step).zip(from) {
            *into = *from;
        }
    }
}

/// The rows, cut into rounds of so many.
fn rounds(rows: usize, round: usize) -> impl Iterator<Item = Range<usize>> {
    (0..rows)
        .step_by(round)
        .map(move |start| start..(start + round).min(rows))
}

impl Geometry {
    /// Tells of every row that a plane has of the input: its number on the plane, its number in the picture, the first column on
    /// the plane, and which columns of the picture it takes, from the first on.
    fn each_row(&self, plane: usize, mut tell: impl FnMut(usize, usize, usize, Range<usize>)) {
        let (dy, dx) = (plane / self.stride[1], plane % self.stride[1]);
        let (row, y) = begin(dy, self.padding[0], self.stride[0]);
        let (column, x) = begin(dx, self.padding[1], self.stride[1]);
        let [height, width] = self.input;
        let count = width.saturating_sub(x).div_ceil(self.stride[1]);
        if count == 0 {
            return;
        }
        for (number, y) in (y..height).step_by(self.stride[0]).enumerate() {
            tell(row + number, y, column, x..x + count);
        }
    }
}

/// The first place on a plane that holds something of the input, and which row or column that is.
fn begin(remainder: usize, padding: usize, stride: usize) -> (usize, usize) {
    // On the plane lies what has this remainder in the padded picture.
    let place = padding.saturating_sub(remainder).div_ceil(stride);
    (place, place * stride + remainder - padding)
}

impl Layout {
    fn new(of: &Geometry, rows: usize, size: usize) -> Self {
        let extent = |axis: usize| match of.stride[axis] {
            1 => (of.input[axis] + of.padding[axis]).max(of.output[axis]),
            stride => (of.input[axis] + 2 * of.padding[axis]).div_ceil(stride),
        };
        let (high, row) = (extent(0), extent(1));
        let picture = high * row;
        let mut taps = Vec::new();
        for y in 0..of.kernel[0] {
            for x in 0..of.kernel[1] {
                let (y, x) = (y * of.dilation[0], x * of.dilation[1]);
                taps.push(Tap {
                    plane: (y % of.stride[0]) * of.stride[1] + x % of.stride[1],
                    offset: (y / of.stride[0]) * row + x / of.stride[1],
                });
            }
        }
        let lead = taps.iter().map(|tap| tap.offset).max().unwrap_or(0);
        let planes = of.stride[0] * of.stride[1];
        let tracks = (of.in_channels * planes + of.out_channels) / of.groups;
        let most = (CACHE / (tracks * picture * size).max(1)).min(LONG / picture.max(1));
        let round = most.clamp(1, rows.max(1));
        let track = lead + round * picture + lead + SPILL;
        Self {
            row,
            picture,
            taps,
            planes,
            lead,
            round,
            track,
        }
    }
}
