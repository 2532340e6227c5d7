//! The events of grampus-train for Python.

use std::path::PathBuf;

use grampus_train::events;
use pyo3::prelude::*;

use crate::error::{GrampusError, Result};

/// Adds them to the extension module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<EventWriter>()
}

/// Writes a file of events that TensorBoard reads.
#[pyclass(module = "grampus._native")]
pub(crate) struct EventWriter(Option<events::EventWriter>);

impl EventWriter {
    fn open(&mut self) -> PyResult<&mut events::EventWriter> {
        let closed = || GrampusError::new_err("the event file is closed: make another writer");
        self.0.as_mut().ok_or_else(closed)
    }
}

#[pymethods]
impl EventWriter {
    #[new]
    fn new(folder: PathBuf, wall_time: f64) -> Result<Self> {
        let host = grampus_cluster::host::name();
        Ok(Self(Some(events::EventWriter::create(
            &folder, &host, wall_time,
        )?)))
    }

    fn begin(&mut self, step: u64, wall_time: f64) -> PyResult<()> {
        Ok(shown(self.open()?.begin(step, wall_time))?)
    }

    fn scalar(&mut self, tag: &str, value: f64, step: u64, wall_time: f64) -> PyResult<()> {
        Ok(shown(self.open()?.scalar(tag, value as f32, step, wall_time))?)
    }

    /// A PNG file; `size` is its width, its height, and how many values a pixel has.
    fn image(
        &mut self,
        tag: &str,
        png: &[u8],
        size: (u32, u32, u32),
        step: u64,
        wall_time: f64,
    ) -> PyResult<()> {
        let (width, height, channels) = size;
        let image = events::Image {
            png,
            width,
            height,
            channels,
        };
        Ok(shown(self.open()?.image(tag, &image, step, wall_time))?)
    }

    /// The bytes of a `GraphDef`.
    fn graph(&mut self, graph: &[u8], wall_time: f64) -> PyResult<()> {
        Ok(shown(self.open()?.graph(graph, wall_time))?)
    }

    fn flush(&mut self) -> PyResult<()> {
        Ok(shown(self.open()?.flush())?)
    }

    /// Flushes and closes the file. A second call does nothing.
    fn close(&mut self) -> PyResult<()> {
        match self.0.take() {
            Some(mut writer) => Ok(shown(writer.flush())?),
            None => Ok(()),
        }
    }
}

fn shown<T>(done: std::result::Result<T, events::EventError>) -> Result<T> {
    Ok(done?)
}
