//! All that a native model needs to go on, as bytes: its weights, and what the optimizer remembers.

use grampus_collective::{Element, Group, bytes_of};
use grampus_native::schedule::PlateauState;
use grampus_native::{Network, Real};
use serde::{Deserialize, Serialize};

use super::error::RunError;
use super::learner::Learner;
use crate::checkpoint::{CheckpointError, DType, Tensor};

/// Weights and memories of a model, apart from the memory that it trains in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// What is said about the rest.
    pub plain: Plain,
    /// Weights and buffers.
    pub model: Vec<Tensor>,
    /// What the optimizer remembers of each parameter.
    pub optimizer: Vec<Tensor>,
}

/// What is no array.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plain {
    /// Steps that the optimizer has done.
    pub steps: u64,
    /// The names of what it remembers, in order.
    pub slots: Vec<String>,
    /// Epochs that are done.
    pub epoch: u64,
    /// What a schedule that looks at a metric has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plateau: Option<PlateauState>,
}

impl State {
    /// As it is now; all workers must ask at once where the optimizer's memory is divided among them.
    pub fn of<T: Real + Element>(
        learner: &Learner<T>,
        group: &Group,
        epoch: u64,
        plateau: Option<PlateauState>,
    ) -> Result<Self, RunError> {
        let slots = learner.slots(group)?;
        let flat = |name: &str, values: &[T]| tensor(name, vec![values.len()], values);
        Ok(Self {
            plain: Plain {
                steps: learner.memory.state.steps(),
                slots: slots.iter().map(|(name, _)| (*name).to_owned()).collect(),
                epoch,
                plateau,
            },
            model: Self::weights(&learner.judging.network)?,
            optimizer: slots
                .iter()
                .map(|(name, values)| flat(name, values))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Weights and buffers of a network by name.
    pub fn weights<T: Real + Element>(network: &Network<T>) -> Result<Vec<Tensor>, CheckpointError> {
        network
            .tensors()
            .map(|(name, shape, values)| tensor(name, shape.to_vec(), values))
            .collect()
    }

    /// Gives a model the weights.
    pub fn load_weights<T: Real + Element>(&self, network: &mut Network<T>) -> Result<(), RunError> {
        let mut values = Vec::with_capacity(self.model.len());
        for tensor in &self.model {
            values.push(numbers::<T>(tensor)?);
        }
        let given: Vec<(&str, &[usize], &[T])> = self
            .model
            .iter()
            .zip(&values)
            .map(|(tensor, values)| (tensor.name(), tensor.shape(), values.as_slice()))
            .collect();
        Ok(network.load(&given)?)
    }

    /// Gives a model all of it; weights alone where there is no more.
    pub fn load<T: Real + Element>(&self, learner: &mut Learner<T>) -> Result<(), RunError> {
        self.load_weights(&mut learner.judging.network)?;
        if self.plain.steps == 0 {
            return Ok(());
        }
        let mut saved = Vec::with_capacity(self.plain.slots.len());
        for name in &self.plain.slots {
            let tensor = self.optimizer.iter().find(|tensor| tensor.name() == name);
            saved.push(tensor.map(numbers::<T>).transpose()?.unwrap_or_default());
        }
        let slots = self.plain.slots.iter().zip(&saved);
        let slots: Vec<(&str, &[T])> = slots
            .map(|(name, saved)| (name.as_str(), saved.as_slice()))
            .collect();
        Ok(learner.memory.state.restore(self.plain.steps, &slots)?)
    }

    /// In one piece, to travel.
    pub fn to_bytes(&self) -> Result<Vec<u8>, RunError> {
        let told = |tensor: &Tensor| Told {
            name: tensor.name().to_owned(),
            dtype: tensor.dtype().to_string(),
            shape: tensor.shape().to_vec(),
        };
        let header = Header {
            plain: self.plain.clone(),
            model: self.model.iter().map(told).collect(),
            optimizer: self.optimizer.iter().map(told).collect(),
        };
        let header = serde_json::to_vec(&header).map_err(broken)?;
        let data = self.model.iter().chain(&self.optimizer);
        let size = data.clone().map(|tensor| tensor.data().len()).sum::<usize>();
        let mut bytes = Vec::with_capacity(8 + header.len() + size);
        bytes.extend((header.len() as u64).to_le_bytes());
        bytes.extend(header);
        data.for_each(|tensor| bytes.extend(tensor.data()));
        Ok(bytes)
    }

    /// What [`State::to_bytes`] gave.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RunError> {
        let cut = |at: usize| bytes.get(at..).ok_or_else(|| broken("it ends too early"));
        let length = bytes.first_chunk::<8>().map(|raw| u64::from_le_bytes(*raw));
        let length = length.ok_or_else(|| broken("it ends too early"))? as usize;
        let text = cut(8)?.get(..length).ok_or_else(|| broken("it ends too early"))?;
        let header: Header = serde_json::from_slice(text).map_err(broken)?;
        let mut rest = cut(8 + length)?;
        let mut tensors = |told: Vec<Told>| -> Result<Vec<Tensor>, RunError> {
            let mut all = Vec::with_capacity(told.len());
            for each in told {
                let dtype = crate::checkpoint::dtype(&each.dtype)
                    .ok_or_else(|| broken(format!("there is no type {}", each.dtype)))?;
                let size = each.shape.iter().product::<usize>() * dtype.bitsize() / 8;
                let (mine, after) = rest
                    .split_at_checked(size)
                    .ok_or_else(|| broken("it ends too early"))?;
                rest = after;
                all.push(Tensor::new(each.name, dtype, each.shape, mine.to_vec())?);
            }
            Ok(all)
        };
        Ok(Self {
            model: tensors(header.model)?,
            optimizer: tensors(header.optimizer)?,
            plain: header.plain,
        })
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    plain: Plain,
    model: Vec<Told>,
    optimizer: Vec<Told>,
}

#[derive(Serialize, Deserialize)]
struct Told {
    name: String,
    dtype: String,
    shape: Vec<usize>,
}

fn broken(why: impl std::fmt::Display) -> RunError {
    RunError::Asked(format!("the state of a model cannot be read: {why}"))
}

fn tensor<T: Real + Element>(name: &str, shape: Vec<usize>, values: &[T]) -> Result<Tensor, CheckpointError> {
    let dtype = match size_of::<T>() {
        4 => DType::F32,
        _ => DType::F64,
    };
    Tensor::new(name, dtype, shape, bytes_of(values).to_vec())
}

/// The numbers of a tensor, of either precision.
fn numbers<T: Real + Element>(tensor: &Tensor) -> Result<Vec<T>, RunError> {
    let kind = match tensor.dtype() {
        DType::F32 => grampus_data::batch::Kind::F32,
        DType::F64 => grampus_data::batch::Kind::F64,
        other => {
            return Err(RunError::Asked(format!(
                "tensor {:?} is of {other}, and a native model takes F32 and F64: save it as one of these",
                tensor.name()
            )));
        }
    };
    let mut values = Vec::new();
    super::rows::append(&mut values, tensor.data(), kind);
    Ok(values)
}
