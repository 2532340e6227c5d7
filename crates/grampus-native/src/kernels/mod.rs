pub(crate) mod convolution;
mod taps;
