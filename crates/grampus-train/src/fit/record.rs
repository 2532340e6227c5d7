//! What is told about a run.

use serde::{Deserialize, Deserializer, Serialize};

use super::Position;

/// What came out of an epoch: names and values, in the order in which people read them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Names and values.
    #[serde(deserialize_with = "numbers_or_nan")]
    pub values: Vec<(String, f64)>,
    /// Name of the value by which epochs are compared: the first metric of the validation.
    pub score: Option<String>,
}

/// JSON has no word for NaN, and says null; other formats have one.
fn numbers_or_nan<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, f64)>, D::Error> {
    if !from.is_human_readable() {
        return Vec::deserialize(from);
    }
    let told = Vec::<(String, Option<f64>)>::deserialize(from)?;
    let values = told.into_iter();
    Ok(values
        .map(|(name, value)| (name, value.unwrap_or(f64::NAN)))
        .collect())
}

impl Record {
    /// Adds a value.
    pub fn add(&mut self, name: impl Into<String>, value: f64) {
        self.values.push((name.into(), value));
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| *value)
    }

    /// The value by which epochs are compared.
    pub fn score(&self) -> Option<f64> {
        self.score.as_deref().and_then(|name| self.get(name))
    }
}

/// What has been done since the last report.
#[derive(Debug)]
pub struct Progress<'a> {
    /// Where the run stands.
    pub at: &'a Position,
    /// Step and loss of each step since.
    pub losses: &'a [(u64, f64)],
}
