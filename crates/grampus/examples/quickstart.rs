//! A network that learns the classes of rows in Parquet files, on two workers.

use grampus::nn::CrossEntropy;
use grampus::optim::Sgd;
use grampus::{Estimator, Fit, Shards, models};

fn main() -> grampus::Result<()> {
    let cluster = grampus::init()?.workers(2);
    let data = Shards::parquet("data/*.parquet")?
        .features(["a", "b", "c"])
        .labels(["class"]);
    let model = models::mlp(&[3, 64, 4], 0.0);
    let mut estimator =
        Estimator::native(model, Sgd::new(0.1).momentum(0.9), CrossEntropy).metric("Accuracy")?;
    let history = estimator.fit(&cluster, &data, Fit::epochs(2).batch_size(64))?;
    println!("{history}");
    println!("{:?}", estimator.evaluate(&cluster, &data)?.get("accuracy"));
    estimator.save("model.safetensors")
}
