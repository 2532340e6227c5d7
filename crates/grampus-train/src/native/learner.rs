//! What one lane does with its rows, and what a step does with the sum.

use grampus_collective::{CollectiveError, Element};
use grampus_native::optim::{Clip, Optimizer, State, Step, combine, norm, squares, update_alone};
use grampus_native::{Judged, Loss, NativeError, Network, Real, Rows, Shape};

use crate::gradients::{Gradients, Parameter};

/// What can go wrong in a step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LearnError {
    /// With the model, or with the rows.
    #[error(transparent)]
    Model(#[from] NativeError),
    /// Between workers.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}

/// Rows of one lane, one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct LaneRows<'a, T> {
    /// What goes into the model.
    pub inputs: &'a [Rows<'a, T>],
    /// What should come out.
    pub target: Rows<'a, T>,
    /// How many rows there are.
    pub rows: usize,
}

/// A native model with its loss.
pub struct Judging<T> {
    /// The model.
    pub network: Network<T>,
    /// What is to become small.
    pub loss: Loss,
    /// The gradient of what came out.
    slope: Vec<T>,
}

impl<T: Real + Element> Judging<T> {
    /// A model and a loss that fits.
    pub fn new(network: Network<T>, loss: Loss) -> Result<Self, NativeError> {
        loss.check()?;
        Ok(Self {
            network,
            loss,
            slope: Vec::new(),
        })
    }

    /// The loss of some rows, which counts `share` on the way back.
    pub fn judge(
        &mut self,
        lane: LaneRows<'_, T>,
        trains: bool,
        share: f64,
        seed: u64,
    ) -> Result<f64, NativeError> {
        self.network.forward(lane.inputs, lane.rows, trains, seed)?;
        let Some((output, output_shape)) = self.network.output(lane.inputs, 0) else {
            return Err(NativeError::Input("the model has no output".into()));
        };
        self.slope.resize(output.len(), T::zero());
        let judged = Judged {
            output,
            output_shape,
            target: lane.target.values,
            target_shape: lane.target.shape,
            rows: lane.rows,
        };
        self.loss.apply(judged, share, &mut self.slope)
    }

    /// The gradients that a worker's lanes write, in the order in which they become ready.
    pub fn parameters(&self) -> Vec<Parameter> {
        let places = self.network.parameter_places().iter();
        places
            .map(|placed| Parameter {
                dtype: T::DTYPE,
                count: placed.place.len(),
            })
            .collect()
    }
}

/// Bounds of gradients; what is not said is not bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Bounds {
    /// Of each value.
    pub values: Option<(f64, f64)>,
    /// Of the norm over all parameters.
    pub norm: Option<f64>,
}

/// A native model that is trained.
pub struct Learner<T> {
    /// The model with its loss.
    pub judging: Judging<T>,
    /// How weights follow from gradients.
    pub optimizer: Optimizer,
    /// What the optimizer remembers.
    pub state: State<T>,
    /// Bounds of gradients.
    pub bounds: Bounds,
}

impl<T: Real + Element> Learner<T> {
    /// A model that was not trained yet.
    pub fn new(judging: Judging<T>, optimizer: Optimizer, bounds: Bounds) -> Result<Self, NativeError> {
        optimizer.check()?;
        let state = State::new(&optimizer, judging.network.parameters().len());
        Ok(Self {
            judging,
            optimizer,
            state,
            bounds,
        })
    }

    /// Works through the rows of one of this worker's lanes, by its place among them. Says the loss, which counts `share`.
    pub fn train(
        &mut self,
        gradients: &mut Gradients,
        index: usize,
        lane: LaneRows<'_, T>,
        share: f64,
        seed: u64,
    ) -> Result<f64, LearnError> {
        gradients.begin(index)?;
        let loss = self.judging.judge(lane, true, share, seed)?;
        let Some(memory) = gradients.memory(index) else {
            return Err(CollectiveError::Argument(format!("this worker has no lane at {index}")).into());
        };
        let count = self.judging.network.parameters().len();
        // SAFETY: the memory was made for these parameters, which lie in it as they lie in the network; it is aligned to cache
        // lines, and nobody reads a bucket before all of its parameters are ready.
        let sums = unsafe { std::slice::from_raw_parts_mut(memory.as_ptr().cast::<T>(), count) };
        let mut failed = None;
        let slope = std::mem::take(&mut self.judging.slope);
        self.judging
            .network
            .backward(lane.inputs, &[&slope], sums, |place| {
                if let Err(error) = gradients.ready(place) {
                    failed.get_or_insert(error);
                }
            });
        self.judging.slope = slope;
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(loss),
        }
    }

    /// Applies the sum of all lanes, which lies in the memory of this worker's first.
    pub fn update(&mut self, gradients: &Gradients, rate: f64) -> Result<(), LearnError> {
        let Some(memory) = gradients.memory(0) else {
            return Err(CollectiveError::Argument("this worker has no lane".into()).into());
        };
        let network = &mut self.judging.network;
        let count = network.parameters().len();
        // SAFETY: as above; all sums are through.
        let sums = unsafe { std::slice::from_raw_parts(memory.as_ptr().cast::<T>(), count) };
        let tensors: Vec<_> = network
            .parameter_places()
            .iter()
            .map(|placed| placed.place.clone())
            .collect();
        let mut clip = Clip::NONE;
        if let Some(most) = self.bounds.norm {
            let all = 0..count;
            let found = combine(&tensors, &[(all.clone(), squares(&tensors, all, sums))])?;
            clip = Clip::by_norm(most, norm(&found))?;
        }
        if let Some((least, most)) = self.bounds.values {
            clip = clip.and_by_value(least, most)?;
        }
        let step = Step {
            clip,
            ..Step::new(rate, &tensors)
        };
        update_alone(
            &self.optimizer,
            step,
            &mut self.state,
            network.parameters_mut(),
            sums,
        )?;
        Ok(())
    }
}

/// The shape of one row, for rows that come as `[rows, …]`.
pub fn row_shape(axes: &[usize]) -> Shape {
    Shape::from(axes.get(1..).unwrap_or_default())
}
