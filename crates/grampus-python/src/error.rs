//! One match from Rust errors to Python exceptions.

use std::fmt::Display;

use grampus_cluster::agent::AgentError;
use grampus_cluster::driver::ClusterError;
use grampus_cluster::supervisor::SupervisorError;
use grampus_cluster::tunnel::TunnelError;
use grampus_net::NetError;
use pyo3::PyErr;
use pyo3::exceptions::PyRuntimeError;

pyo3::create_exception!(
    grampus.errors,
    GrampusError,
    PyRuntimeError,
    "The base of all errors of Grampus."
);

/// Any error of the crates below.
pub(crate) struct Error(String);

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn of(error: impl Display) -> Self {
        Self(error.to_string())
    }
}

impl From<Error> for PyErr {
    fn from(Error(text): Error) -> Self {
        GrampusError::new_err(text)
    }
}

macro_rules! shown {
    ($($source:ty),*) => {
        $(impl From<$source> for Error {
            fn from(error: $source) -> Self {
                Self::of(error)
            }
        })*
    };
}

shown!(
    AgentError,
    ClusterError,
    SupervisorError,
    TunnelError,
    NetError,
    std::io::Error,
    grampus_core::JoinError,
    grampus_collective::CollectiveError,
    grampus_train::events::EventError,
    grampus_train::trigger::TriggerError
);
