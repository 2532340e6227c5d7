//! Rows that stay with keepers: bringing them, and watching over those who hold them.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use grampus_core::JoinString;
use grampus_data::DataError;
use grampus_data::batch::Output;
use grampus_data::keeper::{self, Started};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use super::detached;
use super::table::Table;
use crate::error::Error;
use crate::locked;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Deposit>()?;
    module.add_class::<Hub>()?;
    module.add_function(wrap_pyfunction!(keep, module)?)?;
    module.add_function(wrap_pyfunction!(keeper_name, module)?)
}

pub(super) fn join_of(text: &str) -> PyResult<JoinString> {
    Ok(text.parse().map_err(Error::from)?)
}

pub(super) fn seconds(number: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(number).map_err(|error| PyValueError::new_err(error.to_string()))
}

pub(super) fn outputs_of(text: &str) -> Result<Vec<Output>, DataError> {
    serde_json::from_str(text).map_err(|error| DataError::Option {
        option: "outputs".to_owned(),
        why: error.to_string(),
    })
}

/// The name of the socket of the keeper that watches a process.
#[pyfunction]
fn keeper_name(join: &str, watched: u32, space: u64) -> PyResult<String> {
    let name = keeper::hidden_name(&join_of(join)?, watched, space);
    Ok(name.map_err(Error::from)?)
}

/// Is the keeper of an executor until it is over; returns why. `started` is called once, with whether this process is it.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "keywords for Python")]
fn keep(
    py: Python<'_>,
    join: &str,
    hidden: String,
    watched: u32,
    memory: u64,
    folder: PathBuf,
    silent: f64,
    wait: f64,
    started: Py<PyAny>,
) -> PyResult<String> {
    let keeper = keeper::Keeper {
        join: join_of(join)?,
        hidden,
        watched,
        memory,
        folder,
        silent: seconds(silent)?,
        wait: seconds(wait)?,
    };
    let mut told = Ok(());
    let ended = detached(py, || {
        keeper::keep(keeper, |how| {
            let here = how == Started::Here;
            told = Python::attach(|py| started.call1(py, (here,)).map(drop));
        })
    });
    told.and(ended)
}

/// Rows of one partition on their way to the keeper of this executor.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct Deposit(Mutex<Option<keeper::Deposit>>);

impl Deposit {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl Send + FnOnce(&mut Option<keeper::Deposit>) -> Result<T, DataError>,
    ) -> PyResult<T> {
        detached(py, || {
            let mut deposit = locked::detached(&self.0);
            let done = work(&mut deposit);
            if done.is_err() {
                // Nothing of it is to be kept.
                *deposit = None;
            }
            done
        })
    }
}

fn open(deposit: &mut Option<keeper::Deposit>) -> Result<&mut keeper::Deposit, DataError> {
    deposit.as_mut().ok_or_else(|| DataError::Option {
        option: "deposit".to_owned(),
        why: "it is done: begin another".to_owned(),
    })
}

#[pymethods]
impl Deposit {
    /// Finds the keeper; nothing where there is none.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        join: &str,
        hidden: &str,
        outputs_json: &str,
        partition: u64,
        skip: bool,
        wait: f64,
    ) -> PyResult<Option<Self>> {
        let (join, wait) = (join_of(join)?, seconds(wait)?);
        let found = detached(py, || {
            keeper::Deposit::open(&join, hidden, outputs_of(outputs_json)?, partition, skip, wait)
        })?;
        Ok(found.map(|deposit| Self(Mutex::new(Some(deposit)))))
    }

    /// The next rows.
    fn add(&self, py: Python<'_>, table: &Table) -> PyResult<()> {
        let table = table.0.clone();
        self.with(py, |deposit| {
            let deposit = open(deposit)?;
            table.batches().iter().try_for_each(|batch| deposit.add(batch))
        })
    }

    /// Row groups of Parquet files as the next rows.
    fn add_groups(&self, py: Python<'_>, paths: Vec<String>, groups: Vec<usize>) -> PyResult<()> {
        self.with(py, |deposit| open(deposit)?.add_groups(&paths, &groups))
    }

    /// No more rows come; returns the receipt as JSON.
    fn finish(&self, py: Python<'_>) -> PyResult<String> {
        let receipt = self.with(py, |deposit| {
            open(deposit)?;
            deposit.take().map(keeper::Deposit::finish).transpose()
        })?;
        serde_json::to_string(&receipt).map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }
}

/// Number, process, host, and why it is gone.
type KeeperState = (u64, u32, String, Option<String>);

/// Where keepers report.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct Hub(Mutex<keeper::Hub>);

#[pymethods]
impl Hub {
    /// Listens at `bind`; executors reach it under `address`.
    #[new]
    fn new(py: Python<'_>, bind: String, address: String, port: u16, silent: f64) -> PyResult<Self> {
        let setting = keeper::Setting {
            bind,
            address,
            port,
            silent: seconds(silent)?,
        };
        detached(py, || keeper::Hub::open(setting)).map(|hub| Self(Mutex::new(hub)))
    }

    /// The join string, which holds the key of the feed.
    #[getter]
    fn join(&self, py: Python<'_>) -> String {
        locked::attached(py, &self.0).join().reveal()
    }

    /// All keepers that ever reported.
    fn keepers(&self, py: Python<'_>) -> Vec<KeeperState> {
        let keepers = locked::attached(py, &self.0).keepers().into_iter();
        keepers
            .map(|keeper| (keeper.card.id, keeper.card.pid, keeper.card.host, keeper.lost))
            .collect()
    }

    /// Tells keepers which deposits count.
    fn keep(&self, py: Python<'_>, deposits: Vec<u64>) -> PyResult<()> {
        detached(py, || locked::detached(&self.0).keep(&deposits))
    }

    /// Ends all keepers.
    fn close(&self, py: Python<'_>) {
        py.detach(|| locked::detached(&self.0).close());
    }
}
