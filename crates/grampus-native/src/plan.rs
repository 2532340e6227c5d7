//! A model made ready for inputs of one shape: who computes what, and where everything lies.

use std::collections::HashMap;

use crate::activation::Activation;
use crate::error::NativeError;
use crate::kernel::Kernel;
use crate::model::Model;
use crate::real::Real;
use crate::shape::Shape;

/// Where something that goes from layer to layer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Value {
    /// The user has it.
    Input(usize),
    /// A step has written it.
    Stored(usize),
}

/// One layer at work.
pub(crate) struct Step<T> {
    /// Which node of the model it is; its parameters are that one's.
    pub(crate) node: usize,
    pub(crate) kernel: Box<dyn Kernel<T>>,
    pub(crate) inputs: Vec<Value>,
    pub(crate) output: usize,
    /// For each input, whether anything before it is trained.
    pub(crate) goes_back: Vec<bool>,
    /// Whether it, or anything before it, is trained.
    pub(crate) has_gradient: bool,
}

/// Who computes what.
pub(crate) struct Plan<T> {
    pub(crate) shapes: Vec<Shape>,
    pub(crate) steps: Vec<Step<T>>,
    pub(crate) outputs: Vec<Value>,
    pub(crate) output_shapes: Vec<Shape>,
    /// Numbers per row of what each step writes.
    pub(crate) sizes: Vec<usize>,
    /// For what each step writes: which memory holds its gradient, and numbers per row of each such memory.
    pub(crate) slots: Vec<usize>,
    pub(crate) slot_sizes: Vec<usize>,
    /// Rows for which it was made.
    pub(crate) rows: usize,
}

/// The shape of what every node gives, by name, and those of the inputs.
pub(crate) fn shapes_of(
    model: &Model,
    order: &[usize],
    inputs: &[Shape],
) -> Result<HashMap<String, Shape>, NativeError> {
    if inputs.len() != model.inputs.len() {
        return Err(NativeError::Input(format!(
            "the model has {} ({}), and {} came",
            counted(model.inputs.len(), "input"),
            model.inputs.join(", "),
            inputs.len()
        )));
    }
    let mut known: HashMap<String, Shape> =
        model.inputs.iter().cloned().zip(inputs.iter().cloned()).collect();
    for place in order {
        let node = &model.nodes[*place];
        let from: Vec<Shape> = node.inputs.iter().map(|name| known[name].clone()).collect();
        let shape = node.layer.shape(&from).map_err(|reason| NativeError::Shape {
            layer: node.name.clone(),
            kind: node.layer.told(),
            reason,
        })?;
        known.insert(node.name.clone(), shape);
    }
    Ok(known)
}

fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

impl<T: Real> Plan<T> {
    pub(crate) fn new(
        model: &Model,
        order: &[usize],
        inputs: &[Shape],
        rows: usize,
    ) -> Result<Self, NativeError> {
        let known = shapes_of(model, order, inputs)?;
        let mut made = Making {
            model,
            known: &known,
            values: HashMap::new(),
            steps: Vec::new(),
            sizes: Vec::new(),
            rows,
        };
        for (place, name) in model.inputs.iter().enumerate() {
            made.values.insert(name.clone(), Value::Input(place));
        }
        let mut fused = vec![false; model.nodes.len()];
        for place in order {
            if !fused[*place] {
                made.add(*place, &mut fused);
            }
        }
        let Making {
            values, steps, sizes, ..
        } = made;
        let outputs: Vec<Value> = model.outputs.iter().map(|name| values[name]).collect();
        let output_shapes = model.outputs.iter().map(|name| known[name].clone()).collect();
        let (slots, slot_sizes) = slots(&steps, &outputs, &sizes);
        Ok(Self {
            shapes: inputs.to_vec(),
            steps,
            outputs,
            output_shapes,
            sizes,
            slots,
            slot_sizes,
            rows,
        })
    }
}

struct Making<'a, T> {
    model: &'a Model,
    known: &'a HashMap<String, Shape>,
    values: HashMap<String, Value>,
    steps: Vec<Step<T>>,
    sizes: Vec<usize>,
    rows: usize,
}

impl<T: Real> Making<'_, T> {
    fn add(&mut self, place: usize, fused: &mut [bool]) {
        let node = &self.model.nodes[place];
        let inputs: Vec<Value> = node.inputs.iter().map(|name| self.values[name]).collect();
        if node.layer.only_renames() {
            // The same numbers under another shape: nothing is to be done.
            self.values.insert(node.name.clone(), inputs[0]);
            return;
        }
        let shapes: Vec<Shape> = node.inputs.iter().map(|name| self.known[name].clone()).collect();
        let mut kernel = node.layer.kernel(&shapes, self.rows);
        let mut name = &node.name;
        if let Some((next, activation)) = self.activation_after(place)
            && kernel.fuse(activation)
        {
            fused[next] = true;
            name = &self.model.nodes[next].name;
            self.values
                .insert(node.name.clone(), Value::Stored(self.sizes.len()));
        }
        let trained = !node.layer.parameters().is_empty();
        let goes_back: Vec<bool> = inputs.iter().map(|value| self.is_trained(*value)).collect();
        self.values.insert(name.clone(), Value::Stored(self.sizes.len()));
        let has_gradient = trained || goes_back.contains(&true);
        self.steps.push(Step {
            node: place,
            kernel,
            inputs,
            output: self.sizes.len(),
            goes_back,
            has_gradient,
        });
        self.sizes.push(self.known[name].size());
    }

    fn is_trained(&self, value: Value) -> bool {
        match value {
            Value::Input(_) => false,
            Value::Stored(place) => self.steps[place].has_gradient,
        }
    }

    /// The only layer that takes what this one gives, if it is an activation.
    fn activation_after(&self, place: usize) -> Option<(usize, Activation)> {
        let name = &self.model.nodes[place].name;
        if self.model.outputs.contains(name) {
            return None;
        }
        let mut takers = self.model.nodes.iter().enumerate();
        let (next, node) = takers.find(|(_, node)| node.inputs.contains(name))?;
        if takers.any(|(_, node)| node.inputs.contains(name)) {
            return None;
        }
        Some((next, node.layer.activation()?))
    }
}

/// Which memory holds the gradient of what each step writes. Going back, it is needed from the last step that takes the value to
/// the step that wrote it; then another may have it.
fn slots<T>(steps: &[Step<T>], outputs: &[Value], sizes: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let mut slots: Vec<Option<usize>> = vec![None; sizes.len()];
    let mut slot_sizes: Vec<usize> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let mut give = |value: usize, slots: &mut Vec<Option<usize>>, free: &mut Vec<usize>| {
        if slots[value].is_some() {
            return;
        }
        // The smallest that is large enough, or else the largest.
        free.sort_by_key(|slot| slot_sizes[*slot]);
        let fits = free.iter().position(|slot| slot_sizes[*slot] >= sizes[value]);
        let slot = match (fits, free.len()) {
            (Some(place), _) => free.remove(place),
            (None, 0) => {
                slot_sizes.push(0);
                slot_sizes.len() - 1
            }
            (None, last) => free.remove(last - 1),
        };
        slot_sizes[slot] = slot_sizes[slot].max(sizes[value]);
        slots[value] = Some(slot);
    };
    for output in outputs {
        if let Value::Stored(value) = output {
            give(*value, &mut slots, &mut free);
        }
    }
    for step in steps.iter().rev() {
        for (input, goes_back) in step.inputs.iter().zip(&step.goes_back) {
            if let (Value::Stored(value), true) = (input, goes_back) {
                give(*value, &mut slots, &mut free);
            }
        }
        if let Some(slot) = slots[step.output] {
            free.push(slot);
        }
    }
    // What nobody asks for has none, and never will.
    (
        slots.into_iter().map(Option::unwrap_or_default).collect(),
        slot_sizes,
    )
}
