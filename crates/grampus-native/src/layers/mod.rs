//! The kinds of layers.

mod activations;
mod attention;
mod convolution;
mod dropout;
mod embedding;
mod linear;
mod mean_pool;
mod merge;
mod norm;
mod pool;
mod recurrent;
mod shapes;
mod smooth;
mod transposed;

pub use activations::{Elu, LeakyRelu, Relu, Sigmoid, Tanh};
pub use attention::MultiHeadAttention;
pub use convolution::{Conv1d, Conv2d};
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use linear::Linear;
pub use mean_pool::{AdaptiveAvgPool2d, AvgPool2d, GlobalAvgPool};
pub use merge::{Add, Concat, Multiply};
pub use norm::{BatchNorm, LayerNorm};
pub use pool::MaxPool2d;
pub use recurrent::{Gru, Lstm};
pub use shapes::{Flatten, Permute, Reshape};
pub use smooth::{Gelu, LogSoftmax, Silu, Softmax};
pub use transposed::ConvTranspose2d;

use serde::{Deserialize, Serialize};

use crate::activation::Activation;
use crate::description::{Describe, Tensor};
use crate::kernel::Kernel;
use crate::real::Real;
use crate::shape::Shape;

macro_rules! layers {
    ($($kind:ident),* $(,)?) => {
        /// Any layer.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        #[non_exhaustive]
        pub enum Layer {
            $(#[doc = concat!("A [`", stringify!($kind), "`].")] $kind($kind),)*
        }

        $(impl From<$kind> for Layer {
            fn from(layer: $kind) -> Self {
                Self::$kind(layer)
            }
        })*

        impl Layer {
            /// The names of all kinds.
            pub const KINDS: &[&str] = &[$(stringify!($kind)),*];

            pub(crate) fn takes(&self) -> (usize, usize) {
                match self { $(Self::$kind(layer) => layer.takes(),)* }
            }

            pub(crate) fn check(&self) -> Result<(), String> {
                match self { $(Self::$kind(layer) => layer.check(),)* }
            }

            pub(crate) fn parameters(&self) -> Vec<Tensor> {
                match self { $(Self::$kind(layer) => layer.parameters(),)* }
            }

            pub(crate) fn buffers(&self) -> Vec<Tensor> {
                match self { $(Self::$kind(layer) => layer.buffers(),)* }
            }

            pub(crate) fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
                match self { $(Self::$kind(layer) => layer.shape(inputs),)* }
            }

            pub(crate) fn kernel<T: Real>(&self, inputs: &[Shape], rows: usize) -> Box<dyn Kernel<T>> {
                match self { $(Self::$kind(layer) => layer.kernel(inputs, rows),)* }
            }

            /// How it is written: `Linear(784, 512)`.
            pub fn told(&self) -> String {
                match self { $(Self::$kind(layer) => layer.told(),)* }
            }

            /// The activation that it is, where another layer can take it over.
            pub(crate) fn activation(&self) -> Option<Activation> {
                match self { $(Self::$kind(layer) => layer.activation(),)* }
            }

            /// Whether it only gives the same numbers another shape.
            pub(crate) fn only_renames(&self) -> bool {
                match self { $(Self::$kind(layer) => layer.only_renames(),)* }
            }
        }
    };
}

layers!(
    AdaptiveAvgPool2d,
    Add,
    AvgPool2d,
    BatchNorm,
    Concat,
    Conv1d,
    Conv2d,
    ConvTranspose2d,
    Dropout,
    Elu,
    Embedding,
    Flatten,
    Gelu,
    GlobalAvgPool,
    Gru,
    LayerNorm,
    LeakyRelu,
    Linear,
    LogSoftmax,
    Lstm,
    MaxPool2d,
    MultiHeadAttention,
    Multiply,
    Permute,
    Relu,
    Reshape,
    Sigmoid,
    Silu,
    Softmax,
    Tanh,
);
