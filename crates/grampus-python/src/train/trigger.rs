//! The triggers of grampus-train for Python.

use grampus_train::trigger::{Progress, Trigger};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::Result;

/// Adds them to the extension module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(check_score, module)?)?;
    module.add_function(wrap_pyfunction!(trigger_fires, module)?)
}

/// Refuses a trigger that waits for a score that nothing measures, or that falls as the model becomes better.
#[pyfunction]
fn check_score(json: &str, metrics: Vec<(String, Option<bool>)>, validates: bool) -> PyResult<()> {
    let trigger = Trigger::from_json(json).map_err(crate::error::Error::from)?;
    let directions = metrics
        .iter()
        .map(|(name, direction)| (name.as_str(), *direction));
    trigger
        .check_score(directions, validates)
        .map_err(PyValueError::new_err)
}

/// Why a trigger fires at this point of a run; `None` where it does not.
#[pyfunction]
fn trigger_fires(
    json: &str,
    epoch: u64,
    step: u64,
    epoch_end: bool,
    loss: Option<f64>,
    score: Option<f64>,
) -> Result<Option<String>> {
    let progress = Progress {
        epoch,
        step,
        epoch_end,
        loss,
        score,
    };
    Ok(Trigger::from_json(json)?.fires(&progress))
}
