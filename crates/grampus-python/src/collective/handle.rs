//! Waiting, with an ear for Ctrl-C.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use grampus_collective::{CollectiveError, RawHandle};
use grampus_core::{Clock, SystemClock};
use grampus_train::whereabouts::Wait;
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;

use super::error::raise;
use crate::whereabouts::HERE;

/// How often a thread that waits with a limit looks for signals.
const LOOK: Duration = Duration::from_millis(50);

/// A call that runs on its own.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct Handle(pub RawHandle);

#[pymethods]
impl Handle {
    /// Waits for the end of the call. After `timeout` seconds raises TimeoutError; the call goes on.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let Some(timeout) = timeout else {
            return interruptible(py, Wait::Handle, |gives_up| self.0.wait(gives_up));
        };
        let limit = Duration::try_from_secs_f64(timeout.max(0.0)).unwrap_or(Duration::MAX);
        let clock = SystemClock::start();
        loop {
            let left = limit.saturating_sub(clock.now() - grampus_core::Time::ZERO);
            if let Some(outcome) = py.detach(|| self.0.wait_for(left.min(LOOK))) {
                return outcome.map_err(|error| raise(py, &error));
            }
            py.check_signals()?;
            if left.is_zero() {
                return Err(PyTimeoutError::new_err(format!(
                    "the call was not through after {timeout} s; it goes on"
                )));
            }
        }
    }

    /// Waits without looking for signals, on a thread that gets none; whether the call is through after `seconds`.
    /// Raises its error.
    fn outcome(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let limit = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
        match py.detach(|| self.0.wait_for(limit)) {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(error)) => Err(raise(py, &error)),
        }
    }

    /// Drives the call in this thread for at most `seconds`, before leaving it to the group's own; whether it is through,
    /// well or not.
    fn linger(&self, py: Python<'_>, seconds: f64) -> bool {
        let limit = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
        py.detach(|| self.0.linger(limit))
    }

    /// Whether the call is through, well or not.
    fn done(&self) -> bool {
        self.0.is_done()
    }
}

/// Runs `work` without the interpreter lock. It is given a question to ask now and then: whether Python has a signal
/// to handle that ends it. Meanwhile this worker is known to wait for others.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    wait: Wait,
    work: impl FnOnce(&dyn Fn() -> bool) -> Result<T, CollectiveError> + Send,
) -> PyResult<T> {
    let raised: Mutex<Option<PyErr>> = Mutex::new(None);
    let ask = || {
        let answer = Python::attach(|py| py.check_signals());
        let gives_up = answer.is_err();
        if let Err(error) = answer {
            *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
        gives_up
    };
    HERE.waits(Some(wait));
    let outcome = py.detach(|| work(&ask));
    HERE.waits(None);
    if let Some(error) = raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    outcome.map_err(|error| raise(py, &error))
}
