//! Data for Python models.

use pyo3::prelude::*;

mod image;

/// Adds what this folder gives to the extension module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    image::register(module)?;
    Ok(())
}
