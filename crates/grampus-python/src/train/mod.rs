//! Training for Python models and buffers.

use pyo3::prelude::*;

mod checkpoint;
mod events;
mod fit;
mod flat;
mod gradients;
mod metrics;
mod native;
mod plan;
mod rates;
mod trigger;

/// Adds what this folder gives to the extension module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    checkpoint::register(module)?;
    events::register(module)?;
    fit::register(module)?;
    flat::register(module)?;
    gradients::register(module)?;
    metrics::register(module)?;
    native::register(module)?;
    plan::register(module)?;
    rates::register(module)?;
    trigger::register(module)?;
    Ok(())
}
