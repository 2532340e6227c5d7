//! A model as a table, and as text in a file.

use serde_json::Value;

use crate::error::{NativeError, nearest};
use crate::layers::Layer;
use crate::model::{Model, Node};
use crate::plan::shapes_of;
use crate::shape::Shape;

impl Model {
    /// From the JSON that serde makes of it; a layer that is not known is named with the one that is probably meant.
    pub fn from_json(text: &str) -> Result<Self, NativeError> {
        let wrong =
            |error: serde_json::Error| NativeError::Description(format!("the model cannot be read: {error}"));
        let value: Value = serde_json::from_str(text).map_err(wrong)?;
        let nodes = value.get("nodes").and_then(Value::as_array);
        for node in nodes.into_iter().flatten() {
            let kind = node
                .pointer("/layer/kind")
                .and_then(Value::as_str)
                .unwrap_or_default();
            if !Layer::KINDS.contains(&kind) {
                let name = node.get("name").and_then(Value::as_str).unwrap_or_default();
                let hint = nearest(kind, Layer::KINDS.iter().copied());
                let hint = hint.map_or(String::new(), |near| format!(": is {near} meant?"));
                return Err(NativeError::Description(format!(
                    "layer {name} is of the kind {kind:?}, which is not known{hint}"
                )));
            }
            if let Err(error) = serde_json::from_value::<Node>(node.clone()) {
                let name = node.get("name").and_then(Value::as_str).unwrap_or_default();
                return Err(NativeError::Description(format!(
                    "layer {name} ({kind}) cannot be read: {error}"
                )));
            }
        }
        let model: Self = serde_json::from_value(value).map_err(wrong)?;
        model.check()?;
        Ok(model)
    }

    /// A table of its layers for rows of these shapes: what comes out of each, and how many parameters it has.
    ///
    /// ```
    /// use grampus_native::{Sequential, layers::Linear};
    ///
    /// let model = Sequential::new().add(Linear::new(4, 2)).model();
    /// let table = model.summary(&[[4].into()]).unwrap();
    /// assert_eq!(table.lines().nth(1), Some("0      Linear(4, 2)  2               10"));
    /// ```
    pub fn summary(&self, inputs: &[Shape]) -> Result<String, NativeError> {
        let order = self.order()?;
        let shapes = shapes_of(self, &order, inputs)?;
        let mut lines = vec![["layer", "kind", "output", "parameters"].map(String::from)];
        let mut total = 0;
        for node in order.iter().map(|place| &self.nodes[*place]) {
            let tensors = node.layer.parameters();
            let count: usize = tensors
                .iter()
                .map(|tensor| tensor.shape.iter().product::<usize>())
                .sum();
            total += count;
            lines.push([
                node.name.clone(),
                node.layer.told(),
                shapes[&node.name].to_string(),
                grouped(count),
            ]);
        }
        lines.push([String::new(), String::new(), String::new(), grouped(total)]);
        let width = |column: usize| {
            lines
                .iter()
                .map(|line| line[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let [name, kind, output, count] = [0, 1, 2, 3].map(width);
        let told = |[a, b, c, d]: &[String; 4]| format!("{a:name$}  {b:kind$}  {c:output$}  {d:>count$}");
        Ok(lines.iter().map(told).collect::<Vec<String>>().join("\n"))
    }
}

/// With a comma before each three digits.
fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
