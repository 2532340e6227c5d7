//! The Python face of Grampus. Conversion only: what anything means is in the crates below.

mod agent;
mod cluster;
mod collective;
mod data;
mod error;
mod locked;
mod payload;
mod platform;
mod supervisor;
mod train;
mod whereabouts;

use pyo3::prelude::*;

/// The extension module `grampus._native`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("GrampusError", module.py().get_type::<error::GrampusError>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<agent::Agent>()?;
    module.add_class::<agent::Assignment>()?;
    module.add_class::<cluster::Cluster>()?;
    module.add_class::<cluster::End>()?;
    module.add_class::<cluster::Line>()?;
    module.add_class::<cluster::News>()?;
    module.add_class::<cluster::Task>()?;
    module.add("CallMismatch", module.py().get_type::<collective::CallMismatch>())?;
    module.add(
        "CollectiveError",
        module.py().get_type::<collective::CollectiveError>(),
    )?;
    module.add("PeerLost", module.py().get_type::<collective::PeerLost>())?;
    module.add_class::<collective::Group>()?;
    module.add_class::<collective::Handle>()?;
    module.add_class::<collective::Lobby>()?;
    module.add_class::<collective::SharedMemory>()?;
    module.add_function(wrap_pyfunction!(collective::check_buffers, module)?)?;
    module.add_function(wrap_pyfunction!(collective::meet_ranks, module)?)?;
    module.add_function(wrap_pyfunction!(platform::processor, module)?)?;
    module.add_function(wrap_pyfunction!(platform::compare_platforms, module)?)?;
    data::register(module)?;
    train::register(module)?;
    whereabouts::register(module)?;
    module.add_class::<payload::Payload>()?;
    module.add_class::<supervisor::Entry>()?;
    module.add_class::<supervisor::Supervisor>()?;
    module.add_function(wrap_pyfunction!(supervisor::prepare_supervisor, module)?)?;
    module.add_function(wrap_pyfunction!(supervisor::serve_tunnel, module)?)?;
    module.add_function(wrap_pyfunction!(supervisor::supervise, module)?)?;
    module.add_function(wrap_pyfunction!(host_cores, module)?)?;
    module.add_function(wrap_pyfunction!(host_memory, module)?)?;
    module.add_function(wrap_pyfunction!(command_line, module)?)?;
    Ok(())
}

/// Cores that this process may use.
#[pyfunction]
fn host_cores() -> u32 {
    grampus_cluster::host::cores()
}

/// Bytes of memory that this process may still take.
#[pyfunction]
fn host_memory() -> u64 {
    grampus_cluster::host::available_memory()
}

/// Runs the `grampus` command with the given arguments (the first is the program's name); returns its exit
/// code. `python` is the interpreter for scripts.
#[pyfunction]
fn command_line(py: Python<'_>, arguments: Vec<String>, python: String) -> i32 {
    py.detach(|| grampus::cli::main(arguments, Some(python)))
}
