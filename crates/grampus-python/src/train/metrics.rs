//! The metrics of grampus-train for Python.

use std::collections::{BTreeMap, HashMap};

use grampus_train::metrics::{self, MetricError, Setting, Value, Values};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::collective::{Buffer, Use};

/// Adds them to the extension module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(higher_is_better, module)?)?;
    module.add_class::<Metric>()?;
    module.add_class::<MetricState>()
}

/// What is measured.
#[pyclass(module = "grampus._native", frozen)]
struct Metric(metrics::Metric);

#[pymethods]
impl Metric {
    #[new]
    fn new(kind: &str, options: BTreeMap<String, Given>) -> PyResult<Self> {
        let options = options
            .into_iter()
            .map(|(name, option)| (name, option.into()))
            .collect();
        metrics::Metric::named(kind, &options).map(Self).map_err(refused)
    }

    fn state(&self) -> MetricState {
        MetricState(self.0.state())
    }

    /// Whether more is better, where that can be said.
    #[getter]
    fn higher_is_better(&self) -> Option<bool> {
        self.0.higher_is_better()
    }
}

/// Names of metrics, and whether more of them is better, where that is known.
pub(crate) type Directions = HashMap<String, Option<bool>>;

/// Whether more of a value in an epoch's record is better, where that is known.
#[pyfunction]
#[pyo3(name = "higher_is_better")]
fn higher_is_better(name: &str, metrics: Directions) -> Option<bool> {
    metrics::higher_is_better(name, |bare| metrics.get(bare).copied())
}

/// What a metric has seen.
#[pyclass(module = "grampus._native")]
struct MetricState(metrics::State);

#[pymethods]
impl MetricState {
    #[staticmethod]
    fn from_bytes(state: &[u8]) -> PyResult<Self> {
        metrics::State::from_bytes(state).map(Self).map_err(refused)
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let state = self.0.to_bytes().map_err(refused)?;
        Ok(PyBytes::new(py, &state))
    }

    fn update(&mut self, predictions: &Bound<'_, PyAny>, targets: &Bound<'_, PyAny>) -> PyResult<()> {
        let (predictions, targets) = (
            Buffer::of(predictions, Use::Read)?,
            Buffer::of(targets, Use::Read)?,
        );
        let predictions = values(&predictions)?;
        self.0.update(&predictions, &values(&targets)?).map_err(refused)
    }

    fn merge(&mut self, other: &Self) -> PyResult<()> {
        self.0.merge(&other.0).map_err(refused)
    }

    fn reset(&mut self) {
        self.0 = self.0.metric().state();
    }

    /// A number, or the arrays of a curve as the bytes of their floats.
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let arrays = match self.0.value() {
            Value::Number(number) => return number.into_bound_py_any(py),
            Value::Arrays(arrays) => arrays,
        };
        let named = PyDict::new(py);
        for (name, array) in arrays {
            let bytes: Vec<u8> = array.into_iter().flat_map(f64::to_ne_bytes).collect();
            named.set_item(name, PyBytes::new(py, &bytes))?;
        }
        Ok(named.into_any())
    }
}

/// An option as Python gives it: bool is asked for first, since it is a whole number too.
#[derive(FromPyObject)]
enum Given {
    Flag(bool),
    Whole(i64),
    Number(f64),
    Text(String),
}

impl From<Given> for Setting {
    fn from(option: Given) -> Self {
        match option {
            Given::Flag(flag) => Self::Flag(flag),
            Given::Whole(whole) => Self::Whole(whole),
            Given::Number(number) => Self::Number(number),
            Given::Text(text) => Self::Text(text),
        }
    }
}

fn values(buffer: &Buffer) -> PyResult<Values<'_>> {
    Values::from_bytes(buffer.dtype, &buffer.shape, buffer.bytes()).map_err(refused)
}

fn refused(error: MetricError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
