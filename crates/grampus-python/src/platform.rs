//! What the bits of a worker depend on.

use grampus_core::platform::{self, Platform, Population};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The processor of this machine, as far as libraries choose their kernels by it.
#[pyfunction]
pub(crate) fn processor() -> Platform {
    platform::processor()
}

/// All platforms that a run was on, as JSON like those `known` from before, and in which ways they differ, if they do. `members`
/// are host and platform of each worker, in order of rank.
#[pyfunction]
pub(crate) fn compare_platforms(
    known: &str,
    members: Vec<(String, Platform)>,
    goes_on: bool,
) -> PyResult<(String, Option<String>)> {
    let odd = |error: serde_json::Error| PyValueError::new_err(format!("platforms of a run: {error}"));
    let known: Vec<Population> = serde_json::from_str(known).map_err(odd)?;
    let (all, why) = platform::compare(known, &members, goes_on);
    Ok((serde_json::to_string(&all).map_err(odd)?, why))
}
