//! Locks of objects that Python's threads share.
//!
//! - **LO-1** Nobody waits for one of these locks and keeps the interpreter lock meanwhile: whoever has the first may need the
//!   second to go on.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;

/// Locks for a thread that has the interpreter lock, and lets go of that while it waits (LO-1).
pub(crate) fn attached<'a, T>(py: Python<'_>, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
    mutex.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
}

/// Locks for a thread that does not have the interpreter lock.
pub(crate) fn detached<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
