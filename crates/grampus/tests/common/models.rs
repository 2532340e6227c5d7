//! A small model, its rows, and workers to train it on.

use grampus::nn::{BatchNorm, CrossEntropy, Dropout, Linear, Relu, Sequential};
use grampus::optim::{Adam, Optimizer};
use grampus::{Cluster, Estimator, Fit, Shards};

use super::processes::workers;

pub const ROWS: usize = 98;

pub fn cluster(workers: u32) -> Cluster {
    grampus::init().unwrap().workers(workers).quiet()
}

/// Kills so many workers of this process; says how many there were.
pub fn kill_workers(most: usize) -> usize {
    let own = workers(std::process::id()).into_iter().take(most);
    own.filter(|pid| kill(*pid)).count()
}

pub fn kill(pid: u32) -> bool {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok()
}

/// A function of the row, and its class.
pub fn rows() -> Shards {
    let x = (0..ROWS * 3)
        .map(|at| ((at * 37 % 101) as f32 - 50.0) / 25.0)
        .collect();
    let y = (0..ROWS).map(|row| (row % 4) as f32).collect();
    Shards::arrays((x, [3]), (y, [])).unwrap()
}

/// With dropout and batch norm, whose bits depend on lanes and on nothing else.
pub fn noisy() -> Estimator {
    noisy_with(Adam::new(0.01))
}

pub fn noisy_with(optimizer: impl Into<Optimizer>) -> Estimator {
    let model = Sequential::new()
        .add(Linear::new(3, 16))
        .add(BatchNorm::new(16))
        .add(Relu)
        .add(Dropout::new(0.2))
        .add(Linear::new(16, 4));
    Estimator::native(model, optimizer, CrossEntropy)
        .metric("Accuracy")
        .unwrap()
        .seed(7)
        .lanes(4)
        .threads_per_lane(1)
}

pub fn weights(estimator: &Estimator) -> Vec<u32> {
    let network = estimator.network().unwrap();
    let numbers = network.parameters().iter().chain(network.buffers());
    numbers.map(|number| number.to_bits()).collect()
}

pub fn undisturbed(epochs: u64) -> Vec<u32> {
    let mut estimator = noisy();
    estimator
        .fit(&cluster(1), &rows(), Fit::epochs(epochs).batch_size(20))
        .unwrap();
    weights(&estimator)
}
