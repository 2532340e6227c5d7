//! Gradients of Python models.

use std::sync::{Mutex, MutexGuard};

use grampus_collective::{DType, Kind};
use grampus_train::gradients::Parameter;
use grampus_train::whereabouts::Wait;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::collective::{Group, interruptible, raise};
use crate::locked;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Gradients>()?;
    module.add_class::<LaneMemory>()
}

/// The gradients of a model on this worker's lanes.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct Gradients(Mutex<grampus_train::gradients::Gradients>);

#[pymethods]
impl Gradients {
    /// `mine` are the first lane of this worker and the first of the next one; `parameters` are codes of types and numbers of elements, in the order in which they become ready.
    #[new]
    fn new(
        py: Python<'_>,
        group: &Group,
        mine: (u32, u32),
        lanes: u32,
        parameters: Vec<(u8, usize)>,
    ) -> PyResult<Self> {
        let parameters: PyResult<Vec<Parameter>> = parameters
            .into_iter()
            .map(|(code, count)| match DType::from_code(code) {
                Some(dtype) => Ok(Parameter { dtype, count }),
                None => Err(PyValueError::new_err(format!("no type has the code {code}"))),
            })
            .collect();
        let mine = mine.0..mine.1;
        let made = grampus_train::gradients::Gradients::new(group.get()?, mine, lanes, &parameters?);
        made.map(|made| Self(Mutex::new(made)))
            .map_err(|error| raise(py, &error))
    }

    /// Where the gradient of each parameter begins in a lane's memory, in bytes.
    fn places(&self, py: Python<'_>) -> Vec<usize> {
        self.get(py).places().iter().map(|place| place.start).collect()
    }

    /// The memory of one of this worker's lanes.
    fn memory(slf: &Bound<'_, Self>, index: usize) -> PyResult<LaneMemory> {
        let gradients = slf.get().get(slf.py());
        let memory = gradients
            .memory(index)
            .ok_or_else(|| PyIndexError::new_err(format!("this worker has no lane at {index}")))?;
        Ok(LaneMemory {
            address: memory.as_ptr() as usize,
            length: memory.len(),
            _owner: slf.clone().unbind(),
        })
    }

    /// Begins a step of one of this worker's lanes.
    fn begin(&self, py: Python<'_>, index: usize) -> PyResult<()> {
        self.get(py).begin(index).map_err(|error| raise(py, &error))
    }

    /// Says that the gradient of a parameter is complete.
    fn ready(&self, py: Python<'_>, parameter: usize) -> PyResult<()> {
        self.get(py).ready(parameter).map_err(|error| raise(py, &error))
    }

    /// Parameters that have not come from the present lane.
    fn missing(&self, py: Python<'_>) -> Vec<usize> {
        self.get(py).missing()
    }

    /// Ends the step of the present lane.
    fn end(&self, py: Python<'_>, loss: f32, says: f32, stops: bool) {
        self.get(py).end(loss, says, stops);
    }

    /// A lane without rows.
    fn skip(&self, py: Python<'_>, index: usize) -> PyResult<()> {
        self.get(py).skip(index).map_err(|error| raise(py, &error))
    }

    /// Waits for all sums; the loss, the parameters that no lane used, what lane 0 said, and whether a worker wants to stop.
    fn finish(&self, py: Python<'_>) -> PyResult<(f64, Vec<usize>, f32, bool)> {
        let summed = interruptible(py, Wait::Call(Kind::AllReduceLanes), |gives_up| {
            self.get_detached().finish(gives_up)
        })?;
        Ok((summed.loss, summed.unused, summed.said, summed.stops))
    }
}

impl Gradients {
    pub(super) fn get(&self, py: Python<'_>) -> MutexGuard<'_, grampus_train::gradients::Gradients> {
        locked::attached(py, &self.0)
    }

    pub(super) fn get_detached(&self) -> MutexGuard<'_, grampus_train::gradients::Gradients> {
        locked::detached(&self.0)
    }
}

/// The memory of a lane, which numpy sees without a copy.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct LaneMemory {
    address: usize,
    length: usize,
    /// The memory lives as long as the gradients do.
    _owner: Py<Gradients>,
}

#[pymethods]
impl LaneMemory {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        crate::collective::array_interface(py, self.address, self.length)
    }
}
