//! A model with its numbers: parameters, buffers, and the memory in which it computes.

use std::ops::Range;

use grampus_core::Random;

use crate::description::{Start, Tensor};
use crate::error::NativeError;
use crate::kernel::{Backward, Forward};
use crate::model::Model;
use crate::plan::{Plan, Value};
use crate::real::{Real, wide_loop};
use crate::shape::Shape;

/// Every parameter begins at a cache line, as gradients do.
const ALIGNMENT: usize = 64;

/// A parameter or a buffer, and where it lies.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// The layer that it is part of.
    pub node: String,
    /// What it is called in the whole model: `conv1.weight`.
    pub name: String,
    /// Lengths of its axes.
    pub shape: Vec<usize>,
    /// Where its numbers lie.
    pub place: Range<usize>,
    start: Start,
}

/// Numbers that a model is given: one row behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a, T> {
    /// The numbers.
    pub values: &'a [T],
    /// The shape of each row.
    pub shape: &'a Shape,
}

/// A model that computes.
///
/// Its parameters lie one behind the other in one piece of memory, in the order in which their gradients become ready: those of
/// the last layer first. Gradients lie in the same places.
pub struct Network<T> {
    model: Model,
    order: Vec<usize>,
    parameters: Vec<T>,
    buffers: Vec<T>,
    parameter_places: Vec<Placed>,
    buffer_places: Vec<Placed>,
    /// Which parameters and buffers each node has.
    own: Vec<(Range<usize>, Range<usize>)>,
    threads: usize,
    plan: Option<Plan<T>>,
    /// What every step has written, and the gradients that are on their way.
    values: Vec<Vec<T>>,
    backs: Backs<T>,
    rows: usize,
}

impl<T: Real> Network<T> {
    /// With first values drawn from a seed: as PyTorch draws them, but for its generator.
    pub fn new(model: &Model, seed: u64, threads: usize) -> Result<Self, NativeError> {
        let order = model.order()?;
        let mut own = vec![(0..0, 0..0); model.nodes.len()];
        let (mut parameters, mut buffers) = (Vec::new(), Vec::new());
        for node in order.iter().rev() {
            let layer = &model.nodes[*node].layer;
            let name = &model.nodes[*node].name;
            own[*node] = (
                add_all::<T>(&mut parameters, name, layer.parameters()),
                add_all::<T>(&mut buffers, name, layer.buffers()),
            );
        }
        let mut network = Self {
            model: model.clone(),
            order,
            parameters: vec![T::zero(); end::<T>(&parameters)],
            buffers: vec![T::zero(); end::<T>(&buffers)],
            parameter_places: parameters,
            buffer_places: buffers,
            own,
            threads,
            plan: None,
            values: Vec::new(),
            backs: Backs::default(),
            rows: 0,
        };
        network.draw(seed);
        Ok(network)
    }

    fn draw(&mut self, seed: u64) {
        let parameters = self.parameter_places.iter().map(|placed| (placed, true));
        let buffers = self.buffer_places.iter().map(|placed| (placed, false));
        for (placed, trained) in parameters.chain(buffers) {
            let all = if trained {
                &mut self.parameters
            } else {
                &mut self.buffers
            };
            // From its name: another layer in the model changes nothing for this one.
            let name = placed.name.bytes().fold(seed, |sum, byte| {
                sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte)
            });
            let mut random = Random::from_parts(&[seed, name]);
            for value in &mut all[placed.place.clone()] {
                *value = T::of(drawn(placed.start, &mut random));
            }
        }
    }

    /// Its description.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// All parameters; between them lie a few zeros.
    pub fn parameters(&self) -> &[T] {
        &self.parameters
    }

    /// All parameters, to be changed.
    pub fn parameters_mut(&mut self) -> &mut [T] {
        &mut self.parameters
    }

    /// What layers keep beside their parameters.
    pub fn buffers(&self) -> &[T] {
        &self.buffers
    }

    /// The same, to be changed.
    pub fn buffers_mut(&mut self) -> &mut [T] {
        &mut self.buffers
    }

    /// Where each parameter lies, in the order in which gradients become ready.
    pub fn parameter_places(&self) -> &[Placed] {
        &self.parameter_places
    }

    /// Where each buffer lies.
    pub fn buffer_places(&self) -> &[Placed] {
        &self.buffer_places
    }

    /// Where parameters, or else buffers, lie, and the memory in which they do.
    pub(crate) fn places_mut(&mut self, trained: bool) -> (&[Placed], &mut [T]) {
        match trained {
            true => (&self.parameter_places, &mut self.parameters),
            false => (&self.buffer_places, &mut self.buffers),
        }
    }

    /// The shapes of its outputs for inputs of these shapes.
    pub fn output_shapes(&self, inputs: &[Shape]) -> Result<Vec<Shape>, NativeError> {
        let known = crate::plan::shapes_of(&self.model, &self.order, inputs)?;
        Ok(self
            .model
            .outputs
            .iter()
            .map(|name| known[name].clone())
            .collect())
    }

    /// Computes the outputs for some rows; where it trains, whatever the way back needs is kept, and what layers draw comes from
    /// the seed.
    pub fn forward(
        &mut self,
        inputs: &[Rows<'_, T>],
        rows: usize,
        trains: bool,
        seed: u64,
    ) -> Result<(), NativeError> {
        self.prepare(inputs, rows)?;
        let Some(plan) = &mut self.plan else { return Ok(()) };
        self.rows = rows;
        for (number, step) in plan.steps.iter_mut().enumerate() {
            let mut output = std::mem::take(&mut self.values[step.output]);
            output.resize(rows * plan.sizes[step.output], T::zero());
            let taken: Vec<&[T]> = step
                .inputs
                .iter()
                .map(|value| read(*value, inputs, &self.values))
                .collect();
            let (parameters, buffers) = &self.own[step.node];
            let parameters = shared(&self.parameters, &self.parameter_places[parameters.clone()]);
            let mut buffers = apart(&mut self.buffers, &self.buffer_places[buffers.clone()]);
            let done = step.kernel.forward(Forward {
                rows,
                inputs: &taken,
                parameters: &parameters,
                buffers: &mut buffers,
                output: &mut output,
                trains,
                seed: seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                threads: self.threads,
            });
            self.values[step.output] = output;
            done?;
        }
        Ok(())
    }

    /// One of the outputs of the last [`Network::forward`], and the shape of its rows.
    pub fn output<'a>(&'a self, inputs: &'a [Rows<'_, T>], place: usize) -> Option<(&'a [T], &'a Shape)> {
        let plan = self.plan.as_ref()?;
        let values = read(*plan.outputs.get(place)?, inputs, &self.values);
        Some((values, plan.output_shapes.get(place)?))
    }

    /// Goes back from the gradients of the outputs to those of the parameters, to which it adds. `ready` is told of each parameter,
    /// by its place, when its gradient is complete.
    pub fn backward(
        &mut self,
        inputs: &[Rows<'_, T>],
        d_outputs: &[&[T]],
        gradient: &mut [T],
        mut ready: impl FnMut(usize),
    ) {
        let Some(plan) = &mut self.plan else { return };
        let (rows, backs) = (self.rows, &mut self.backs);
        backs.begin(plan, rows, d_outputs);
        // Slots are in the plan, which steps borrow.
        let (slots, sizes) = (plan.slots.clone(), plan.sizes.clone());
        for step in plan.steps.iter_mut().rev() {
            let (parameters, _) = self.own[step.node].clone();
            if !backs.came[step.output] || !step.has_gradient {
                parameters.for_each(&mut ready);
                continue;
            }
            let mut d_output = std::mem::take(&mut backs.slots[slots[step.output]]);
            let wanted = step.inputs.iter().zip(&step.goes_back);
            let mut targets: Vec<Option<Target<T>>> = wanted
                .map(|(value, goes_back)| match (*value, *goes_back) {
                    (Value::Stored(value), true) => {
                        Some(backs.target(value, slots[value], rows * sizes[value]))
                    }
                    _ => None,
                })
                .collect();
            let taken: Vec<&[T]> = step
                .inputs
                .iter()
                .map(|value| read(*value, inputs, &self.values))
                .collect();
            let mut d_inputs: Vec<Option<&mut [T]>> = targets
                .iter_mut()
                .map(|target| target.as_mut().map(|target| &mut target.memory[..]))
                .collect();
            step.kernel.backward(Backward {
                rows,
                inputs: &taken,
                parameters: &shared(&self.parameters, &self.parameter_places[parameters.clone()]),
                output: &self.values[step.output],
                d_output: &mut d_output,
                d_inputs: &mut d_inputs,
                d_parameters: &mut apart(gradient, &self.parameter_places[parameters.clone()]),
                threads: self.threads,
            });
            backs.slots[slots[step.output]] = d_output;
            targets
                .into_iter()
                .flatten()
                .for_each(|target| backs.take(target));
            parameters.for_each(&mut ready);
        }
    }

    /// The first layer whose output is not finite, and what it is.
    pub fn first_not_finite(&self) -> Option<(String, String)> {
        let plan = self.plan.as_ref()?;
        let odd =
            |step: &&crate::plan::Step<T>| self.values[step.output].iter().any(|value| !value.is_finite());
        let node = &self.model.nodes[plan.steps.iter().find(odd)?.node];
        Some((node.name.clone(), node.layer.told()))
    }

    /// A plan for rows of these shapes, and for so many.
    fn prepare(&mut self, inputs: &[Rows<'_, T>], rows: usize) -> Result<(), NativeError> {
        for (input, name) in inputs.iter().zip(&self.model.inputs) {
            let wanted = rows * input.shape.size();
            if input.values.len() != wanted {
                return Err(NativeError::Input(format!(
                    "{name} has {} numbers for {rows} rows of {}, which are {wanted}",
                    input.values.len(),
                    input.shape
                )));
            }
        }
        let fits = self.plan.as_ref().is_some_and(|plan| {
            rows <= plan.rows && plan.shapes.iter().eq(inputs.iter().map(|input| input.shape))
        });
        if !fits {
            let shapes: Vec<Shape> = inputs.iter().map(|input| input.shape.clone()).collect();
            let plan = Plan::new(&self.model, &self.order, &shapes, rows)?;
            self.values.clear();
            self.values.resize(plan.sizes.len(), Vec::new());
            self.backs.slots.clear();
            self.backs.slots.resize(plan.slot_sizes.len(), Vec::new());
            for (slot, size) in self.backs.slots.iter_mut().zip(&plan.slot_sizes) {
                slot.reserve_exact(rows * size);
            }
            self.plan = Some(plan);
        }
        Ok(())
    }
}

/// Gradients of what went from layer to layer, on their way back.
#[derive(Default)]
struct Backs<T> {
    slots: Vec<Vec<T>>,
    /// Which values have a gradient already.
    came: Vec<bool>,
    /// Memory for what is added to others.
    more: Vec<Vec<T>>,
}

/// Where a step writes the gradient of one of its inputs.
struct Target<T> {
    slot: usize,
    is_first: bool,
    memory: Vec<T>,
}

impl<T: Real> Backs<T> {
    fn begin(&mut self, plan: &Plan<T>, rows: usize, d_outputs: &[&[T]]) {
        self.came.clear();
        self.came.resize(plan.sizes.len(), false);
        for (value, d_output) in plan.outputs.iter().zip(d_outputs) {
            let Value::Stored(value) = *value else { continue };
            let slot = &mut self.slots[plan.slots[value]];
            slot.resize(rows * plan.sizes[value], T::zero());
            match std::mem::replace(&mut self.came[value], true) {
                true => add(slot, d_output),
                false => slot.copy_from_slice(d_output),
            }
        }
    }

    /// The first who takes a value writes its gradient where it belongs, others beside it.
    fn target(&mut self, value: usize, slot: usize, count: usize) -> Target<T> {
        let is_first = !std::mem::replace(&mut self.came[value], true);
        let mut memory = match is_first {
            true => std::mem::take(&mut self.slots[slot]),
            false => self.more.pop().unwrap_or_default(),
        };
        memory.resize(count, T::zero());
        Target {
            slot,
            is_first,
            memory,
        }
    }

    fn take(&mut self, target: Target<T>) {
        let slot = &mut self.slots[target.slot];
        if target.is_first {
            *slot = target.memory;
        } else {
            add(slot, &target.memory);
            self.more.push(target.memory);
        }
    }
}

fn read<'a, T>(value: Value, inputs: &'a [Rows<'_, T>], stored: &'a [Vec<T>]) -> &'a [T] {
    match value {
        Value::Input(place) => inputs[place].values,
        Value::Stored(place) => &stored[place],
    }
}

fn add<T: Real>(to: &mut [T], what: &[T]) {
    wide_loop(|| {
        for (to, what) in to.iter_mut().zip(what) {
            *to += *what;
        }
    });
}

/// The parts of a whole that lie at these places.
fn shared<'a, T>(whole: &'a [T], places: &[Placed]) -> Vec<&'a [T]> {
    places.iter().map(|placed| &whole[placed.place.clone()]).collect()
}

/// The same, to be changed; places lie one behind the other.
fn apart<'a, T>(whole: &'a mut [T], places: &[Placed]) -> Vec<&'a mut [T]> {
    let mut left = whole;
    let mut at = 0;
    let mut parts = Vec::with_capacity(places.len());
    for placed in places {
        let (_, rest) = std::mem::take(&mut left).split_at_mut(placed.place.start - at);
        let (part, rest) = rest.split_at_mut(placed.place.len());
        parts.push(part);
        left = rest;
        at = placed.place.end;
    }
    parts
}

fn add_all<T>(all: &mut Vec<Placed>, node: &str, tensors: Vec<Tensor>) -> Range<usize> {
    let first = all.len();
    for tensor in tensors {
        let start = end::<T>(all);
        all.push(Placed {
            node: node.into(),
            name: format!("{node}.{}", tensor.name),
            place: start..start + tensor.shape.iter().product::<usize>(),
            shape: tensor.shape,
            start: tensor.start,
        });
    }
    first..all.len()
}

/// Where the next tensor begins.
fn end<T>(all: &[Placed]) -> usize {
    all.last().map_or(0, |last| {
        last.place.end.next_multiple_of(ALIGNMENT / size_of::<T>())
    })
}

fn drawn(start: Start, random: &mut Random) -> f64 {
    match start {
        Start::Constant(value) => value,
        Start::Uniform(bound) => (2.0 * unit(random) - 1.0) * bound,
        Start::Normal(deviation) => {
            // Box and Muller; the logarithm of zero is left out.
            let (radius, angle) = (1.0 - unit(random), unit(random));
            (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos() * deviation
        }
    }
}

/// From zero on, below one.
pub(crate) fn unit(random: &mut Random) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}
