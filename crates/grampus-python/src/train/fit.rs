//! The loop over Python models, feeds and watchers.

use grampus_train::fit::{Batch, Feed, Model, Part, Position, Progress, Record, Settings, Total, Watcher};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::whereabouts::HERE;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(fit, module)?)
}

type Object = Py<PyAny>;

/// Trains until the settings, a trigger or the watcher ends it; returns where it stands and why it ended.
///
/// `settings` and `at` are JSON. Where it fails, `watcher.fails` is told where it stands, and why.
#[pyfunction]
fn fit<'py>(
    model: Bound<'py, PyAny>,
    feed: Bound<'py, PyAny>,
    watcher: Bound<'py, PyAny>,
    settings: &str,
    at: &str,
) -> PyResult<(String, String)> {
    let settings: Settings = parsed(settings)?;
    let mut at: Position = parsed(at)?;
    let (mut model, mut feed, mut watcher) = (Duck(model), Duck(feed), Duck(watcher));
    let (clock, here) = HERE.parts();
    let ended = grampus_train::fit::fit(
        &mut model,
        &mut feed,
        &mut watcher,
        &settings,
        &mut at,
        clock,
        here,
    );
    if let Err(error) = &ended {
        let py = watcher.0.py();
        watcher
            .0
            .call_method1(intern!(py, "fails"), (written(&at)?, error.value(py)))?;
    }
    Ok((written(&at)?, ended?.reason))
}

fn parsed<T: serde::de::DeserializeOwned>(text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn written<T: serde::Serialize>(value: &T) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// A Python object that does what the loop asks of it.
struct Duck<'py>(Bound<'py, PyAny>);

impl Feed for Duck<'_> {
    type Batch = Object;
    type Error = PyErr;

    fn steps(&mut self, epoch: u64) -> PyResult<Option<u64>> {
        let name = intern!(self.0.py(), "steps");
        self.0.call_method1(name, (epoch,))?.extract()
    }

    fn open(&mut self, epoch: u64, step: u64) -> PyResult<()> {
        let name = intern!(self.0.py(), "open");
        self.0.call_method1(name, (epoch, step)).map(drop)
    }

    fn next(&mut self) -> PyResult<Option<Batch<Object>>> {
        let answer = self.0.call_method0(intern!(self.0.py(), "next"))?;
        if answer.is_none() {
            return Ok(None);
        }
        let (rows, weight, parts): (Option<u64>, Option<f64>, Bound<'_, PyList>) = answer.extract()?;
        let total = rows.zip(weight).map(|(rows, weight)| Total { rows, weight });
        let parts: PyResult<Vec<Part<Object>>> = parts.iter().map(|part| one_part(&part)).collect();
        Ok(Some(Batch { total, parts: parts? }))
    }
}

fn one_part(part: &Bound<'_, PyAny>) -> PyResult<Part<Object>> {
    let (lane, rows, weight, batch): (u32, u64, f64, Bound<'_, PyAny>) = part.cast::<PyTuple>()?.extract()?;
    Ok(Part {
        lane,
        rows,
        weight,
        batch: (rows > 0).then(|| batch.unbind()),
    })
}

impl Model for Duck<'_> {
    type Batch = Object;
    type Error = PyErr;

    fn train(&mut self, part: Part<Object>, share: f64, seed: u64) -> PyResult<()> {
        let name = intern!(self.0.py(), "train");
        let arguments = (part.lane, part.rows, share, seed, part.batch);
        self.0.call_method1(name, arguments).map(drop)
    }

    fn commit(&mut self) -> PyResult<Option<f64>> {
        self.0.call_method0(intern!(self.0.py(), "commit"))?.extract()
    }

    fn skip(&mut self) -> PyResult<()> {
        self.0.call_method0(intern!(self.0.py(), "skip")).map(drop)
    }

    fn late(&mut self, wait: bool) -> PyResult<Vec<f64>> {
        let name = intern!(self.0.py(), "late");
        self.0.call_method1(name, (wait,))?.extract()
    }

    fn applied(&self) -> Option<f64> {
        // Only those who divide their memory have it.
        let applied = self.0.getattr_opt(intern!(self.0.py(), "applied")).ok()??;
        applied.extract().ok()
    }

    fn agree(&mut self, parts: &[Part<Object>]) -> PyResult<Total> {
        let sizes: Vec<(u32, u64, f64)> = parts
            .iter()
            .map(|part| (part.lane, part.rows, part.weight))
            .collect();
        let name = intern!(self.0.py(), "agree");
        let (rows, weight): (f64, f64) = self.0.call_method1(name, (sizes,))?.extract()?;
        Ok(Total {
            rows: rows as u64,
            weight,
        })
    }
}

impl Watcher for Duck<'_> {
    type Error = PyErr;

    fn epoch_begins(&mut self, at: &Position) -> PyResult<()> {
        let name = intern!(self.0.py(), "epoch_begins");
        self.0.call_method1(name, (at.epoch, at.step)).map(drop)
    }

    fn step_begins(&mut self, _at: &Position) -> PyResult<()> {
        let name = intern!(self.0.py(), "step_begins");
        self.0.call_method0(name).map(drop)
    }

    fn step_ends(&mut self, at: &Position, loss: Option<f64>) -> PyResult<Option<String>> {
        let name = intern!(self.0.py(), "step_ends");
        let arguments = (at.epoch, at.step_in_epoch, at.step, loss);
        self.0.call_method1(name, arguments)?.extract()
    }

    fn may_yield(&mut self, at: &Position) -> PyResult<()> {
        let name = intern!(self.0.py(), "may_yield");
        self.0.call_method1(name, (at.step,)).map(drop)
    }

    fn validate(&mut self, at: &Position, record: &mut Record) -> PyResult<()> {
        let name = intern!(self.0.py(), "validate");
        let values: Vec<(String, f64)> = self.0.call_method1(name, (at.epoch,))?.extract()?;
        let score = values
            .iter()
            .find(|(name, _)| name.starts_with("val_") && name != "val_loss" && name != "val_num_samples");
        record.score = score.map(|(name, _)| name.clone());
        record.values.extend(values);
        Ok(())
    }

    fn epoch_ends(&mut self, at: &Position, record: &Record) -> PyResult<Option<String>> {
        let py = self.0.py();
        let values = PyDict::new(py);
        for (name, value) in &record.values {
            values.set_item(name, *value)?;
        }
        let arguments = (at.epoch, at.step, values);
        self.0
            .call_method1(intern!(py, "epoch_ends"), arguments)?
            .extract()
    }

    fn save(&mut self, at: &Position, why: &str) -> PyResult<()> {
        let name = intern!(self.0.py(), "save");
        self.0.call_method1(name, (written(at)?, why)).map(drop)
    }

    fn report(&mut self, progress: &Progress<'_>) -> PyResult<()> {
        // Python asks for Ctrl-C and other signals on its own; a model that never returns to it is asked for here.
        self.0.py().check_signals()?;
        let name = intern!(self.0.py(), "report");
        let losses = progress.losses.to_vec();
        self.0
            .call_method1(name, (written(progress.at)?, losses))
            .map(drop)
    }
}
