//! Files as tables.

use std::path::PathBuf;

use grampus_data::DataError;
use grampus_data::source::{File, find};
use grampus_data::table::csv::{self, CsvOptions};
use grampus_data::table::files;
use grampus_data::table::json;
use grampus_data::table::parquet::{self, Dataset};
use pyo3::prelude::*;

use super::detached;
use super::table::Table;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ParquetDataset>()?;
    module.add_function(wrap_pyfunction!(find_files, module)?)?;
    module.add_function(wrap_pyfunction!(read_csv, module)?)?;
    module.add_function(wrap_pyfunction!(read_files, module)?)?;
    module.add_function(wrap_pyfunction!(read_json, module)?)?;
    module.add_function(wrap_pyfunction!(read_parquet, module)?)?;
    module.add_function(wrap_pyfunction!(join_parquet, module)?)?;
    Ok(())
}

/// The files that paths, patterns and folders name.
#[pyfunction]
fn find_files(py: Python<'_>, patterns: Vec<String>, extensions: Vec<String>) -> PyResult<Vec<String>> {
    let extensions: Vec<&str> = extensions.iter().map(String::as_str).collect();
    let files = detached(py, || find(&patterns, &extensions))?;
    Ok(files.iter().map(|file| file.name().to_owned()).collect())
}

/// Reads whole files: a row for each, with its `path` and its `bytes`.
#[pyfunction]
fn read_files(py: Python<'_>, patterns: Vec<String>, extensions: Vec<String>) -> PyResult<Table> {
    let extensions: Vec<&str> = extensions.iter().map(String::as_str).collect();
    detached(py, || files::read(&find(&patterns, &extensions)?)).map(Table)
}

/// Reads CSV files; the options are those of pandas, as JSON.
#[pyfunction]
#[pyo3(signature = (paths, options="{}"))]
fn read_csv(py: Python<'_>, paths: Vec<String>, options: &str) -> PyResult<Table> {
    detached(py, || {
        let options: CsvOptions = serde_json::from_str(options).map_err(|error| DataError::Option {
            option: "options".to_owned(),
            why: error.to_string(),
        })?;
        csv::read(&find(&paths, csv::EXTENSIONS)?, &options)
    })
    .map(Table)
}

/// Reads files of JSON lines.
#[pyfunction]
fn read_json(py: Python<'_>, paths: Vec<String>) -> PyResult<Table> {
    detached(py, || json::read(&find(&paths, json::EXTENSIONS)?)).map(Table)
}

/// Reads Parquet files: all columns, or these, in this order.
#[pyfunction]
#[pyo3(signature = (paths, columns=None))]
fn read_parquet(py: Python<'_>, paths: Vec<String>, columns: Option<Vec<String>>) -> PyResult<Table> {
    detached(py, || parquet::read(&find_parquet(&paths)?, columns.as_deref())).map(Table)
}

/// Writes the row groups of files one behind the other into one file.
#[pyfunction]
fn join_parquet(py: Python<'_>, parts: Vec<PathBuf>, path: PathBuf) -> PyResult<()> {
    detached(py, || parquet::join(&parts, &path))
}

fn find_parquet(paths: &[String]) -> Result<Vec<File>, DataError> {
    find(paths, &["parquet", "pq"])
}

/// Parquet files of which only the footers have been read.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct ParquetDataset(Dataset);

#[pymethods]
impl ParquetDataset {
    #[new]
    fn new(py: Python<'_>, paths: Vec<String>) -> PyResult<Self> {
        detached(py, || Dataset::open(&find_parquet(&paths)?)).map(Self)
    }

    #[getter]
    fn columns(&self) -> Vec<String> {
        let fields = self.0.schema().fields().iter();
        fields.map(|field| field.name().clone()).collect()
    }

    #[getter]
    fn dtypes(&self) -> Vec<String> {
        let fields = self.0.schema().fields().iter();
        fields.map(|field| field.data_type().to_string()).collect()
    }

    /// File, number in the file and rows of every row group.
    #[getter]
    fn row_groups(&self) -> Vec<(String, usize, u64)> {
        let groups = self.0.row_groups().iter();
        groups
            .map(|group| (self.0.file_name(group.file).to_owned(), group.index, group.rows))
            .collect()
    }

    #[getter]
    fn num_rows(&self) -> u64 {
        self.0.num_rows()
    }

    /// Reads row groups, by their numbers among all: all columns, or these, in this order.
    #[pyo3(signature = (groups, columns=None))]
    fn read(&self, py: Python<'_>, groups: Vec<usize>, columns: Option<Vec<String>>) -> PyResult<Table> {
        detached(py, || self.0.read(&groups, columns.as_deref())).map(Table)
    }
}
