//! LeNet-5 on Fashion-MNIST, in one binary without Python.
//!
//! ```text
//! cargo run --release --example fashion_mnist -- --workers 2 --epochs 5
//! ```

use std::fs::File;
use std::io::Read;

use clap::Parser;
use flate2::read::GzDecoder;
use grampus::nn::CrossEntropy;
use grampus::optim::{Schedule, Sgd};
use grampus::{Estimator, Fit, Shards, models};

#[derive(Parser)]
struct Options {
    /// The folder with the four files of Fashion-MNIST.
    #[arg(long, default_value = "/usr/share/datasets/fashion-mnist")]
    data: String,
    #[arg(long, default_value_t = 2)]
    workers: u32,
    #[arg(long, default_value_t = 5)]
    epochs: u64,
    #[arg(long, default_value_t = 32)]
    batch_size: u64,
    #[arg(long, default_value_t = 0.02)]
    lr: f64,
    /// Threads of each worker; by default the cores are shared among them.
    #[arg(long)]
    threads: Option<u32>,
    /// Use that many rows only.
    #[arg(long)]
    rows: Option<usize>,
    /// Where to save the run; it goes on from there.
    #[arg(long)]
    checkpoint: Option<String>,
    /// Where to write the weights.
    #[arg(long)]
    save: Option<String>,
}

fn main() -> grampus::Result<()> {
    let cluster = grampus::init()?;
    let options = Options::parse();
    let mut cluster = cluster.workers(options.workers);
    if let Some(threads) = options.threads {
        cluster = cluster.threads(threads);
    }
    let train = rows(&options, "train")?;
    let test = rows(&options, "t10k")?;
    let total = options.epochs * train.len()?.div_ceil(options.batch_size);
    let optimizer = Sgd::new(options.lr).momentum(0.9);
    let mut estimator = Estimator::native(models::lenet(10), optimizer, CrossEntropy)
        .schedule(Schedule::Cosine { total, floor: 0.0 })
        .metric("Accuracy")?;
    let mut fit = Fit::epochs(options.epochs)
        .batch_size(options.batch_size)
        .validation(&test);
    if let Some(place) = &options.checkpoint {
        fit = fit.checkpoint(place).resume();
    }
    estimator.fit(&cluster, &train, fit)?;
    let found = estimator.evaluate(&cluster, &test)?;
    // Of several ranks of `grampus run`, one speaks for all.
    if cluster.leads() {
        let accuracy = found.get("accuracy").unwrap_or(0.0);
        println!("accuracy {accuracy:.4} on {} rows", found.num_samples);
        if let Some(path) = &options.save {
            estimator.save(path)?;
        }
    }
    Ok(())
}

/// Pictures and their classes, each pixel from 0 to 1.
fn rows(options: &Options, part: &str) -> grampus::Result<Shards> {
    let pixels = numbers(&options.data, &format!("{part}-images-idx3-ubyte.gz"), 16)?;
    let classes = numbers(&options.data, &format!("{part}-labels-idx1-ubyte.gz"), 8)?;
    let count = options.rows.unwrap_or(usize::MAX).min(classes.len());
    let pixels = pixels[..count * 784]
        .iter()
        .map(|pixel| f32::from(*pixel) / 255.0);
    let classes = classes[..count].iter().map(|class| f32::from(*class));
    Shards::arrays((pixels.collect(), [1, 28, 28]), (classes.collect(), []))
}

/// The bytes of a file behind its header.
fn numbers(folder: &str, name: &str, header: usize) -> grampus::Result<Vec<u8>> {
    let path = format!("{folder}/{name}");
    let mut bytes = Vec::new();
    File::open(&path)
        .and_then(|file| GzDecoder::new(file).read_to_end(&mut bytes))
        .map_err(|error| grampus::Error::Asked(format!("{path}: {error}: give the folder with --data")))?;
    Ok(bytes.split_off(header.min(bytes.len())))
}
