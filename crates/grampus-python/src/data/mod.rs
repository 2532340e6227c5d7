//! Tables, images and files for Python.

mod image;
mod keeper;
mod loader;
mod read;
mod table;

use std::fmt::Display;

use grampus_data::DataError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// Adds what this folder gives to the extension module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    image::register(module)?;
    keeper::register(module)?;
    loader::register(module)?;
    read::register(module)?;
    table::register(module)?;
    Ok(())
}

/// The exception is defined in Python: it has two bases, which a class made here cannot have.
fn raise(py: Python<'_>, error: &impl Display) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    match CLASS.import(py, "grampus.errors", "DataError") {
        Ok(class) => PyErr::from_type(class.clone(), error.to_string()),
        Err(error) => error,
    }
}

/// What is wrong with data; rows that are gone with their keeper can be brought again, so they have an exception of their own.
fn raise_data(py: Python<'_>, error: &DataError) -> PyErr {
    static LOST: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    match error {
        DataError::Lost { partitions, .. } => match LOST.import(py, "grampus.errors", "FeedLost") {
            Ok(class) => PyErr::from_type(class.clone(), (error.to_string(), partitions.clone())),
            Err(error) => error,
        },
        other => raise(py, other),
    }
}

/// Does what takes time while other threads of Python run.
fn detached<T: Send>(py: Python<'_>, work: impl Send + FnOnce() -> Result<T, DataError>) -> PyResult<T> {
    py.detach(work).map_err(|error| raise_data(py, &error))
}
