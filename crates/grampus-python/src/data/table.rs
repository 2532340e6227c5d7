//! Tables, which any library that speaks Arrow's C stream interface shares without a copy.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatchIterator;
use arrow::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow::record_batch::RecordBatchReader;
use grampus_data::table::{csv, ipc, parquet};
use grampus_data::{DataError, Table as Inner};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::detached;

const STREAM: &std::ffi::CStr = c"arrow_array_stream";

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Table>()
}

/// Columns with names and types; rows in order.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct Table(pub Inner);

#[pymethods]
impl Table {
    /// The rows of whatever has `__arrow_c_stream__`.
    #[staticmethod]
    fn from_stream(py: Python<'_>, stream: &Bound<'_, PyAny>) -> PyResult<Self> {
        if !stream.hasattr("__arrow_c_stream__")? {
            let kind = stream.get_type().fully_qualified_name()?;
            return Err(PyTypeError::new_err(format!(
                "{kind} has no __arrow_c_stream__: give a table of pyarrow, pandas, polars or such"
            )));
        }
        let capsule = stream
            .call_method0("__arrow_c_stream__")?
            .cast_into::<PyCapsule>()?;
        let pointer = capsule
            .pointer_checked(Some(STREAM))?
            .cast::<FFI_ArrowArrayStream>();
        // SAFETY: a capsule of this name holds such a stream, as the interface says. It is moved out of the capsule, which then holds
        // one that is released.
        let reader = unsafe { RecordBatchStreamReader::from_raw(pointer.as_ptr()) };
        let reader = reader.map_err(|error| PyValueError::new_err(error.to_string()))?;
        detached(py, move || {
            let schema = reader.schema();
            Inner::new(schema, reader.collect::<Result<_, _>>()?)
        })
        .map(Self)
    }

    /// The rows of several tables, one after the other.
    #[staticmethod]
    fn concat(py: Python<'_>, tables: Vec<PyRef<'_, Self>>) -> PyResult<Self> {
        let tables: Vec<Inner> = tables.iter().map(|table| table.0.clone()).collect();
        detached(py, || Inner::concat(&tables)).map(Self)
    }

    /// A table that `write_ipc` wrote; its columns are views of the file, which may be closed.
    #[staticmethod]
    fn map_ipc(py: Python<'_>, fd: i32, offset: u64, length: usize) -> PyResult<Self> {
        detached(py, || ipc::map_at(borrow(fd)?, offset, length)).map(Self)
    }

    /// Writes the table into an open file from `offset` on, a multiple of 64; returns how many bytes it has.
    fn write_ipc(&self, py: Python<'_>, fd: i32, offset: u64) -> PyResult<u64> {
        detached(py, || ipc::write_at(&self.0, borrow(fd)?, offset))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer that cannot cast give what it has.
        let _ = requested_schema;
        let batches: Vec<_> = self.0.batches().iter().cloned().map(Ok).collect();
        let reader = RecordBatchIterator::new(batches, Arc::clone(self.0.schema()));
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), STREAM)
    }

    #[getter]
    fn num_rows(&self) -> usize {
        self.0.num_rows()
    }

    #[getter]
    fn columns(&self) -> Vec<String> {
        self.0.columns()
    }

    /// The types of the columns, as Arrow for Rust names them.
    #[getter]
    fn dtypes(&self) -> Vec<String> {
        let fields = self.0.schema().fields().iter();
        fields.map(|field| field.data_type().to_string()).collect()
    }

    /// Some rows, without copying them; fewer where the table ends.
    fn slice(&self, start: usize, rows: usize) -> Self {
        Self(self.0.slice(start, rows))
    }

    /// Some columns, in this order.
    fn select(&self, py: Python<'_>, columns: Vec<String>) -> PyResult<Self> {
        detached(py, || self.0.select(&columns)).map(Self)
    }

    fn write_parquet(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        detached(py, || parquet::write(&self.0, &path))
    }

    fn write_csv(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        detached(py, || csv::write(&self.0, &path))
    }

    fn __repr__(&self) -> String {
        let columns = self.0.schema().fields().len();
        format!(
            "<grampus table of {} rows and {columns} columns>",
            self.0.num_rows()
        )
    }
}

fn borrow<'fd>(fd: i32) -> Result<BorrowedFd<'fd>, DataError> {
    if fd < 0 {
        return Err(DataError::Io {
            path: format!("file descriptor {fd}"),
            source: std::io::ErrorKind::InvalidInput.into(),
        });
    }
    // SAFETY: the caller has it open during the call; one that is not gives an error, no harm.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}
