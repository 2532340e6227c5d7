//! Native models for Python.

use std::sync::{Mutex, MutexGuard};

use grampus_collective::{CollectiveError, Element, bytes_of};
use grampus_native::optim::Optimizer;
use grampus_native::{Loss, Model, NativeError, Network, Real, Rows, Shape};
use grampus_train::native::{Bounds, Held, Judging, LaneRows, LayerGroup, LearnError, Learner, row_shape};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::de::DeserializeOwned;

use super::gradients::Gradients;
use crate::collective::{Buffer, Group, Use, raise};
use crate::locked;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NativeModel>()?;
    module.add_function(wrap_pyfunction!(describe_network, module)?)?;
    module.add_function(wrap_pyfunction!(loss_weight, module)?)
}

/// A table of the layers of a model, for rows of these shapes.
#[pyfunction]
fn describe_network(py: Python<'_>, model: &str, shapes: Vec<Vec<usize>>) -> PyResult<String> {
    let shapes: Vec<Shape> = shapes.into_iter().map(Shape::from).collect();
    let model = Model::from_json(model).map_err(|error| wrong(py, &error))?;
    model.summary(&shapes).map_err(|error| wrong(py, &error))
}

/// What some targets count for in the mean over more of them, by this loss.
#[pyfunction]
fn loss_weight(loss: &str, target: &Bound<'_, PyAny>, rows: usize) -> PyResult<f64> {
    let loss: Loss = parsed(loss)?;
    let target = Buffer::of(target, Use::Read)?;
    let values = numbers::<f64>(&target).map_err(PyTypeError::new_err)?;
    Ok(loss.weight(values, rows))
}

/// What a model is for.
enum Role<T> {
    Answers(Box<Network<T>>),
    Judges(Box<Judging<T>>),
    Learns(Box<Learner<T>>),
}

enum Kept {
    Single(Role<f32>),
    Double(Role<f64>),
}

/// Does the same with numbers of either precision.
macro_rules! with {
    ($kept:expr, $role:ident => $body:expr) => {
        match &mut *$kept {
            Kept::Single($role) => $body,
            Kept::Double($role) => $body,
        }
    };
}

/// Bytes and shape of an array, the axis of the rows first.
type Array = (Py<PyBytes>, Vec<usize>);

/// Bytes of what an optimizer remembers, by name.
type Slots = Vec<(String, Py<PyBytes>)>;

/// A native model: its weights, and for training its loss and its optimizer.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct NativeModel(Mutex<Kept>);

#[pymethods]
impl NativeModel {
    /// `model`, `loss`, `optimizer` and `groups` are JSON; without a loss it only answers, without an optimizer it only judges. `clipping`
    /// is the least and the most of each gradient, and their norm.
    #[new]
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a setting with a name in Python"
    )]
    #[pyo3(signature = (model, seed, threads, double, loss=None, optimizer=None, clipping=(None, None, None), groups="[]"))]
    fn new(
        py: Python<'_>,
        model: &str,
        seed: u64,
        threads: usize,
        double: bool,
        loss: Option<&str>,
        optimizer: Option<&str>,
        clipping: (Option<f64>, Option<f64>, Option<f64>),
        groups: &str,
    ) -> PyResult<Self> {
        let groups: Vec<LayerGroup> = parsed(groups)?;
        let model = Model::from_json(model).map_err(|error| wrong(py, &error))?;
        let loss: Option<Loss> = loss.map(parsed).transpose()?;
        let optimizer: Option<Optimizer> = optimizer.map(parsed).transpose()?;
        let bounds = Bounds {
            values: clipping.0.zip(clipping.1),
            norm: clipping.2,
        };
        let kept = match double {
            false => Role::new(&model, (seed, threads), loss, optimizer, bounds, &groups).map(Kept::Single),
            true => Role::new(&model, (seed, threads), loss, optimizer, bounds, &groups).map(Kept::Double),
        };
        kept.map(|kept| Self(Mutex::new(kept)))
            .map_err(|error| wrong(py, &error))
    }

    /// Name and array of every parameter and buffer, in the order of the layers.
    fn weights(&self, py: Python<'_>) -> Vec<(String, Array)> {
        with!(self.get(py), role => role.weights(py))
    }

    /// Takes weights; all must be there, and no others.
    fn set_weights(&self, py: Python<'_>, weights: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<()> {
        let weights: PyResult<Vec<(String, Buffer)>> = weights
            .into_iter()
            .map(|(name, array)| Ok((name, Buffer::of(&array, Use::Read)?)))
            .collect();
        with!(self.get(py), role => role.set_weights(py, &weights?))
    }

    /// What the optimizer remembers: how many steps there were, and arrays by name. Where that is divided, all workers ask at once.
    fn state(&self, py: Python<'_>, group: &Group) -> PyResult<(u64, Slots)> {
        let group = group.get()?;
        with!(self.get(py), role => {
            let learner = role.learner()?;
            let (steps, slots) = py.detach(move || (learner.memory.state.steps(), learner.slots(&group)));
            let slots = slots.map_err(|error| raise(py, &error))?;
            let slots = slots.iter();
            let slots = slots.map(|(name, values)| ((*name).to_owned(), PyBytes::new(py, bytes_of(values)).unbind()));
            Ok((steps, slots.collect()))
        })
    }

    /// Divides what the optimizer remembers among so many workers, of which this is one.
    fn divide(&self, py: Python<'_>, owners: usize, me: usize) -> PyResult<()> {
        with!(self.get(py), role => role.learner().map(|learner| learner.memory.divide(owners, me)))
    }

    /// What this worker has of it; with the sum of gradients, the rate and what layers will keep, it can do one more step.
    fn held<'py>(
        &self,
        py: Python<'py>,
        kept: &[u8],
        next: Option<(PyRef<'py, Gradients>, f64, Vec<u8>)>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let sums = next.as_ref().map(|(gradients, ..)| gradients.get(py));
        let found = with!(self.get(py), role => {
            let learner = role.learner()?;
            let kept = numbered(learner, kept)?;
            let soon = next.as_ref().map(|(_, _, soon)| numbered(learner, soon)).transpose()?;
            let next = sums.as_deref().zip(next.as_ref()).zip(soon.as_deref());
            let next = next.map(|((sums, (_, rate, _)), soon)| (sums, *rate, soon));
            let held = learner.held(&kept, next).map_err(|error| Failed::Learning(error).raised(py))?;
            held.map(|held| held.to_bytes()).transpose().map_err(PyValueError::new_err)?
        });
        Ok(PyBytes::new(py, &found.unwrap_or_default()))
    }

    /// Puts together what all workers that are left have; raises where a part is lost.
    fn heal(&self, py: Python<'_>, held: Vec<Vec<u8>>) -> PyResult<()> {
        with!(self.get(py), role => {
            let parts: Result<Vec<_>, String> = held.iter().map(|bytes| Held::from_bytes(bytes)).collect();
            let healed = parts.and_then(|parts| role.learner().map_err(|error| error.to_string())?.heal(parts));
            healed.map_err(PyValueError::new_err)
        })
    }

    /// Gives all workers the weights that each has updated.
    fn spread(&self, py: Python<'_>, group: &Group) -> PyResult<()> {
        let group = group.get()?;
        with!(self.get(py), role => {
            let learner = role.learner()?;
            py.detach(|| learner.spread(&group)).map_err(|error| raise(py, &error))
        })
    }

    /// Goes on with what an optimizer remembered.
    fn set_state(
        &self,
        py: Python<'_>,
        steps: u64,
        slots: Vec<(String, Bound<'_, PyBytes>)>,
    ) -> PyResult<()> {
        with!(self.get(py), role => role.set_state(py, steps, &slots))
    }

    /// How many numbers all parameters are, with those between them.
    fn parameters(&self, py: Python<'_>) -> Vec<(u8, usize)> {
        with!(self.get(py), role => role.parameters())
    }

    /// The outputs for some rows.
    fn predict(&self, py: Python<'_>, inputs: Vec<Bound<'_, PyAny>>, rows: usize) -> PyResult<Vec<Array>> {
        let inputs = buffers(inputs)?;
        with!(self.get(py), role => role.predict(py, &inputs, rows))
    }

    /// The loss of some rows, and the outputs for them.
    fn evaluate(
        &self,
        py: Python<'_>,
        inputs: Vec<Bound<'_, PyAny>>,
        target: Bound<'_, PyAny>,
        rows: usize,
    ) -> PyResult<(f64, Vec<Array>)> {
        let (inputs, target) = (buffers(inputs)?, Buffer::of(&target, Use::Read)?);
        with!(self.get(py), role => role.evaluate(py, &inputs, &target, rows))
    }

    /// The outputs of the last pass, which had these inputs.
    fn last_outputs(
        &self,
        py: Python<'_>,
        inputs: Vec<Bound<'_, PyAny>>,
        rows: usize,
    ) -> PyResult<Vec<Array>> {
        let inputs = buffers(inputs)?;
        with!(self.get(py), role => role.last_outputs(py, &inputs, rows))
    }

    /// What layers keep beside their parameters, as bytes.
    fn buffers<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        with!(self.get(py), role => PyBytes::new(py, bytes_of(role.network().buffers())))
    }

    /// Takes what layers had kept.
    fn set_buffers(&self, py: Python<'_>, kept: &[u8]) -> PyResult<()> {
        with!(self.get(py), role => filled(role.network().buffers_mut(), kept, "what layers keep"))
    }

    /// Forward and backward of the rows of one of this worker's lanes; says the loss.
    fn train(
        &self,
        py: Python<'_>,
        gradients: &Gradients,
        index: usize,
        batch: (Vec<Bound<'_, PyAny>>, Bound<'_, PyAny>, usize),
        share: f64,
        seed: u64,
    ) -> PyResult<f64> {
        let (inputs, target, rows) = (buffers(batch.0)?, Buffer::of(&batch.1, Use::Read)?, batch.2);
        let trained = py.detach(|| {
            let mut gradients = gradients.get_detached();
            with!(locked::detached(&self.0), role => role.train(&mut gradients, index, (&inputs, &target, rows), share, seed))
        });
        trained.map_err(|failed| failed.raised(py))
    }

    /// Applies the sum of all lanes, with this learning rate; where the memory is divided, to the parts that this worker keeps.
    fn update(&self, py: Python<'_>, gradients: &Gradients, rate: f64, group: &Group) -> PyResult<()> {
        let group = group.get()?;
        let updated = py.detach(|| {
            let gradients = gradients.get_detached();
            with!(locked::detached(&self.0), role => match role {
                Role::Learns(learner) => learner.update_kept(&gradients, rate, &group).map_err(Failed::Learning),
                _ => Err(Failed::NotLearning),
            })
        });
        updated.map_err(|failed| failed.raised(py))
    }

    /// The first layer of the last pass whose output is not finite.
    fn first_not_finite(&self, py: Python<'_>) -> Option<(String, String)> {
        with!(self.get(py), role => role.network().first_not_finite())
    }
}

impl NativeModel {
    fn get(&self, py: Python<'_>) -> MutexGuard<'_, Kept> {
        locked::attached(py, &self.0)
    }
}

/// Why a step could not be done.
pub(super) enum Failed {
    NotLearning,
    Array(String),
    Learning(LearnError),
}

impl Failed {
    pub(super) fn raised(self, py: Python<'_>) -> PyErr {
        match self {
            Self::NotLearning => not_learning(),
            Self::Array(reason) => PyTypeError::new_err(reason),
            Self::Learning(LearnError::Model(error)) => wrong(py, &error),
            Self::Learning(LearnError::Collective(error)) => raise(py, &error),
            Self::Learning(other) => raise(py, &CollectiveError::Argument(other.to_string())),
        }
    }
}

fn not_learning() -> PyErr {
    PyValueError::new_err("this model was made without a loss or an optimizer")
}

/// What is wrong, for Python; a row has its number beside the text.
pub(super) fn wrong(py: Python<'_>, error: &NativeError) -> PyErr {
    let raised = PyValueError::new_err(error.to_string());
    if let NativeError::Row { row, .. } = error {
        // An exception that takes no attributes still says it in words.
        let _ = raised.value(py).setattr("row", row);
    }
    raised
}

pub(super) fn parsed<T: DeserializeOwned>(text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn buffers(arrays: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<Buffer>> {
    arrays.iter().map(|array| Buffer::of(array, Use::Read)).collect()
}

/// What layers keep, from the bytes that it was.
fn numbered<T: Real + Element>(learner: &Learner<T>, saved: &[u8]) -> PyResult<Vec<T>> {
    let mut kept = learner.judging.network.buffers().to_vec();
    filled(&mut kept, saved, "what layers keep")?;
    Ok(kept)
}

/// Numbers from the bytes that they were.
fn filled<T: Real>(values: &mut [T], saved: &[u8], name: &str) -> PyResult<()> {
    if saved.len() != size_of_val(values) {
        return Err(PyValueError::new_err(format!(
            "{name}: what was saved is of another model"
        )));
    }
    // SAFETY: as many bytes, any of which make numbers.
    unsafe { std::ptr::copy_nonoverlapping(saved.as_ptr(), values.as_mut_ptr().cast(), saved.len()) };
    Ok(())
}

/// The numbers of an array, which must be of the model's precision.
pub(super) fn numbers<T: Real + Element>(array: &Buffer) -> Result<&[T], String> {
    let bytes = array.bytes();
    if array.dtype != T::DTYPE {
        return Err(format!(
            "an array of {:?} came, and the model computes with {:?}",
            array.dtype,
            T::DTYPE
        ));
    }
    // SAFETY: the array has so many numbers of this type, and a `Buffer` is aligned for them.
    Ok(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), array.count) })
}

impl<T: Real + Element> Role<T> {
    fn new(
        model: &Model,
        (seed, threads): (u64, usize),
        loss: Option<Loss>,
        optimizer: Option<Optimizer>,
        bounds: Bounds,
        groups: &[LayerGroup],
    ) -> Result<Self, NativeError> {
        let network = Network::new(model, seed, threads)?;
        let Some(loss) = loss else {
            return Ok(Self::Answers(Box::new(network)));
        };
        let judging = Judging::new(network, loss)?;
        match optimizer {
            None => Ok(Self::Judges(Box::new(judging))),
            Some(optimizer) => {
                let mut learner = Learner::new(judging, optimizer, bounds)?;
                learner.set_groups(groups)?;
                Ok(Self::Learns(Box::new(learner)))
            }
        }
    }

    fn network(&mut self) -> &mut Network<T> {
        match self {
            Self::Answers(network) => network,
            Self::Judges(judging) => &mut judging.network,
            Self::Learns(learner) => &mut learner.judging.network,
        }
    }

    fn judging(&mut self) -> PyResult<&mut Judging<T>> {
        match self {
            Self::Answers(_) => Err(not_learning()),
            Self::Judges(judging) => Ok(judging),
            Self::Learns(learner) => Ok(&mut learner.judging),
        }
    }

    fn learner(&mut self) -> PyResult<&mut Learner<T>> {
        match self {
            Self::Learns(learner) => Ok(learner),
            _ => Err(not_learning()),
        }
    }

    fn parameters(&mut self) -> Vec<(u8, usize)> {
        let places = self.network().parameter_places().iter();
        places
            .map(|placed| (T::DTYPE as u8, placed.place.len()))
            .collect()
    }

    fn weights(&mut self, py: Python<'_>) -> Vec<(String, Array)> {
        let network = self.network();
        let told = network.tensors();
        told.map(|(name, shape, values)| {
            (
                name.to_owned(),
                (PyBytes::new(py, bytes_of(values)).unbind(), shape.to_vec()),
            )
        })
        .collect()
    }

    fn set_weights(&mut self, py: Python<'_>, weights: &[(String, Buffer)]) -> PyResult<()> {
        let mut given = Vec::with_capacity(weights.len());
        for (name, array) in weights {
            given.push((
                name.as_str(),
                &array.shape[..],
                numbers::<T>(array).map_err(PyTypeError::new_err)?,
            ));
        }
        self.network().load(&given).map_err(|error| wrong(py, &error))
    }

    fn set_state(
        &mut self,
        py: Python<'_>,
        steps: u64,
        slots: &[(String, Bound<'_, PyBytes>)],
    ) -> PyResult<()> {
        let mut saved = Vec::with_capacity(slots.len());
        for (name, bytes) in slots {
            let mut values = vec![T::zero(); bytes.as_bytes().len() / size_of::<T>()];
            filled(&mut values, bytes.as_bytes(), name)?;
            saved.push((name.as_str(), values));
        }
        let saved: Vec<(&str, &[T])> = saved.iter().map(|(name, values)| (*name, &values[..])).collect();
        let restored = self.learner()?.memory.state.restore(steps, &saved);
        restored.map_err(|error| wrong(py, &error))
    }

    fn predict(&mut self, py: Python<'_>, inputs: &[Buffer], rows: usize) -> PyResult<Vec<Array>> {
        let shapes: Vec<Shape> = inputs.iter().map(|input| row_shape(&input.shape)).collect();
        let inputs = rows_of::<T>(inputs, &shapes).map_err(PyTypeError::new_err)?;
        let network = self.network();
        let done = py.detach(|| network.forward(&inputs, rows, false, 0));
        done.map_err(|error| wrong(py, &error))?;
        Ok(outputs(py, network, &inputs, rows))
    }

    fn evaluate(
        &mut self,
        py: Python<'_>,
        inputs: &[Buffer],
        target: &Buffer,
        rows: usize,
    ) -> PyResult<(f64, Vec<Array>)> {
        let shapes: Vec<Shape> = inputs.iter().map(|input| row_shape(&input.shape)).collect();
        let inputs = rows_of::<T>(inputs, &shapes).map_err(PyTypeError::new_err)?;
        let shape = row_shape(&target.shape);
        let values = numbers::<T>(target).map_err(PyTypeError::new_err)?;
        let lane = LaneRows {
            inputs: &inputs,
            target: Rows {
                values,
                shape: &shape,
            },
            rows,
        };
        let judging = self.judging()?;
        let loss = py
            .detach(|| judging.judge(lane, false, 1.0, 0))
            .map_err(|error| wrong(py, &error))?;
        Ok((loss, outputs(py, &judging.network, &inputs, rows)))
    }

    fn last_outputs(&mut self, py: Python<'_>, inputs: &[Buffer], rows: usize) -> PyResult<Vec<Array>> {
        let shapes: Vec<Shape> = inputs.iter().map(|input| row_shape(&input.shape)).collect();
        let inputs = rows_of::<T>(inputs, &shapes).map_err(PyTypeError::new_err)?;
        Ok(outputs(py, self.network(), &inputs, rows))
    }

    fn train(
        &mut self,
        gradients: &mut grampus_train::gradients::Gradients,
        index: usize,
        (inputs, target, rows): (&[Buffer], &Buffer, usize),
        share: f64,
        seed: u64,
    ) -> Result<f64, Failed> {
        let Self::Learns(learner) = self else {
            return Err(Failed::NotLearning);
        };
        let shapes: Vec<Shape> = inputs.iter().map(|input| row_shape(&input.shape)).collect();
        let inputs = rows_of::<T>(inputs, &shapes).map_err(Failed::Array)?;
        let shape = row_shape(&target.shape);
        let values = numbers::<T>(target).map_err(Failed::Array)?;
        let lane = LaneRows {
            inputs: &inputs,
            target: Rows {
                values,
                shape: &shape,
            },
            rows,
        };
        learner
            .train(gradients, index, lane, share, seed)
            .map_err(Failed::Learning)
    }
}

fn rows_of<'a, T: Real + Element>(
    arrays: &'a [Buffer],
    shapes: &'a [Shape],
) -> Result<Vec<Rows<'a, T>>, String> {
    let both = arrays.iter().zip(shapes);
    both.map(|(array, shape)| {
        Ok(Rows {
            values: numbers(array)?,
            shape,
        })
    })
    .collect()
}

fn outputs<T: Real + Element>(
    py: Python<'_>,
    network: &Network<T>,
    inputs: &[Rows<'_, T>],
    rows: usize,
) -> Vec<Array> {
    let all = (0..).map_while(|place| network.output(inputs, place));
    all.map(|(values, shape)| {
        let axes = [&[rows], shape.axes()].concat();
        (PyBytes::new(py, bytes_of(values)).unbind(), axes)
    })
    .collect()
}
