//! Models that train, evaluate and predict on many workers, in Rust alone; and the `grampus` command.
//!
//! A program calls [`init`] first. Its workers are the same program, started again.
//!
//! ```no_run
//! use grampus::nn::{CrossEntropy, Linear, Relu, Sequential};
//! use grampus::optim::Sgd;
//! use grampus::{Estimator, Fit, Shards};
//!
//! fn main() -> grampus::Result<()> {
//!     let cluster = grampus::init()?.workers(4);
//!     let data = Shards::parquet("data/*.parquet")?.features(["a", "b", "c"]).labels(["class"]);
//!     let model = Sequential::new().add(Linear::new(3, 64)).add(Relu).add(Linear::new(64, 10));
//!     let mut estimator = Estimator::native(model, Sgd::new(0.01).momentum(0.9), CrossEntropy).metric("Accuracy")?;
//!     let history = estimator.fit(&cluster, &data, Fit::epochs(2).batch_size(64))?;
//!     println!("{history}");
//!     estimator.save("model.safetensors")
//! }
//! ```

#[cfg(feature = "cli")]
pub mod cli;
mod cluster;
mod error;
mod estimator;
pub mod models;
mod shards;

pub use cluster::{Cluster, init};
pub use error::{Error, Result};
pub use estimator::{Estimator, Fit, History};
pub use grampus_collective as collective;
pub use grampus_data as data;
pub use grampus_train as train;
pub use grampus_train::fit::Record;
pub use grampus_train::native::{Array, Evaluation, Figure};
pub use grampus_train::trigger::Trigger;
pub use shards::Shards;

/// Layers, losses, and models made of them.
pub mod nn {
    pub use grampus_native::layers::*;
    pub use grampus_native::{CrossEntropy, Loss, Model, NativeError, Network, Rows, Sequential, Shape};
}

/// How weights follow from gradients, and how learning rates change.
pub mod optim {
    pub use grampus_native::optim::{
        Adadelta, Adagrad, Adam, AdamW, Adamax, Ftrl, Lamb, Optimizer, RmsProp, Sgd,
    };
    pub use grampus_native::schedule::{Mode, OneCycle, Plateau, Schedule, Stage};
}
