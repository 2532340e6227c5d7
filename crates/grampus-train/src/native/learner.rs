//! What one lane does with its rows, and what a step does with the sum.

use std::ops::Range;

use grampus_collective::{CollectiveError, Element, Group};
use grampus_native::optim::{Clip, Group as Tensors, Optimizer, combine, norm, squares};
use grampus_native::{Judged, Loss, NativeError, Network, Real, Rows, Shape};
use serde::{Deserialize, Serialize};

use super::memory::{Memory, Sum};
use super::sharing::Held;
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// How weights follow from gradients, and what is remembered for that.
    pub memory: Memory<T>,
    /// Bounds of gradients.
    pub bounds: Bounds,
}

impl<T: Real + Element> Learner<T> {
    /// A model that was not trained yet.
    pub fn new(judging: Judging<T>, optimizer: Optimizer, bounds: Bounds) -> Result<Self, NativeError> {
        let places = judging.network.parameter_places().iter();
        let tensors = places.map(|placed| placed.place.clone()).collect();
        let memory = Memory::new(optimizer, tensors, judging.network.parameters().len())?;
        Ok(Self {
            judging,
            memory,
            bounds,
        })
    }

    /// Gives some layers settings of their own.
    pub fn set_groups(&mut self, groups: &[LayerGroup]) -> Result<(), NativeError> {
        let places = self.judging.network.parameter_places();
        let names: Vec<&str> = places.iter().map(|placed| placed.name.as_str()).collect();
        self.memory.groups = groups
            .iter()
            .map(|group| group.tensors(&names))
            .collect::<Result<_, _>>()?;
        let memory = &self.memory;
        memory.optimizer.check_groups(&memory.groups, names.len())
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
        let tensors = self.memory.tensors.clone();
        let sum = self.sum(gradients, &tensors)?;
        let parameters = self.judging.network.parameters_mut();
        Ok(self.memory.update_alone(parameters, sum, rate)?)
    }

    /// The same for the parts that this worker keeps, where the memory is divided; [`Learner::spread`] then gives all of them to all.
    pub fn update_kept(&mut self, gradients: &Gradients, rate: f64, group: &Group) -> Result<(), LearnError> {
        let tensors = self.memory.tensors.clone();
        let sum = self.sum(gradients, &tensors)?;
        let parameters = self.judging.network.parameters_mut();
        self.memory.update(parameters, sum, rate, group)
    }

    /// Gives all workers the weights that each has updated.
    pub fn spread(&mut self, group: &Group) -> Result<(), CollectiveError> {
        self.memory.spread(self.judging.network.parameters_mut(), group)
    }

    /// All that the optimizer remembers, by name; all workers must ask at once where it is divided.
    pub fn slots(&self, group: &Group) -> Result<Vec<(&'static str, Vec<T>)>, CollectiveError> {
        let count = self.judging.network.parameters().len();
        let slots = self.memory.slots().enumerate().map(|(place, name)| {
            let mut whole = vec![T::zero(); count];
            self.memory.slot(place, &mut whole, group)?;
            Ok((name, whole))
        });
        slots.collect()
    }

    /// What this worker has of a run whose memory is divided. With `next`, what it needs to do one more step: the sum of the gradients
    /// lies ready, and layers will keep these numbers then.
    pub fn held(
        &self,
        buffers: &[T],
        next: Option<(&Gradients, f64, &[T])>,
    ) -> Result<Option<Held<T>>, LearnError> {
        if self.memory.share.is_none() {
            return Ok(None);
        }
        let next = match next {
            Some((gradients, rate, buffers)) => {
                Some((self.sum(gradients, &self.memory.tensors)?, rate, buffers))
            }
            None => None,
        };
        let parameters = self.judging.network.parameters();
        Ok(self.memory.held(parameters, buffers, next))
    }

    /// Takes what all workers that are left have, put together; says which part is lost, if one is.
    pub fn heal(&mut self, held: Vec<Held<T>>) -> Result<(), String> {
        let network = &mut self.judging.network;
        let buffers = self.memory.heal(held, network.parameters_mut())?;
        network.buffers_mut().copy_from_slice(&buffers);
        Ok(())
    }

    /// The sum of all lanes, as it is applied.
    fn sum<'a>(
        &self,
        gradients: &'a Gradients,
        tensors: &'a [Range<usize>],
    ) -> Result<Sum<'a, T>, LearnError> {
        let Some(memory) = gradients.memory(0) else {
            return Err(CollectiveError::Argument("this worker has no lane".into()).into());
        };
        let count = self.judging.network.parameters().len();
        // SAFETY: the memory was made for these parameters, aligned to cache lines, and all sums are through.
        let numbers = unsafe { std::slice::from_raw_parts(memory.as_ptr().cast::<T>(), count) };
        Ok(Sum {
            numbers,
            tensors,
            clip: self.clip(tensors, numbers)?,
        })
    }

    fn clip(&self, tensors: &[Range<usize>], sums: &[T]) -> Result<Clip, NativeError> {
        let mut clip = Clip::NONE;
        if let Some(most) = self.bounds.norm {
            let all = 0..sums.len();
            let found = combine(tensors, &[(all.clone(), squares(tensors, all, sums))])?;
            clip = Clip::by_norm(most, norm(&found))?;
        }
        match self.bounds.values {
            Some((least, most)) => clip.and_by_value(least, most),
            None => Ok(clip),
        }
    }
}

/// Layers with settings of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerGroup {
    /// Their names, or those of single parameters, such as `fc` or `fc.bias`.
    pub layers: Vec<String>,
    /// What their learning rate is multiplied with.
    pub lr_factor: f64,
    /// Their decay, where it is not the optimizer's.
    #[serde(default)]
    pub weight_decay: Option<f64>,
}

impl LayerGroup {
    fn tensors(&self, names: &[&str]) -> Result<Tensors, NativeError> {
        let mut tensors = Vec::new();
        for layer in &self.layers {
            let inside = format!("{layer}.");
            let before = tensors.len();
            let found = names.iter().enumerate();
            tensors.extend(
                found
                    .filter(|(_, name)| **name == layer.as_str() || name.starts_with(&inside))
                    .map(|(place, _)| place),
            );
            if tensors.len() == before {
                // Those of the last layer become ready first, and people read from the first on.
                let known: Vec<&str> = names.iter().rev().copied().collect();
                return Err(NativeError::Description(format!(
                    "group of layers: there is no parameter of {layer}: there are {}",
                    known.join(", ")
                )));
            }
        }
        Ok(Tensors {
            tensors,
            lr_factor: self.lr_factor,
            weight_decay: self.weight_decay,
        })
    }
}

/// The shape of one row, for rows that come as `[rows, …]`.
pub fn row_shape(axes: &[usize]) -> Shape {
    Shape::from(axes.get(1..).unwrap_or_default())
}
