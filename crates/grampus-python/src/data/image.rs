//! Encoded images to one block of numbers.

use grampus_data::image::{Decoder, ImageError, Limits, Pipeline, Rows, decode_batch};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyByteArray;

use super::raise;

/// Adds the functions to the extension module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(decode_images, module)?)?;
    Ok(())
}

/// The shape of the batch and its bytes. The image at `first_row` has the random numbers of that row in that epoch, and so
/// on; where no step of the pipeline ends in a size, all must have that of the first.
#[pyfunction]
#[pyo3(signature = (images, pipeline_json, seed, epoch, first_row, threads=1))]
fn decode_images<'py>(
    py: Python<'py>,
    images: Vec<PyBackedBytes>,
    pipeline_json: &str,
    seed: u64,
    epoch: u64,
    first_row: u64,
    threads: usize,
) -> PyResult<(Vec<usize>, Bound<'py, PyByteArray>)> {
    let pipeline: Pipeline = serde_json::from_str(pipeline_json).map_err(|error| raise(py, &error))?;
    let in_image = |(number, error): (usize, ImageError)| raise(py, &format!("image {number}: {error}"));
    let size = images
        .first()
        .map(|bytes| Decoder::new(Limits::default()).size(bytes))
        .transpose()
        .map_err(|error| in_image((0, error)))?;
    let shape = pipeline.output_shape(size).map_err(|error| raise(py, &error))?;
    let bytes = pipeline.output_bytes(size).map_err(|error| raise(py, &error))?;
    let rows = Rows {
        seed,
        epoch,
        first: first_row,
    };
    let numbers = PyByteArray::new_with(py, bytes * images.len(), |out| {
        py.detach(|| decode_batch(&pipeline, &images, rows, threads, out))
            .map_err(in_image)
    })?;
    Ok(([&[images.len()], &shape[..]].concat(), numbers))
}
