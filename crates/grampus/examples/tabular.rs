//! An MLP on a table: Parquet files of measurements, in which a model finds the class of each row.
//!
//! ```text
//! cargo run --release --example tabular -- 'data/*.parquet' --features a,b,c --label class --classes 3
//! ```

use clap::Parser;
use grampus::nn::CrossEntropy;
use grampus::optim::Adam;
use grampus::{Estimator, Fit, Shards, models};

#[derive(Parser)]
struct Options {
    /// The files: a path, a pattern or a folder.
    files: String,
    #[arg(long, value_delimiter = ',', required = true)]
    features: Vec<String>,
    #[arg(long)]
    label: String,
    #[arg(long)]
    classes: usize,
    #[arg(long, default_value_t = 2)]
    workers: u32,
    #[arg(long, default_value_t = 10)]
    epochs: u64,
    #[arg(long, default_value_t = 64)]
    batch_size: u64,
    /// Read the files in each epoch, so many row groups at a time, instead of keeping all rows in memory.
    #[arg(long)]
    window: Option<usize>,
}

fn main() -> grampus::Result<()> {
    let cluster = grampus::init()?;
    let options = Options::parse();
    let cluster = cluster.workers(options.workers);
    let mut data = Shards::parquet(&options.files)?
        .features(options.features.clone())
        .labels([options.label.as_str()]);
    if let Some(window) = options.window {
        data = data.streamed(window);
    }
    let model = models::mlp(&[options.features.len(), 64, 64, options.classes], 0.0);
    let mut estimator = Estimator::native(model, Adam::new(1e-3), CrossEntropy).metric("Accuracy")?;
    let fit = Fit::epochs(options.epochs).batch_size(options.batch_size);
    let history = estimator.fit(&cluster, &data, fit)?;
    let found = estimator.evaluate(&cluster, &data)?;
    let accuracy = found.get("accuracy").unwrap_or(0.0);
    println!(
        "{}: accuracy {accuracy:.4} on {} rows",
        history.reason, found.num_samples
    );
    let scores = estimator.predict(&cluster, &data)?;
    println!("{} scores for {} rows", scores[0].values.len(), found.num_samples);
    Ok(())
}
