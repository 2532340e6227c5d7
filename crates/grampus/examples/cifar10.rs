//! ResNet-18 on pictures in Parquet files: decoded, turned and cropped by threads while the model trains.
//!
//! The files have a column `image` with the bytes of JPEG or PNG files, and a column `label`.
//!
//! ```text
//! cargo run --release --example cifar10 -- 'cifar10/*.parquet' --workers 4
//! ```

use clap::Parser;
use grampus::data::image::{Output, Pipeline, Step};
use grampus::nn::CrossEntropy;
use grampus::optim::{Schedule, Sgd};
use grampus::{Estimator, Fit, Shards, models};

#[derive(Parser)]
struct Options {
    /// The files: a path, a pattern or a folder.
    files: String,
    #[arg(long, default_value_t = 2)]
    workers: u32,
    #[arg(long, default_value_t = 10)]
    epochs: u64,
    #[arg(long, default_value_t = 128)]
    batch_size: u64,
    #[arg(long, default_value_t = 0.1)]
    lr: f64,
    /// End after so many steps.
    #[arg(long)]
    max_steps: Option<u64>,
}

fn main() -> grampus::Result<()> {
    let cluster = grampus::init()?;
    let options = Options::parse();
    let cluster = cluster.workers(options.workers);
    let steps = vec![
        Step::RandomCrop {
            width: 32,
            height: 32,
            padding: 4,
        },
        Step::FlipHorizontal { probability: 0.5 },
    ];
    let pipeline =
        Pipeline::new(steps, Output::default()).map_err(|error| grampus::Error::Asked(error.to_string()))?;
    let data = Shards::parquet(&options.files)?
        .images("image", pipeline)
        .labels(["label"]);
    let total = options.epochs * data.len()?.div_ceil(options.batch_size);
    let optimizer = Sgd::new(options.lr).momentum(0.9).weight_decay(5e-4);
    let mut estimator = Estimator::native(models::resnet18(10), optimizer, CrossEntropy)
        .schedule(Schedule::Cosine { total, floor: 0.0 })
        .metric("Accuracy")?;
    let mut fit = Fit::epochs(options.epochs).batch_size(options.batch_size);
    if let Some(steps) = options.max_steps {
        fit = fit.max_steps(steps);
    }
    let history = estimator.fit(&cluster, &data, fit)?;
    println!("{}", history.reason);
    Ok(())
}
