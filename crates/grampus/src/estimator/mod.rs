//! An Estimator: a model that trains, evaluates and predicts on many workers.

mod fit;
mod history;
mod saved;
mod show;

use grampus_core::TaskFailure;
use grampus_native::optim::Optimizer;
use grampus_native::schedule::Schedule;
use grampus_native::{Loss, Model, Network, Shape};
use grampus_train::fit::Position;
use grampus_train::metrics::Metric;
use grampus_train::native::{
    Array, Bounds, Evaluation, LayerGroup, Layout, Named, PassJob, Prediction, Spec, State,
};

pub use fit::Fit;
pub use history::History;

use crate::cluster::{Answer, Cluster, Task, Wish};
use crate::error::{Error, Result};
use crate::shards::Shards;

/// How often a pass over rows is begun anew where a worker was lost.
const REPEATS: u32 = 3;
/// What random numbers follow from where nobody says it: a program does the same each time.
const SEED: u64 = 0;
/// Rows of a batch that is only measured or answered.
const BATCH_SIZE: u64 = 256;

/// A model of Grampus's own engine on many workers.
///
/// ```
/// use grampus::nn::{Linear, Loss, Sequential};
/// use grampus::optim::Sgd;
/// use grampus::{Estimator, Fit, Shards};
///
/// fn main() -> grampus::Result<()> {
///     let cluster = grampus::init()?.workers(2).quiet();
///     let x: Vec<f32> = (0..64).map(|row| row as f32 / 32.0 - 1.0).collect();
///     let y = x.iter().map(|x| 3.0 * x + 1.0).collect();
///     let data = Shards::arrays((x, [1]), (y, [1]))?;
///     let model = Sequential::new().add(Linear::new(1, 1));
///     let mut estimator = Estimator::native(model, Sgd::new(0.1), Loss::Mse);
///     estimator.fit(&cluster, &data, Fit::epochs(20).batch_size(16))?;
///     assert!(estimator.evaluate(&cluster, &data)?.loss < 0.01);
///     Ok(())
/// }
/// ```
pub struct Estimator {
    spec: Spec,
    seed: Option<u64>,
    lanes: Option<u32>,
    threads: Option<u32>,
    state: Option<State>,
    at: Position,
    layout: Option<Layout>,
}

impl Estimator {
    /// A model with first weights, which is yet to be trained.
    pub fn native(model: impl Into<Model>, optimizer: impl Into<Optimizer>, loss: impl Into<Loss>) -> Self {
        Self {
            spec: Spec {
                model: model.into(),
                loss: Some(loss.into()),
                optimizer: Some(optimizer.into()),
                schedule: None,
                bounds: Bounds::default(),
                groups: Vec::new(),
                sharded: false,
                metrics: Vec::new(),
            },
            seed: None,
            lanes: None,
            threads: None,
            state: None,
            at: Position::default(),
            layout: None,
        }
    }

    /// Measures something besides the loss, under its name in lower case: `Accuracy` is `accuracy`.
    pub fn metric(mut self, name: &str) -> Result<Self> {
        let metric = Metric::named(name, &Default::default())?;
        self.spec.metrics.push(Named {
            name: name.to_lowercase(),
            metric,
        });
        Ok(self)
    }

    /// Measures something under a name of its own.
    pub fn metric_as(mut self, name: &str, metric: Metric) -> Self {
        self.spec.metrics.push(Named {
            name: name.to_owned(),
            metric,
        });
        self
    }

    /// How the learning rate changes over a run.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.spec.schedule = Some(schedule);
        self
    }

    /// What all random numbers follow from: runs with equal seed, lanes and threads end with equal weights.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Into how many parts each batch is cut; by default the number of workers. Keep it when that changes, and the weights stay
    /// the same to the bit.
    pub fn lanes(mut self, lanes: u32) -> Self {
        self.lanes = Some(lanes);
        self
    }

    /// Threads of each lane; by default the cores of the machine are shared among them.
    pub fn threads_per_lane(mut self, threads: u32) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Clips every value of the gradients to a range.
    pub fn clip_values(mut self, least: f64, most: f64) -> Self {
        self.spec.bounds.values = Some((least, most));
        self
    }

    /// Scales gradients whose norm over all parameters is above this.
    pub fn clip_norm(mut self, most: f64) -> Self {
        self.spec.bounds.norm = Some(most);
        self
    }

    /// Gives some layers a learning rate of their own, as a factor, and a decay. Names are those of layers or of single parameters,
    /// such as `fc` or `fc.bias`.
    pub fn group<N: Into<String>>(
        mut self,
        layers: impl IntoIterator<Item = N>,
        lr_factor: f64,
        weight_decay: Option<f64>,
    ) -> Self {
        self.spec.groups.push(LayerGroup {
            layers: layers.into_iter().map(Into::into).collect(),
            lr_factor,
            weight_decay,
        });
        self
    }

    /// Divides what the optimizer remembers among the workers: each keeps a part, and that of its neighbour in case that one is lost. The
    /// weights are the same to the bit.
    pub fn sharded(mut self) -> Self {
        self.spec.sharded = true;
        self
    }

    /// Loss and metrics over all rows, each counted once.
    pub fn evaluate(&self, cluster: &Cluster, data: &Shards) -> Result<Evaluation> {
        let task = Task::Evaluate(Box::new(self.pass(cluster, data, true)?));
        let answers = self.repeated(cluster, &task)?;
        match answers.into_iter().next() {
            Some(Answer::Evaluate(found)) => Ok(found),
            _ => Err(odd_answer()),
        }
    }

    /// What the model says to every row, in order: one array for each of its outputs.
    pub fn predict(&self, cluster: &Cluster, data: &Shards) -> Result<Vec<Array<f32>>> {
        let task = Task::Predict(Box::new(self.pass(cluster, data, false)?));
        let mut parts: Vec<Prediction<f32>> = Vec::new();
        for answer in self.repeated(cluster, &task)? {
            match answer {
                Answer::Predict(mine) => parts.extend(mine),
                _ => return Err(odd_answer()),
            }
        }
        parts.sort_by_key(|part| (part.batch, part.lane));
        let mut parts = parts.into_iter();
        let mut whole = parts.next().map(|part| part.outputs).unwrap_or_default();
        for part in parts {
            for (all, more) in whole.iter_mut().zip(part.outputs) {
                all.values.extend(more.values);
            }
        }
        Ok(whole)
    }

    /// The model with its present weights, in this process.
    ///
    /// ```
    /// use grampus::nn::{Linear, Loss, Rows, Sequential, Shape};
    /// use grampus::{Estimator, optim::Sgd};
    ///
    /// let estimator = Estimator::native(Sequential::new().add(Linear::new(2, 3)), Sgd::new(0.1), Loss::Mse);
    /// let mut network = estimator.network()?;
    /// let (values, shape) = ([0.5, -0.5], Shape::from([2]));
    /// let rows = [Rows { values: &values, shape: &shape }];
    /// network.forward(&rows, 1, false, 0)?;
    /// assert_eq!(network.output(&rows, 0).map(|(numbers, _)| numbers.len()), Some(3));
    /// # Ok::<(), grampus::Error>(())
    /// ```
    pub fn network(&self) -> Result<Network<f32>> {
        let seed = self.layout.as_ref().map(|layout| layout.seed).or(self.seed);
        let mut network = self.spec.network(seed.unwrap_or(SEED), 1)?;
        if let Some(state) = &self.state {
            state.load_weights(&mut network)?;
        }
        Ok(network)
    }

    /// The layers as a table, for rows of these shapes.
    pub fn summary(&self, inputs: &[Shape]) -> Result<String> {
        Ok(self.spec.model.summary(inputs)?)
    }

    fn pass(&self, cluster: &Cluster, data: &Shards, labelled: bool) -> Result<PassJob> {
        let (data, shapes) = data.data(BATCH_SIZE, labelled)?;
        self.check(shapes)?;
        Ok(PassJob {
            spec: self.spec.clone(),
            layout: self.laid_out(cluster),
            data,
        })
    }

    /// Names the layer that does not fit, before any worker is asked.
    fn check(&self, shapes: Option<Vec<Shape>>) -> Result<()> {
        match shapes {
            Some(shapes) => Ok(self.network()?.output_shapes(&shapes).map(drop)?),
            None => Ok(self.spec.model.check()?),
        }
    }

    /// What makes the bits of a run: what it was before, or what was asked for.
    fn laid_out(&self, cluster: &Cluster) -> Layout {
        let lanes = self.lanes.unwrap_or_else(|| cluster.size());
        self.layout.clone().unwrap_or_else(|| Layout {
            lanes,
            seed: self.seed.unwrap_or(SEED),
            threads: self.threads.unwrap_or_else(|| cluster.threads_for(lanes)),
        })
    }

    fn repeated(&self, cluster: &Cluster, task: &Task) -> Result<Vec<Answer>> {
        let mut losses = 0;
        loop {
            match cluster.call(task, self.state.as_ref(), &mut |_| Wish::GoOn) {
                Err(Error::Worker(failure)) if is_loss(&failure) && losses < REPEATS => losses += 1,
                answer => return answer,
            }
        }
    }
}

/// Whether a worker was lost, and another can do what it did.
fn is_loss(failure: &TaskFailure) -> bool {
    match failure {
        TaskFailure::Rank { first, .. } => first.failure.is_loss() || first.failure.is_consequence(),
        TaskFailure::Cancelled { .. } | TaskFailure::Cluster { .. } => false,
    }
}

fn odd_answer() -> Error {
    Error::Cluster("a worker answered something else: all of them must be the same program".to_owned())
}
