//! The checkpoints of grampus-train for Python.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use grampus_core::{Clock, SystemClock, Time};
use grampus_train::checkpoint::{self, Checkpoint, Keep, Order, Store, Tensor, Writer, Written};
use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::collective::RawBytes;
use crate::error::GrampusError;
use crate::locked;

/// How often a thread that waits looks for signals.
const LOOK: Duration = Duration::from_millis(50);

pyo3::create_exception!(
    grampus.errors,
    CheckpointError,
    GrampusError,
    "A checkpoint could not be written, found or read; the message names the place."
);

/// Shape, type and bytes of a tensor, by its name.
type Given<'py> = BTreeMap<String, (Vec<usize>, String, Bound<'py, PyAny>)>;
/// The same, read from a file.
type Found = BTreeMap<String, (Vec<usize>, String, TensorMemory)>;
/// The meta of a checkpoint and the tensors of each file.
type Contents = (String, BTreeMap<String, Found>);
/// The name of the new checkpoint; names of those that went, and why.
type Done = (String, Vec<(String, String)>);

/// Adds them to the extension module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("CheckpointError", module.py().get_type::<CheckpointError>())?;
    module.add_class::<CheckpointStore>()?;
    module.add_class::<TensorMemory>()?;
    module.add_function(wrap_pyfunction!(read_checkpoint, module)?)?;
    module.add_function(wrap_pyfunction!(read_tensors, module)?)?;
    module.add_function(wrap_pyfunction!(write_tensors, module)?)?;
    Ok(())
}

/// Bytes of a tensor that was read. They may be written to: the file stays as it is.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct TensorMemory(Tensor);

#[pymethods]
impl TensorMemory {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        crate::collective::array_interface(py, self.0.data_ptr() as usize, self.0.data().len())
    }
}

/// A folder or a prefix that holds checkpoints.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct CheckpointStore {
    store: Arc<Store>,
    writer: Mutex<Writer>,
}

#[pymethods]
impl CheckpointStore {
    #[new]
    fn new(url: &str) -> PyResult<Self> {
        let store = Arc::new(Store::open(url).map_err(raise)?);
        let writer = Mutex::new(Writer::new(Arc::clone(&store)));
        Ok(Self { store, writer })
    }

    /// Names and steps of all checkpoints, whole or not, oldest first.
    fn list(&self, py: Python<'_>) -> PyResult<Vec<(String, u64)>> {
        let entries = py.detach(|| self.store.list()).map_err(raise)?;
        Ok(entries
            .into_iter()
            .map(|entry| (entry.name, entry.step))
            .collect())
    }

    /// The name of the newest checkpoint that is whole, and why newer ones were passed over.
    fn latest(&self, py: Python<'_>) -> PyResult<(Option<String>, Vec<String>)> {
        let (found, reasons) = self.read_latest(py, false)?;
        Ok((found.map(|(name, _, _)| name), reasons))
    }

    /// The newest checkpoint that is whole, with its contents, and why newer ones were passed over. For a run that is to be
    /// `resumed`, raises where there are some and none of them is whole.
    #[pyo3(signature = (resumed=false))]
    #[expect(clippy::type_complexity, reason = "a tuple is what Python sees")]
    fn read_latest(
        &self,
        py: Python<'_>,
        resumed: bool,
    ) -> PyResult<(Option<(String, String, BTreeMap<String, Found>)>, Vec<String>)> {
        let latest = py.detach(|| match resumed {
            true => self.store.resumable(),
            false => self.store.latest(),
        });
        let latest = latest.map_err(raise)?;
        let reasons = latest.skipped.into_iter().map(|skipped| skipped.reason).collect();
        let found = latest.found.map(|(entry, checkpoint)| {
            let (meta, files) = contents(checkpoint);
            (entry.name, meta, files)
        });
        Ok((found, reasons))
    }

    /// The meta of a checkpoint and the tensors of each of its files.
    fn read(&self, py: Python<'_>, name: &str) -> PyResult<Contents> {
        py.detach(|| self.store.read(name)).map(contents).map_err(raise)
    }

    /// Copies the tensors and starts to write them. If a write is under way, waits for its end first, at most `timeout`
    /// seconds, and raises its error, if any: then nothing was begun. Returns what that write did.
    #[pyo3(signature = (name, files, meta, keep=None, pinned=vec![], timeout=600.0))]
    #[expect(clippy::too_many_arguments, reason = "keywords for Python")]
    fn begin(
        &self,
        py: Python<'_>,
        name: String,
        files: BTreeMap<String, Given<'_>>,
        meta: String,
        keep: Option<usize>,
        pinned: Vec<String>,
        timeout: f64,
    ) -> PyResult<Option<Done>> {
        let before = self.wait(py, timeout)?;
        let meta = serde_json::value::RawValue::from_string(meta);
        let meta = meta.map_err(|error| raise(checkpoint::CheckpointError::Meta(error)))?;
        let mut copied = Vec::new();
        for (file, tensors) in files {
            copied.push((file, copies(py, tensors)?));
        }
        let order = Order {
            name,
            files: copied,
            meta,
            keep: keep.map(|last| Keep { last, pinned }),
        };
        locked::attached(py, &self.writer)
            .begin(order, Duration::ZERO)
            .map_err(raise)?;
        Ok(before)
    }

    /// Waits for the write under way, if any, and returns what it did. After `timeout` seconds raises TimeoutError;
    /// the write goes on.
    #[pyo3(signature = (timeout=600.0))]
    fn wait(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<Done>> {
        let limit = Duration::try_from_secs_f64(timeout.max(0.0)).unwrap_or(Duration::MAX);
        let clock = SystemClock::start();
        loop {
            let left = limit.saturating_sub(clock.now() - Time::ZERO);
            match py.detach(|| locked::detached(&self.writer).wait(left.min(LOOK))) {
                Err(checkpoint::CheckpointError::Late { path, .. }) if left.is_zero() => {
                    return Err(PyTimeoutError::new_err(format!(
                        "{path} was not written after {timeout} s; the write goes on"
                    )));
                }
                Err(checkpoint::CheckpointError::Late { .. }) => py.check_signals()?,
                outcome => return outcome.map(|written| written.map(done)).map_err(raise),
            }
        }
    }

    /// Removes a checkpoint; one that is not there is no error.
    fn remove(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        py.detach(|| self.store.remove(name)).map_err(raise)
    }
}

/// The meta of the checkpoint whose folder this is, and the tensors of each of its files.
#[pyfunction]
fn read_checkpoint(py: Python<'_>, url: &str) -> PyResult<Contents> {
    py.detach(|| checkpoint::read(url)).map(contents).map_err(raise)
}

/// The tensors of a safetensors file.
#[pyfunction]
fn read_tensors(py: Python<'_>, path: &str) -> PyResult<Found> {
    let (tensors, _) = py.detach(|| checkpoint::read_tensors(path)).map_err(raise)?;
    Ok(found(tensors))
}

/// Writes a safetensors file, whole or not at all.
#[pyfunction]
fn write_tensors(
    py: Python<'_>,
    path: &str,
    tensors: Given<'_>,
    metadata: BTreeMap<String, String>,
) -> PyResult<()> {
    let tensors = copies(py, tensors)?;
    py.detach(|| checkpoint::write_tensors(path, tensors, &metadata))
        .map_err(raise)
}

/// Owned copies of the tensors: the caller's may change the moment after.
fn copies(py: Python<'_>, tensors: Given<'_>) -> PyResult<Vec<Tensor>> {
    let mut given = Vec::new();
    for (name, (shape, kind, buffer)) in tensors {
        let dtype = checkpoint::dtype(&kind).ok_or_else(|| {
            PyValueError::new_err(format!(
                "tensor {name:?}: safetensors has no type {kind:?}; it has F32, BF16, I64, BOOL and the like"
            ))
        })?;
        given.push((name, dtype, shape, RawBytes::of(&buffer)?));
    }
    let copied = py.detach(|| {
        let tensors = given.iter().map(|(name, dtype, shape, bytes)| {
            Tensor::new(name.clone(), *dtype, shape.clone(), bytes.copy())
        });
        tensors.collect::<Result<Vec<Tensor>, _>>()
    });
    copied.map_err(raise)
}

fn contents(checkpoint: Checkpoint) -> Contents {
    let files = checkpoint.files.into_iter();
    let files = files.map(|(file, tensors)| (file, found(tensors))).collect();
    (checkpoint.meta.get().to_owned(), files)
}

fn found(tensors: Vec<Tensor>) -> Found {
    let parts = tensors.into_iter().map(|tensor| {
        let (name, shape, kind) = (
            tensor.name().to_owned(),
            tensor.shape().to_vec(),
            tensor.dtype().to_string(),
        );
        (name, (shape, kind, TensorMemory(tensor)))
    });
    parts.collect()
}

fn done(written: Written) -> Done {
    let removed = written.removed.into_iter();
    (
        written.name,
        removed.map(|gone| (gone.name, gone.reason)).collect(),
    )
}

fn raise(error: checkpoint::CheckpointError) -> PyErr {
    CheckpointError::new_err(error.to_string())
}
