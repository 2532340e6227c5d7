//! What one lane does with its rows, and what a step does with the sum.

use std::ops::Range;

use grampus_collective::{CollectiveError, Element, Group};
use grampus_native::optim::{
    Clip, Group as Tensors, Optimizer, State, Step, combine, norm, squares, update_alone,
};
use grampus_native::{Judged, Loss, NativeError, Network, Real, Rows, Shape};
use serde::{Deserialize, Serialize};

use super::sharing::{Held, Next, Rule, Share, heal, spread, update_kept};
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
    /// How weights follow from gradients.
    pub optimizer: Optimizer,
    /// What the optimizer remembers; where that is divided among workers, of the parts that this one keeps.
    pub state: State<T>,
    /// Bounds of gradients.
    pub bounds: Bounds,
    /// Which parts it keeps, where the memory is divided.
    pub share: Option<Share>,
    groups: Vec<Tensors>,
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
            share: None,
            groups: Vec::new(),
        })
    }

    /// Gives some layers settings of their own.
    pub fn set_groups(&mut self, groups: &[LayerGroup]) -> Result<(), NativeError> {
        let places = self.judging.network.parameter_places();
        let names: Vec<&str> = places.iter().map(|placed| placed.name.as_str()).collect();
        self.groups = groups
            .iter()
            .map(|group| group.tensors(&names))
            .collect::<Result<_, _>>()?;
        self.optimizer.check_groups(&self.groups, names.len())
    }

    /// From now on the optimizer's memory is divided among so many workers, of which this is one; what this one need not keep, it
    /// forgets.
    pub fn divide(&mut self, owners: usize, me: usize) {
        let count = self.judging.network.parameters().len();
        let share = Share { count, owners, me };
        // Memory that was never written takes no room.
        let mut fresh = State::new(&self.optimizer, count);
        fresh.set_steps(self.state.steps());
        for ((_, to), (_, from)) in fresh.slots_mut().zip(self.state.slots()) {
            for range in share.kept().into_iter().map(|owner| share.range(owner)) {
                to[range.clone()].copy_from_slice(&from[range]);
            }
        }
        self.state = fresh;
        self.share = Some(share);
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
        let (tensors, sums) = (self.tensors(), self.sums(gradients)?);
        let step = Step {
            clip: self.clip(&tensors, sums)?,
            groups: &self.groups,
            ..Step::new(rate, &tensors)
        };
        let parameters = self.judging.network.parameters_mut();
        update_alone(&self.optimizer, step, &mut self.state, parameters, sums)?;
        Ok(())
    }

    /// The same for the parts that this worker keeps, where the memory is divided; [`Learner::spread`] then gives all of them to all.
    pub fn update_kept(&mut self, gradients: &Gradients, rate: f64, group: &Group) -> Result<(), LearnError> {
        let (tensors, sums) = (self.tensors(), self.sums(gradients)?);
        let Some(share) = self.share else {
            return self.update(gradients, rate);
        };
        let clip = self.clip(&tensors, sums)?;
        let rule = Rule {
            optimizer: &self.optimizer,
            groups: &self.groups,
            tensors: &tensors,
        };
        let parameters = self.judging.network.parameters_mut();
        update_kept(
            rule,
            &share,
            (rate, clip),
            &mut self.state,
            (parameters, sums),
            group,
        )
    }

    /// Gives all workers the weights that each has updated.
    pub fn spread(&mut self, group: &Group) -> Result<(), CollectiveError> {
        match &self.share {
            Some(share) => spread(share, self.judging.network.parameters_mut(), group),
            None => Ok(()),
        }
    }

    /// All that the optimizer remembers, by name; all workers must ask at once where it is divided.
    pub fn slots(&self, group: &Group) -> Result<Vec<(&'static str, Vec<T>)>, CollectiveError> {
        let mut all = self.state.slots().to_vec();
        if let Some(share) = &self.share {
            for (_, numbers) in &mut all {
                spread(share, numbers, group)?;
            }
        }
        Ok(all)
    }

    /// What this worker has of a run whose memory is divided. With `next`, what it needs to do one more step: the sum of the gradients
    /// lies ready, and layers will keep these numbers then.
    pub fn held(
        &self,
        buffers: &[T],
        next: Option<(&Gradients, f64, &[T])>,
    ) -> Result<Option<Held<T>>, LearnError> {
        let Some(share) = self.share else {
            return Ok(None);
        };
        let next = match next {
            Some((gradients, rate, buffers)) => {
                let sums = self.sums(gradients)?;
                let parts = share.kept().into_iter().map(|owner| share.range(owner));
                Some(Next {
                    rate,
                    clip: self.clip(&self.tensors(), sums)?,
                    sums: parts.map(|range| sums[range].to_vec()).collect(),
                    buffers: buffers.to_vec(),
                })
            }
            None => None,
        };
        let parameters = self.judging.network.parameters();
        Ok(Some(Held::of(share, &self.state, parameters, buffers, next)))
    }

    /// Takes what all workers that are left have, put together; says which part is lost, if one is.
    pub fn heal(&mut self, held: Vec<Held<T>>) -> Result<(), String> {
        let tensors = self.tensors();
        let rule = Rule {
            optimizer: &self.optimizer,
            groups: &self.groups,
            tensors: &tensors,
        };
        let healed = heal(rule, held)?;
        let network = &mut self.judging.network;
        if healed.parameters.len() != network.parameters().len() {
            return Err("what was kept is of another model".into());
        }
        network.parameters_mut().copy_from_slice(&healed.parameters);
        network.buffers_mut().copy_from_slice(&healed.buffers);
        for ((_, numbers), slot) in self.state.slots_mut().zip(&healed.slots) {
            numbers.copy_from_slice(slot);
        }
        self.state.set_steps(healed.steps);
        Ok(())
    }

    fn tensors(&self) -> Vec<Range<usize>> {
        let places = self.judging.network.parameter_places().iter();
        places.map(|placed| placed.place.clone()).collect()
    }

    /// The sum of all lanes.
    fn sums<'a>(&self, gradients: &'a Gradients) -> Result<&'a [T], CollectiveError> {
        let Some(memory) = gradients.memory(0) else {
            return Err(CollectiveError::Argument("this worker has no lane".into()));
        };
        let count = self.judging.network.parameters().len();
        // SAFETY: the memory was made for these parameters, aligned to cache lines, and all sums are through.
        Ok(unsafe { std::slice::from_raw_parts(memory.as_ptr().cast::<T>(), count) })
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
