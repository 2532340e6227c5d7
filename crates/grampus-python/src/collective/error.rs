//! Errors of collectives as Python exceptions.

use grampus_collective as collective;
use pyo3::PyErr;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::GrampusError;

pyo3::create_exception!(
    grampus.errors,
    CollectiveError,
    GrampusError,
    "A collective call failed; the group has ended unless the arguments alone were wrong."
);
pyo3::create_exception!(
    grampus.errors,
    PeerLost,
    CollectiveError,
    "A member of the group is gone or stands still. Has `rank`, `host` and `last_seen` (seconds ago)."
);
pyo3::create_exception!(
    grampus.errors,
    CallMismatch,
    CollectiveError,
    "Members of the group called different things; the message names both."
);

/// One match from the crate's errors to Python's.
pub(crate) fn raise(py: Python<'_>, error: &collective::CollectiveError) -> PyErr {
    let text = error.to_string();
    match error {
        collective::CollectiveError::Argument(_) => PyValueError::new_err(text),
        collective::CollectiveError::Mismatch { .. } | collective::CollectiveError::Disagree(_) => {
            CallMismatch::new_err(text)
        }
        collective::CollectiveError::PeerLost {
            rank,
            host,
            last_seen,
            ..
        } => {
            let lost = PeerLost::new_err(text);
            let value = lost.value(py);
            let told = value
                .setattr("rank", rank)
                .and_then(|()| value.setattr("host", host))
                .and_then(|()| value.setattr("last_seen", last_seen.as_secs_f64()));
            told.err().unwrap_or(lost)
        }
        _ => CollectiveError::new_err(text),
    }
}
