//! Training.

use std::num::NonZeroU64;

use grampus_core::{Failure, TaskFailure};
use grampus_train::fit::{Position, Record};
use grampus_train::native::{Event, FitJob, NOT_FINITE, Resumed, RunError, Saving, resumed};
use grampus_train::trigger::Trigger;

use super::history::History;
use super::show::Show;
use super::{Estimator, is_loss, odd_answer};
use crate::cluster::{Answer, Cluster, Task, Told, Wish};
use crate::error::{Error, Result};
use crate::shards::Shards;

/// What is called after each epoch; it says whether training goes on.
type OnEpoch<'a> = Box<dyn FnMut(&Record) -> bool + 'a>;

/// How long a model is trained, on what, and what happens meanwhile.
///
/// ```
/// use grampus::{Fit, Trigger};
///
/// let fit = Fit::epochs(5).batch_size(64).checkpoint("runs/first").resume().until(Trigger::MinLoss { below: 0.1 });
/// # let _ = fit;
/// ```
pub struct Fit<'a> {
    epochs: Option<u64>,
    max_steps: Option<u64>,
    end: Option<Trigger>,
    batch_size: u64,
    validation: Option<&'a Shards>,
    checkpoint: Option<String>,
    every: Trigger,
    keep: Option<usize>,
    resume: bool,
    max_failures: u32,
    on_epoch: Option<OnEpoch<'a>>,
}

impl<'a> Fit<'a> {
    /// For so many epochs.
    pub fn epochs(epochs: u64) -> Self {
        Self {
            epochs: Some(epochs),
            max_steps: None,
            end: None,
            batch_size: 32,
            validation: None,
            checkpoint: None,
            every: Trigger::EveryEpoch {},
            keep: None,
            resume: false,
            max_failures: 10,
            on_epoch: None,
        }
    }

    /// For so many steps.
    pub fn steps(steps: u64) -> Self {
        Self {
            epochs: None,
            max_steps: Some(steps),
            ..Self::epochs(0)
        }
    }

    /// Rows of a batch over all workers together; 32 by default.
    pub fn batch_size(self, batch_size: u64) -> Self {
        Self { batch_size, ..self }
    }

    /// Ends after so many steps, whatever else.
    pub fn max_steps(self, steps: u64) -> Self {
        Self {
            max_steps: Some(steps),
            ..self
        }
    }

    /// Ends also when this happens.
    pub fn until(self, trigger: Trigger) -> Self {
        Self {
            end: Some(trigger),
            ..self
        }
    }

    /// Is measured after each epoch.
    pub fn validation(self, data: &'a Shards) -> Self {
        Self {
            validation: Some(data),
            ..self
        }
    }

    /// Saves the run to a folder, or to an address such as `s3://…`, after each epoch.
    pub fn checkpoint(self, place: impl Into<String>) -> Self {
        Self {
            checkpoint: Some(place.into()),
            ..self
        }
    }

    /// Saves it after so many steps instead.
    pub fn checkpoint_steps(self, steps: NonZeroU64) -> Self {
        Self {
            every: Trigger::EverySteps { n: steps },
            ..self
        }
    }

    /// How many checkpoints stay.
    pub fn keep(self, checkpoints: usize) -> Self {
        Self {
            keep: Some(checkpoints),
            ..self
        }
    }

    /// Goes on from the newest checkpoint, if there is one.
    pub fn resume(self) -> Self {
        Self { resume: true, ..self }
    }

    /// How many lost workers are made good; 10 by default.
    pub fn max_failures(self, most: u32) -> Self {
        Self {
            max_failures: most,
            ..self
        }
    }

    /// Is called after each epoch with what came out of it; training ends where it says false.
    pub fn on_epoch(self, call: impl FnMut(&Record) -> bool + 'a) -> Self {
        Self {
            on_epoch: Some(Box::new(call)),
            ..self
        }
    }

    fn saving(&self) -> Option<Saving> {
        self.checkpoint.as_ref().map(|url| Saving {
            url: located(url),
            every: self.every.clone(),
            keep: self.keep,
        })
    }
}

/// A place in full: workers may be in another folder.
fn located(place: &str) -> String {
    if place.contains("://") {
        return place.to_owned();
    }
    let full = std::path::absolute(place).unwrap_or_else(|_| place.into());
    full.to_string_lossy().into_owned()
}

impl Estimator {
    /// Trains. Workers that are lost are replaced, and the weights become what they would have been without the loss.
    pub fn fit(&mut self, cluster: &Cluster, data: &Shards, mut fit: Fit<'_>) -> Result<History> {
        if fit.batch_size == 0 {
            return Err(Error::Asked("batch_size must be at least 1, it is 0".to_owned()));
        }
        self.check_directions(&fit)?;
        let mut show = Show::new(!cluster.shows());
        let saving = fit.saving();
        let found = self.sought(&fit, saving.as_ref(), &show)?;
        let mut job = self.job(cluster, data, &fit, saving)?;
        if let Some(found) = found {
            check_rows(&found, &job, data)?;
            (job.first, job.at, job.records) = (found.first, found.at, found.records);
            job.platforms = found.platforms;
            self.state = Some(found.state);
        }
        let told = loop {
            let task = Task::Fit(Box::new(job.clone()));
            let on_epoch = &mut fit.on_epoch;
            let mut hear = |event: Event| {
                show.event(&event);
                let goes_on = match (&event, on_epoch.as_mut()) {
                    (Event::Epoch { record }, Some(call)) => call(record),
                    _ => true,
                };
                if goes_on { Wish::GoOn } else { Wish::End }
            };
            match cluster.call(&task, self.state.as_ref(), &mut hear) {
                Ok(answers) => break self.took(answers)?,
                Err(Error::Worker(failure)) if is_loss(&failure) => {
                    if let Err(error) = goes_on(failure, job.losses, fit.max_failures, &show) {
                        return Err(self.rescue(cluster, job, error));
                    }
                    job.losses += 1;
                }
                Err(error) => return Err(self.rescue(cluster, job, error)),
            }
        };
        self.at = told.at;
        self.layout = Some(job.layout);
        if let Some(why) = told.unsaved {
            return Err(Error::Unsaved { why });
        }
        Ok(History {
            epochs: told.records,
            reason: told.reason,
            losses: job.losses,
        })
    }

    /// Keeps what the workers that are left have of a run, where it is more than the run began with; the error then says so.
    fn rescue(&mut self, cluster: &Cluster, job: FitJob, error: Error) -> Error {
        // The step that made a loss no number has spoilt the weights, and workers that are gone have nothing.
        if is_not_finite(&error) || matches!(error, Error::Cluster(_)) {
            return error;
        }
        let task = Task::HandOver(Box::new(job.clone()));
        // What has ended the run is what the user is to see, whatever else is broken.
        let Ok(answers) = cluster.call(&task, None, &mut |_| Wish::GoOn) else {
            return error;
        };
        let found = answers.into_iter().find_map(|answer| match answer {
            Answer::Fit(trained) => trained,
            _ => None,
        });
        let Some(found) = found.filter(|found| found.told.at.step > job.at.step) else {
            return error;
        };
        let at = found.told.at;
        (self.state, self.at, self.layout) = (Some(found.state), at, Some(job.layout));
        Error::Partial {
            source: Box::new(error),
            epoch: at.epoch + u64::from(at.step_in_epoch > 0),
            step: at.step,
        }
    }

    /// The checkpoint to go on from; a new run must find none.
    fn sought(&mut self, fit: &Fit<'_>, saving: Option<&Saving>, show: &Show) -> Result<Option<Resumed>> {
        let Some(saving) = saving else {
            return match fit.resume {
                true => Err(Error::Asked(
                    "there is no place to resume from: give it with checkpoint()".to_owned(),
                )),
                false => Ok(None),
            };
        };
        let found = resumed(&saving.url)?;
        match found {
            Some(found) if fit.resume => {
                for why in &found.skipped {
                    show.note(&format!("a newer checkpoint was passed over: {why}"));
                }
                self.check_layout(&found)?;
                self.layout = Some(found.layout.clone());
                Ok(Some(found))
            }
            Some(found) if found.at.step > self.at.step => Err(Error::Asked(format!(
                "{} holds checkpoints of another run, up to {}: go on with it (resume()), or use another folder",
                saving.url, found.name
            ))),
            _ => Ok(None),
        }
    }

    /// A run goes on with what makes its bits, or not at all.
    fn check_layout(&self, found: &Resumed) -> Result<()> {
        let saved = &found.layout;
        let settings = [
            ("lanes", self.lanes.map(u64::from), u64::from(saved.lanes)),
            ("seed", self.seed, saved.seed),
            (
                "threads_per_lane",
                self.threads.map(u64::from),
                u64::from(saved.threads),
            ),
        ];
        for (name, asked, saved) in settings {
            if let Some(asked) = asked.filter(|asked| *asked != saved) {
                return Err(Error::Asked(format!(
                    "{name}({asked}) was asked for and the run was saved with {saved}: leave it out, or use another folder"
                )));
            }
        }
        Ok(())
    }

    fn job(&self, cluster: &Cluster, data: &Shards, fit: &Fit<'_>, saving: Option<Saving>) -> Result<FitJob> {
        let layout = self.laid_out(cluster);
        if layout.lanes < cluster.size() {
            return Err(Error::Asked(format!(
                "{} lanes leave some of {} workers without any: use more lanes, or at most {0} workers",
                layout.lanes,
                cluster.size()
            )));
        }
        let (data, shapes) = data.data(fit.batch_size, true)?;
        self.check(shapes)?;
        let validation = fit.validation.map(|data| data.data(fit.batch_size, true));
        // The rest of an epoch is a matter of its data, which this call need not have.
        let at = match self.at.step_in_epoch {
            0 => self.at,
            _ => Position {
                epoch: self.at.epoch + 1,
                step: self.at.step,
                ..Position::default()
            },
        };
        Ok(FitJob {
            id: format!("{:016x}", grampus_net::random_job().map_err(Error::cluster)?.0),
            spec: self.spec.clone(),
            layout,
            data,
            validation: validation.transpose()?.map(|(data, _)| data),
            first: at,
            at,
            records: Vec::new(),
            epochs: fit.epochs,
            max_steps: fit.max_steps,
            end: fit.end.clone(),
            saving,
            losses: 0,
            platforms: Vec::new(),
        })
    }

    /// Refuses plateaus and triggers that look at a metric in the wrong direction, before workers are asked.
    fn check_directions(&self, fit: &Fit<'_>) -> Result<()> {
        self.spec
            .settled_schedule()
            .map_err(|error| Error::Asked(error.to_string()))?;
        let triggers = fit.end.iter().chain([&fit.every]);
        for trigger in triggers {
            self.spec
                .check_score(trigger, fit.validation.is_some())
                .map_err(Error::Asked)?;
        }
        Ok(())
    }

    /// Keeps what the first worker has trained.
    fn took(&mut self, answers: Vec<Answer>) -> Result<Told> {
        let trained = answers.into_iter().find_map(|answer| match answer {
            Answer::Fit(trained) => trained,
            _ => None,
        });
        let trained = trained.ok_or_else(odd_answer)?;
        self.state = Some(trained.state);
        Ok(trained.told)
    }
}

/// An epoch that was saved in its midst goes on with the same rows, or not at all.
fn check_rows(found: &Resumed, job: &FitJob, data: &Shards) -> Result<()> {
    if found.at.step_in_epoch == 0 {
        return Ok(());
    }
    let now = (Some(job.data.batch_size), Some(data.len()?));
    if found.rows == now {
        return Ok(());
    }
    let told = |(size, rows): (Option<u64>, Option<u64>)| {
        format!("batches of {} of {} rows", size.unwrap_or(0), rows.unwrap_or(0))
    };
    Err(Error::Asked(format!(
        "the run was saved within an epoch of {}, and would go on with {}: use the same data and batch_size",
        told(found.rows),
        told(now)
    )))
}

fn is_not_finite(error: &Error) -> bool {
    match error {
        Error::Run(error) => matches!(error, RunError::NotFinite(_)),
        Error::Worker(failure) => match &**failure {
            TaskFailure::Rank { first, .. } => {
                matches!(&first.failure, Failure::Raised { kind, .. } if kind == NOT_FINITE)
            }
            _ => false,
        },
        _ => false,
    }
}

/// Says that a lost worker is made good, or raises what was lost.
fn goes_on(failure: Box<TaskFailure>, losses: u32, most: u32, show: &Show) -> Result<()> {
    if losses < most {
        show.note(&format!("{failure}\n  the run goes on without it"));
        return Ok(());
    }
    let why = format!("the run does not go on: max_failures({most}) were made good before");
    Err(Error::Lost { failure, why })
}
