//! Batches that threads make ready.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use grampus_data::DataError;
use grampus_data::batch::{Buffer, Kind};
use grampus_data::keeper::{Kept, Manifest};
use grampus_data::loader::{self, Batch, Blocks, Depth, Held, Sequence, Stream, Tables};
use grampus_data::source::find;
use grampus_data::table::parquet::Dataset;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::keeper::{join_of, outputs_of, seconds};
use super::table::{Table, borrow};
use super::{detached, raise_data};

/// How often a thread that waits looks for signals.
const LOOK: Duration = Duration::from_millis(50);

/// Threads more where rows come from elsewhere: so many batches are on their way at once.
const WAITING: usize = 3;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Loader>()?;
    module.add_class::<Numbers>()?;
    module.add_function(wrap_pyfunction!(write_packed, module)?)
}

/// Numbers of a batch, as arrays of numpy see them.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct Numbers {
    kind: Kind,
    shape: Vec<usize>,
    buffer: Buffer,
}

#[pymethods]
impl Numbers {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let bytes = self.buffer.bytes();
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", PyTuple::new(py, &self.shape)?)?;
        interface.set_item("typestr", typestr(self.kind))?;
        // Whoever got it may write to it: nobody else reads this memory any more.
        interface.set_item("data", (bytes.as_ptr() as usize, false))?;
        Ok(interface)
    }
}

fn typestr(kind: Kind) -> &'static str {
    match kind {
        Kind::F32 => "<f4",
        Kind::F64 => "<f8",
        Kind::I8 => "|i1",
        Kind::I16 => "<i2",
        Kind::I32 => "<i4",
        Kind::I64 => "<i8",
        Kind::U8 => "|u1",
        Kind::Bool => "|b1",
    }
}

/// Type, shape and offset of an array in a file.
type Array = (&'static str, Vec<usize>, u64);
/// Arrays, rows that cannot be used with the reasons, and where the file ends.
type Written = (Vec<Array>, Vec<(u64, String)>, u64);

/// Writes the numbers of tables, or of Parquet files, to an open file, from a place on. Returns one array for each output, the rows
/// that cannot be used with the reasons (errors unless `skip`), and where the file ends.
#[pyfunction]
#[pyo3(signature = (outputs_json, fd, start, skip, tables=None, paths=None))]
fn write_packed(
    py: Python<'_>,
    outputs_json: &str,
    fd: i32,
    start: u64,
    skip: bool,
    tables: Option<Vec<PyRef<'_, Table>>>,
    paths: Option<Vec<String>>,
) -> PyResult<Written> {
    let tables = tables.map(unbound);
    let layout = detached(py, || {
        let blocks = blocks(outputs_json, skip, tables, paths)?;
        loader::write_packed(blocks.as_ref(), borrow(fd)?, start)
    })?;
    let arrays = layout.outputs.into_iter();
    let arrays = arrays.map(|written| (typestr(written.kind), written.shape, written.offset));
    Ok((arrays.collect(), layout.bad, layout.end))
}

fn unbound(tables: Vec<PyRef<'_, Table>>) -> Vec<grampus_data::Table> {
    tables.iter().map(|table| table.0.clone()).collect()
}

/// Tables where there are some, else files.
fn blocks(
    outputs_json: &str,
    skip: bool,
    tables: Option<Vec<grampus_data::Table>>,
    paths: Option<Vec<String>>,
) -> Result<Box<dyn Blocks>, DataError> {
    let outputs = outputs_of(outputs_json)?;
    Ok(match tables {
        Some(tables) => Box::new(Tables::new(tables, outputs, skip)),
        None => {
            let files = find(&paths.unwrap_or_default(), &["parquet", "pq"])?;
            Box::new(Stream::new(Dataset::open(&files)?, outputs, skip))
        }
    })
}

/// Threads that make batches ready.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct Loader {
    loader: loader::Loader,
    depth: Mutex<Depth>,
}

impl Loader {
    fn depth(&self) -> MutexGuard<'_, Depth> {
        self.depth.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The arrays of a batch, the numbers of its rows, and what is wrong with those that were left out.
type Taken = (Vec<Numbers>, Vec<u64>, Vec<String>);

#[pymethods]
impl Loader {
    /// Batches of tables, or of Parquet files. What is `held` is read once, before this returns; else it is read each time.
    /// `ahead` is how many batches are made ready at most.
    #[new]
    #[pyo3(signature = (outputs_json, threads, ahead, held, skip, tables=None, paths=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords for Python")]
    fn new(
        py: Python<'_>,
        outputs_json: &str,
        threads: usize,
        ahead: usize,
        held: bool,
        skip: bool,
        tables: Option<Vec<PyRef<'_, Table>>>,
        paths: Option<Vec<String>>,
    ) -> PyResult<Self> {
        let tables = tables.map(unbound);
        let loader = detached(py, || {
            let mut blocks = blocks(outputs_json, skip, tables, paths)?;
            if held {
                blocks = Box::new(Held::read(blocks.as_ref())?);
            }
            Ok(loader::Loader::new(blocks, threads, ahead))
        })?;
        let depth = Mutex::new(Depth::new(ahead));
        let loader = loader?;
        Ok(Self { loader, depth })
    }

    /// Batches of rows that keepers hold. `manifest` says who holds which, as JSON; nobody is waited for longer than `wait`.
    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "keywords for Python")]
    fn kept(
        py: Python<'_>,
        outputs_json: &str,
        threads: usize,
        ahead: usize,
        skip: bool,
        join: &str,
        manifest: &str,
        wait: f64,
    ) -> PyResult<Self> {
        let (join, wait) = (join_of(join)?, seconds(wait)?);
        let loader = detached(py, || {
            let manifest: Manifest = serde_json::from_str(manifest).map_err(|error| DataError::Option {
                option: "manifest".to_owned(),
                why: error.to_string(),
            })?;
            let rows = Kept::open(&join, manifest, outputs_of(outputs_json)?, skip, wait)?;
            // Threads that wait for rows take no core from those that do not.
            let threads = threads + if rows.is_far() { WAITING } else { 0 };
            Ok(loader::Loader::picking(Box::new(rows), threads, ahead))
        })?;
        let depth = Mutex::new(Depth::new(ahead));
        let loader = loader?;
        Ok(Self { loader, depth })
    }

    #[getter]
    fn num_rows(&self) -> u64 {
        self.loader.sizes().iter().sum()
    }

    /// Forgets what was asked for, and takes rows in another order from now on: as they come, shuffled, or shuffled within
    /// windows of some blocks.
    #[pyo3(signature = (seed, epoch, shuffle, window=None))]
    fn begin(&self, seed: u64, epoch: u64, shuffle: bool, window: Option<usize>) {
        let sizes = self.loader.sizes();
        self.loader.begin(match (shuffle, window) {
            (false, _) => Sequence::in_order(seed, epoch, sizes),
            (true, None) => Sequence::shuffled(seed, epoch, sizes),
            (true, Some(window)) => Sequence::windows(seed, epoch, sizes, window),
        });
    }

    /// Asks for the rows at some places.
    fn ask(&self, py: Python<'_>, first: u64, end: u64) {
        py.detach(|| self.loader.ask(first..end));
    }

    /// How many more batches to ask for now, to have enough ready.
    fn room(&self) -> usize {
        self.depth().now().saturating_sub(self.loader.pending())
    }

    /// The next batch that was asked for.
    fn take(&self, py: Python<'_>) -> PyResult<Taken> {
        if self.loader.pending() == 0 {
            return Err(PyRuntimeError::new_err("no batch was asked for"));
        }
        let ready = self.loader.is_ready();
        self.depth().asked(!ready);
        loop {
            if let Some(answer) = py.detach(|| self.loader.next(LOOK)) {
                return answer.map(taken).map_err(|error| raise_data(py, &error));
            }
            py.check_signals()?;
        }
    }
}

fn taken(batch: Batch) -> Taken {
    let parts = batch.parts.into_iter().map(|part| Numbers {
        kind: part.kind,
        shape: part.shape,
        buffer: part.buffer,
    });
    (parts.collect(), batch.rows, batch.skipped)
}
