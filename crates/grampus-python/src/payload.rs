//! Bytes between Python and a frame.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use bytes::Bytes;
use grampus_net::Memory;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::Result;

/// Small parts and, where there is much, a descriptor of shared memory.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct Payload(grampus_cluster::Payload);

impl Payload {
    pub(crate) fn new(payload: grampus_cluster::Payload) -> Self {
        Self(payload)
    }

    pub(crate) fn inner(&self) -> grampus_cluster::Payload {
        self.0.clone()
    }
}

#[pymethods]
impl Payload {
    /// Takes the parts, and the descriptor of a memory file of `length` bytes, which it then owns.
    #[new]
    #[pyo3(signature = (parts, descriptor=None, length=0))]
    fn make(parts: Vec<Bound<'_, PyBytes>>, descriptor: Option<i32>, length: u64) -> Result<Self> {
        let parts = parts
            .iter()
            .map(|part| Bytes::copy_from_slice(part.as_bytes()))
            .collect();
        // SAFETY: the caller made the descriptor for us and gives it away.
        let memory = descriptor
            .map(|fd| Memory::from_fd(unsafe { OwnedFd::from_raw_fd(fd) }, length))
            .transpose()?;
        Ok(Self(grampus_cluster::Payload { parts, memory }))
    }

    /// The small parts.
    #[getter]
    fn parts<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        self.0.parts.iter().map(|part| PyBytes::new(py, part)).collect()
    }

    /// A descriptor of the memory, which the caller has to close, and its length.
    fn memory(&self) -> Result<Option<(i32, u64)>> {
        let Some(memory) = &self.0.memory else {
            return Ok(None);
        };
        Ok(Some((memory.dup()?.into_raw_fd(), memory.len())))
    }
}
