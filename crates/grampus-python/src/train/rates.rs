//! Learning rates over a run, for Python.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use grampus_native::NativeError;
use grampus_native::schedule::{PlateauState, Schedule};
use grampus_train::metrics::{VALIDATED, higher_is_better};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::metrics::Directions;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Rates>()
}

/// The learning rate as a function of where a run is, and of what a plateau in it has seen.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct Rates {
    schedule: Schedule,
    plateau: Mutex<Option<PlateauState>>,
}

impl Rates {
    fn plateau(&self) -> MutexGuard<'_, Option<PlateauState>> {
        self.plateau.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Rates {
    /// `schedule` is JSON, `seen` what a plateau has seen before, and `metrics` are those that it may look at.
    #[new]
    #[pyo3(signature = (schedule, metrics, seen=None))]
    fn new(schedule: &str, metrics: Directions, seen: Option<&str>) -> PyResult<Self> {
        let wrong = |error: serde_json::Error| PyValueError::new_err(error.to_string());
        let refused = |error: NativeError| PyValueError::new_err(error.to_string());
        let mut schedule: Schedule = serde_json::from_str(schedule).map_err(wrong)?;
        schedule.check().map_err(refused)?;
        let direction = |name: &str| higher_is_better(name, |bare| metrics.get(bare).copied());
        schedule.settle(&direction).map_err(refused)?;
        let seen = seen.map(serde_json::from_str).transpose().map_err(wrong)?;
        let plateau = Mutex::new(seen);
        Ok(Self { schedule, plateau })
    }

    /// That of a step of an epoch, both counted over the whole run.
    fn at(&self, base: f64, step: u64, epoch: u64) -> f64 {
        let cuts = self.plateau().as_ref().map_or(0, PlateauState::cuts);
        self.schedule.rate_after_cuts(cuts, base, step, epoch)
    }

    /// Lets a plateau see what came out of an epoch.
    fn observe(&self, step: u64, epoch: u64, record: HashMap<String, f64>) -> PyResult<()> {
        let Some(plateau) = self.schedule.plateau(step, epoch) else {
            return Ok(());
        };
        let Some(score) = record.get(&plateau.monitor) else {
            let mut names: Vec<&str> = record.keys().map(String::as_str).collect();
            names.sort_unstable();
            let validated = names.iter().any(|name| name.starts_with(VALIDATED));
            let missed = plateau.monitor.starts_with(VALIDATED) && !validated;
            return Err(PyValueError::new_err(format!(
                "there is no {:?} for the schedule to look at: an epoch has {}{}",
                plateau.monitor,
                names.join(", "),
                if missed { "; pass validation_data=" } else { "" }
            )));
        };
        let mut seen = self.plateau();
        seen.get_or_insert_with(|| PlateauState::new(plateau.clone()))
            .observe(*score);
        Ok(())
    }

    /// What a plateau has seen, as JSON.
    fn seen(&self) -> PyResult<Option<String>> {
        let seen = self.plateau();
        let text = seen.as_ref().map(serde_json::to_string).transpose();
        text.map_err(|error| PyValueError::new_err(error.to_string()))
    }
}
