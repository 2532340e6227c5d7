//! The metrics of grampus-train for Python.

use pyo3::prelude::*;

/// Adds them to the extension module.
pub(crate) fn register(_module: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
