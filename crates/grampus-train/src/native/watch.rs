//! What looks on while a native model is trained: reports, validation, checkpoints.

use std::cell::RefCell;
use std::rc::Rc;

use grampus_collective::Element;
use grampus_native::Real;

use super::error::RunError;
use super::feed::RowsFeed;
use super::job::{Event, FitJob};
use super::kept::Kept;
use super::model::Trained;
use super::pass::judge;
use super::saving::RunStore;
use crate::fit::{Position, Progress, Record, Watcher};

/// One a worker; reports and checkpoints are the first one's.
pub(super) struct Watch<'a, T> {
    pub job: &'a FitJob,
    pub trained: Rc<RefCell<Trained<T>>>,
    pub validation: Option<RowsFeed<T>>,
    pub store: Option<RunStore>,
    pub samples: u64,
    pub records: Vec<Record>,
    pub tell: &'a dyn Fn(&Event),
    /// What the run goes on from after a loss.
    pub kept: &'a mut Option<Kept>,
}

impl<T: Real + Element> Watch<'_, T> {
    fn leads(&self) -> bool {
        self.trained.borrow().seat.leads()
    }

    fn tell(&self, event: &Event) {
        if self.leads() {
            (self.tell)(event);
        }
    }
}

impl<T: Real + Element> Watcher for Watch<'_, T> {
    type Error = RunError;

    fn epoch_begins(&mut self, _at: &Position) -> Result<(), RunError> {
        Ok(())
    }

    fn step_begins(&mut self, _at: &Position) -> Result<(), RunError> {
        match self.trained.borrow().seat.gives_up() {
            true => Err(RunError::Interrupted),
            false => Ok(()),
        }
    }

    fn step_ends(&mut self, _at: &Position, _loss: Option<f64>) -> Result<Option<String>, RunError> {
        // Until now it may have been nowhere else.
        *self.kept = None;
        let stops = self.trained.borrow().stops;
        Ok(stops.then(|| "it was asked to end".to_owned()))
    }

    fn validate(&mut self, _at: &Position, record: &mut Record) -> Result<(), RunError> {
        let mut trained = self.trained.borrow_mut();
        if let Some(feed) = &mut self.validation {
            let (seat, metrics) = (trained.seat.clone(), &self.job.spec.metrics);
            let judging = &mut trained.learner.judging;
            let found = judge(judging, feed, metrics, &seat)?;
            record.add("val_loss", found.loss);
            for (name, figure) in found.metrics {
                let Some(number) = figure.number() else { continue };
                let name = format!("val_{name}");
                record.score.get_or_insert_with(|| name.clone());
                record.add(name, number);
            }
            record.add("val_num_samples", found.num_samples as f64);
        }
        record.add("learning_rate", trained.rate());
        Ok(())
    }

    fn epoch_ends(&mut self, _at: &Position, record: &Record) -> Result<Option<String>, RunError> {
        self.trained.borrow_mut().epoch_ends(|name| record.get(name))?;
        self.records.push(record.clone());
        self.tell(&Event::Epoch {
            record: record.clone(),
        });
        Ok(None)
    }

    fn save(&mut self, at: &Position, why: &str) -> Result<(), RunError> {
        // All workers ask, also those who do not save: parts of it may be theirs.
        let state = match (&self.store, self.job.spec.sharded) {
            (None, false) => return Ok(()),
            _ => self.trained.borrow().state()?,
        };
        let Some(store) = &mut self.store else {
            return Ok(());
        };
        let told = (self.records.as_slice(), self.samples, why);
        let path = store.save(state, self.job, at, told)?;
        if let Some(text) = store.trouble() {
            self.tell(&Event::Note { text });
        }
        if let Some(path) = path {
            self.tell(&Event::Checkpoint {
                path,
                why: why.to_owned(),
            });
        }
        Ok(())
    }

    fn report(&mut self, progress: &Progress<'_>) -> Result<(), RunError> {
        let losses = progress.losses.iter();
        self.tell(&Event::Steps {
            at: *progress.at,
            losses: losses
                .map(|(step, loss)| (*step, loss.is_finite().then_some(*loss)))
                .collect(),
        });
        Ok(())
    }
}
