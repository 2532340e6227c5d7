//! The order of rows and the cut of batches for Python.

use grampus_train::plan::{self, Draw};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Order>()?;
    module.add_function(wrap_pyfunction!(lane_seed, module)?)?;
    module.add_function(wrap_pyfunction!(lanes_by, module)?)?;
    module.add_function(wrap_pyfunction!(lanes_of, module)?)?;
    module.add_function(wrap_pyfunction!(rows_of, module)?)?;
    module.add_function(wrap_pyfunction!(threads_per_lane, module)?)
}

/// The order of the rows of an epoch.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct Order(grampus_core::Order);

#[pymethods]
impl Order {
    #[new]
    fn new(seed: u64, epoch: u64, rows: u64) -> Self {
        Self(grampus_core::Order::new(seed, epoch, rows))
    }

    /// The rows at some places, as 64-bit numbers.
    fn rows<'py>(&self, py: Python<'py>, start: u64, end: u64) -> PyResult<Bound<'py, PyByteArray>> {
        let length = end.saturating_sub(start) as usize * size_of::<i64>();
        PyByteArray::new_with(py, length, |bytes| {
            for (place, word) in (start..end).zip(bytes.chunks_exact_mut(size_of::<i64>())) {
                word.copy_from_slice(&self.0.row(place).to_le_bytes());
            }
            Ok(())
        })
    }
}

/// What a lane seeds its random numbers with at a step; `draw` is "model", "data" or "make".
#[pyfunction]
fn lane_seed(draw: &str, seed: u64, epoch: u64, step: u64, lane: u32) -> PyResult<u64> {
    let draw = match draw {
        "model" => Draw::Model,
        "data" => Draw::Data,
        "make" => Draw::Make,
        _ => return Err(PyValueError::new_err(format!("nothing draws for {draw:?}"))),
    };
    Ok(plan::lane_seed(draw, seed, epoch, step, lane))
}

/// First lane of a worker, and the first of the next one.
#[pyfunction]
fn lanes_of(rank: usize, workers: usize, lanes: u32) -> (u32, u32) {
    let range = plan::lanes_of(rank, workers, lanes);
    (range.start, range.end)
}

/// The same for every worker, where some do less than others.
#[pyfunction]
fn lanes_by(shares: Vec<f64>, lanes: u32) -> Vec<(u32, u32)> {
    let dealt = plan::lanes_by(&shares, lanes).into_iter();
    dealt.map(|range| (range.start, range.end)).collect()
}

/// First row of a lane in its batch, and the first of the next lane.
#[pyfunction]
fn rows_of(lane: u32, lanes: u32, size: u64, rows: u64) -> (u64, u64) {
    let range = plan::rows_of(lane, lanes, size, rows);
    (range.start, range.end)
}

/// Threads of each lane on a host.
#[pyfunction]
fn threads_per_lane(cores: u32, lanes_on_host: u32) -> u32 {
    plan::threads_per_lane(cores, lanes_on_host)
}
