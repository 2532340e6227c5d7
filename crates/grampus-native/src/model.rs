//! A model as a description: layers with names, and what each takes from which other.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::error::{NativeError, nearest};
use crate::layers::Layer;

/// One layer of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// What it is called; its parameters are called after it.
    pub name: String,
    /// What it does.
    pub layer: Layer,
    /// Names of layers or inputs of the model whose outputs it takes.
    pub inputs: Vec<String>,
}

/// A model: a graph of named layers, without any numbers.
///
/// ```
/// use grampus_native::{Model, layers::{Add, Linear, Relu}};
///
/// let mut model = Model::new();
/// let x = model.input("x");
/// let hidden = model.add("hidden", Linear::new(4, 4), [&x]);
/// let active = model.add("active", Relu, [&hidden]);
/// let sum = model.add("sum", Add, [&active, &x]);
/// model.output(&sum);
/// assert_eq!(model.check(), Ok(()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// What comes into it, in order.
    pub inputs: Vec<String>,
    /// Its layers, in any order.
    pub nodes: Vec<Node>,
    /// Which layers' outputs come out of it, in order.
    pub outputs: Vec<String>,
}

impl Model {
    /// Without any layers yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds something that comes in; says its name.
    pub fn input(&mut self, name: &str) -> String {
        self.inputs.push(name.into());
        name.into()
    }

    /// Adds a layer that takes what others give; says its name.
    pub fn add<'a>(
        &mut self,
        name: &str,
        layer: impl Into<Layer>,
        inputs: impl IntoIterator<Item = &'a String>,
    ) -> String {
        self.nodes.push(Node {
            name: name.into(),
            layer: layer.into(),
            inputs: inputs.into_iter().cloned().collect(),
        });
        name.into()
    }

    /// Says that what this layer gives comes out.
    pub fn output(&mut self, name: &str) {
        self.outputs.push(name.into());
    }

    /// Whether it can be computed; if not, why.
    pub fn check(&self) -> Result<(), NativeError> {
        self.order().map(drop)
    }

    /// The nodes in an order in which each comes after those that it takes from; those named first come first.
    pub(crate) fn order(&self) -> Result<Vec<usize>, NativeError> {
        let places = self.places()?;
        for node in &self.nodes {
            self.check_node(node, &places)?;
        }
        for output in &self.outputs {
            self.check_known("the model's output", output, &places)?;
        }
        if self.outputs.is_empty() {
            return wrong("the model has no output: name the layer whose output it is".into());
        }
        let mut done = vec![false; self.nodes.len()];
        let mut order = Vec::with_capacity(self.nodes.len());
        while order.len() < self.nodes.len() {
            let is_ready = |node: &Node| {
                let from = node.inputs.iter().filter_map(|name| places[name.as_str()]);
                from.clone().all(|place| done[place])
            };
            let next = (0..self.nodes.len()).find(|place| !done[*place] && is_ready(&self.nodes[*place]));
            let Some(next) = next else {
                let left = self.nodes.iter().zip(&done).filter(|(_, done)| !**done);
                let names: Vec<&str> = left.map(|(node, _)| node.name.as_str()).collect();
                return wrong(format!(
                    "the layers {} wait for each other: a model must not go in a circle",
                    names.join(", ")
                ));
            };
            done[next] = true;
            order.push(next);
        }
        Ok(order)
    }

    /// Where each name is: a node, or an input of the model.
    fn places(&self) -> Result<HashMap<&str, Option<usize>>, NativeError> {
        if self.inputs.is_empty() {
            return wrong("the model has no input".into());
        }
        let inputs = self.inputs.iter().map(|name| (name.as_str(), None));
        let nodes = self.nodes.iter().enumerate();
        let nodes = nodes.map(|(place, node)| (node.name.as_str(), Some(place)));
        let mut places = HashMap::new();
        for (name, place) in inputs.chain(nodes) {
            if name.is_empty() {
                return wrong("a layer has no name: give it one".into());
            }
            if places.insert(name, place).is_some() {
                return wrong(format!(
                    "two layers are called {name}: give each a name of its own"
                ));
            }
        }
        Ok(places)
    }

    fn check_node(&self, node: &Node, places: &HashMap<&str, Option<usize>>) -> Result<(), NativeError> {
        node.layer.check().map_err(|reason| NativeError::Shape {
            layer: node.name.clone(),
            kind: node.layer.told(),
            reason,
        })?;
        for input in &node.inputs {
            self.check_known(&format!("layer {}", node.name), input, places)?;
        }
        let (least, most) = node.layer.takes();
        let count = node.inputs.len();
        if (least..=most).contains(&count) {
            return Ok(());
        }
        let wanted = match (least, most) {
            (1, 1) => "one input".into(),
            (least, usize::MAX) => format!("{least} inputs or more"),
            (least, most) if least == most => format!("{least} inputs"),
            (least, most) => format!("{least} to {most} inputs"),
        };
        Err(NativeError::Shape {
            layer: node.name.clone(),
            kind: node.layer.told(),
            reason: format!("takes {wanted}, not {count}"),
        })
    }

    fn check_known(
        &self,
        who: &str,
        name: &str,
        places: &HashMap<&str, Option<usize>>,
    ) -> Result<(), NativeError> {
        if places.contains_key(name) {
            return Ok(());
        }
        let mut known: Vec<&str> = places.keys().copied().collect();
        known.sort_unstable();
        let hint = nearest(name, known).map_or(String::new(), |near| format!(": is {near} meant?"));
        wrong(format!(
            "{who} takes from {name}, and there is no layer of that name{hint}"
        ))
    }
}

fn wrong<T>(what: String) -> Result<T, NativeError> {
    Err(NativeError::Description(what))
}

/// Layers one behind the other, called by their number.
///
/// ```
/// use grampus_native::{Sequential, layers::{Linear, Relu}};
///
/// let model = Sequential::new().add(Linear::new(2, 8)).add(Relu).add(Linear::new(8, 1)).model();
/// assert_eq!(model.nodes[2].name, "2");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sequential {
    nodes: Vec<(String, Layer)>,
}

impl Sequential {
    /// Without any layers yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a layer behind the last.
    #[expect(clippy::should_implement_trait, reason = "the name that BigDL's users know")]
    pub fn add(self, layer: impl Into<Layer>) -> Self {
        let name = self.nodes.len().to_string();
        self.named(&name, layer)
    }

    /// Adds a layer with a name.
    pub fn named(mut self, name: &str, layer: impl Into<Layer>) -> Self {
        self.nodes.push((name.into(), layer.into()));
        self
    }

    /// As a graph, from `input` to the last layer.
    pub fn model(self) -> Model {
        let mut model = Model::new();
        let mut last = model.input("input");
        for (name, layer) in self.nodes {
            last = model.add(&name, layer, [&last]);
        }
        model.output(&last);
        model
    }
}

impl From<Sequential> for Model {
    fn from(layers: Sequential) -> Self {
        layers.model()
    }
}
