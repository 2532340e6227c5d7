//! Batches that threads make ready.

use std::time::Duration;

use grampus_data::batch::{Buffer, Kind, Output, Stored, pack};
use grampus_data::loader::{Batch, Depth, Held, Loader as Inner, Sequence, Stream};
use grampus_data::source::find;
use grampus_data::table::parquet::Dataset;
use grampus_data::{DataError, Place};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::table::Table;
use super::{detached, raise};

/// How often a thread that waits looks for signals.
const LOOK: Duration = Duration::from_millis(50);

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Loader>()?;
    module.add_class::<Numbers>()?;
    module.add_function(wrap_pyfunction!(pack_table, module)?)
}

/// Numbers of a batch or a table, as arrays of numpy see them.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct Numbers {
    kind: Kind,
    shape: Vec<usize>,
    memory: Memory,
}

enum Memory {
    Batch(Buffer),
    Table(bytes::Bytes),
}

#[pymethods]
impl Numbers {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let bytes = match &self.memory {
            Memory::Batch(buffer) => buffer.bytes(),
            Memory::Table(bytes) => bytes,
        };
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

fn outputs(text: &str) -> Result<Vec<Output>, DataError> {
    serde_json::from_str(text).map_err(|error| DataError::Option {
        option: "outputs".to_owned(),
        why: error.to_string(),
    })
}

/// The numbers of a table, row behind row, one array for each output; and what is wrong with rows that cannot be used, which
/// are errors unless `skip`.
#[pyfunction]
fn pack_table(
    py: Python<'_>,
    table: &Table,
    outputs_json: &str,
    name: String,
    skip: bool,
) -> PyResult<(Vec<Numbers>, Vec<(usize, String)>)> {
    let packed = detached(py, || {
        let rows = table.0.whole()?;
        pack(&rows, &outputs(outputs_json)?, &Place::file(name), skip)
    })?;
    let mut arrays = Vec::with_capacity(packed.outputs.len());
    for stored in packed.outputs {
        match stored {
            Stored::Numbers(matrix) => {
                let mut shape = vec![packed.rows];
                shape.extend(matrix.shape);
                let (kind, memory) = (matrix.kind, Memory::Table(matrix.data));
                arrays.push(Numbers { kind, shape, memory });
            }
            Stored::Images(_) => {
                return Err(PyRuntimeError::new_err(
                    "images are decoded by a loader, not packed",
                ));
            }
        }
    }
    let bad = packed.bad.into_iter().map(|bad| (bad.row, bad.why));
    Ok((arrays, bad.collect()))
}

/// Threads that make batches ready.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct Loader {
    loader: Inner,
    depth: std::sync::Mutex<Depth>,
}

impl Loader {
    fn of(loader: std::io::Result<Inner>, ahead: usize) -> PyResult<Self> {
        let depth = std::sync::Mutex::new(Depth::new(ahead));
        let loader = loader?;
        Ok(Self { loader, depth })
    }

    fn depth(&self) -> std::sync::MutexGuard<'_, Depth> {
        self.depth
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The arrays of a batch, the numbers of its rows, and what is wrong with those that were left out.
type Taken = (Vec<Numbers>, Vec<u64>, Vec<String>);

#[pymethods]
impl Loader {
    /// Batches of tables, which may lie in memory that others see, too. `ahead` is how many batches are made ready at most.
    #[staticmethod]
    fn tables(
        py: Python<'_>,
        tables: Vec<PyRef<'_, Table>>,
        outputs_json: &str,
        threads: usize,
        ahead: usize,
        skip: bool,
    ) -> PyResult<Self> {
        let tables: Vec<_> = tables.iter().map(|table| table.0.clone()).collect();
        let loader = detached(py, || {
            let outputs = outputs(outputs_json)?;
            let mut blocks = Vec::with_capacity(tables.len());
            for (number, table) in tables.iter().enumerate() {
                let place = Place::file(format!("shard {number}"));
                blocks.push(pack(&table.whole()?, &outputs, &place, skip)?);
            }
            Ok(Inner::new(Box::new(Held::new(blocks, skip)), threads, ahead))
        })?;
        Self::of(loader, ahead)
    }

    /// Batches of Parquet files, which are read each time.
    #[staticmethod]
    fn parquet(
        py: Python<'_>,
        paths: Vec<String>,
        outputs_json: &str,
        threads: usize,
        ahead: usize,
        skip: bool,
    ) -> PyResult<Self> {
        let loader = detached(py, || {
            let dataset = Dataset::open(&find(&paths, &["parquet", "pq"])?)?;
            let stream = Stream::new(dataset, outputs(outputs_json)?, skip);
            Ok(Inner::new(Box::new(stream), threads, ahead))
        })?;
        Self::of(loader, ahead)
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
                return answer.map(taken).map_err(|error| raise(py, &error));
            }
            py.check_signals()?;
        }
    }
}

fn taken(batch: Batch) -> Taken {
    let parts = batch.parts.into_iter().map(|part| Numbers {
        kind: part.kind,
        shape: part.shape,
        memory: Memory::Batch(part.buffer),
    });
    (parts.collect(), batch.rows, batch.skipped)
}
