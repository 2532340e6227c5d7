//! The loop.

use std::time::Duration;

use grampus_core::{Clock, Time};

use super::{Batch, Feed, Model, Position, Progress, Record, Settings, Watcher};
use crate::plan::{Draw, lane_seed};
use crate::trigger;

/// How often progress is told: as often as an eye can follow.
const REPORT: Duration = Duration::from_millis(100);

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Where it stands.
    pub at: Position,
    /// Why it ended there.
    pub reason: String,
}

/// Trains a model until its settings, a trigger or the watcher ends it, from `at` on.
pub fn fit<B, E>(
    model: &mut dyn Model<Batch = B, Error = E>,
    feed: &mut dyn Feed<Batch = B, Error = E>,
    watcher: &mut dyn Watcher<Error = E>,
    settings: &Settings,
    at: Position,
    clock: &dyn Clock,
) -> Result<Outcome, E> {
    let mut run = Run {
        model,
        feed,
        watcher,
        settings,
        clock,
        at,
        losses: Vec::new(),
        reported: clock.now(),
    };
    loop {
        if let Some(reason) = run.is_over() {
            return Ok(Outcome { at: run.at, reason });
        }
        if let Some(reason) = run.epoch()? {
            return Ok(Outcome { at: run.at, reason });
        }
    }
}

struct Run<'a, B, E> {
    model: &'a mut dyn Model<Batch = B, Error = E>,
    feed: &'a mut dyn Feed<Batch = B, Error = E>,
    watcher: &'a mut dyn Watcher<Error = E>,
    settings: &'a Settings,
    clock: &'a dyn Clock,
    at: Position,
    losses: Vec<(u64, f64)>,
    reported: Time,
}

impl<B, E> Run<'_, B, E> {
    /// Whether there is nothing left to do, and why.
    fn is_over(&self) -> Option<String> {
        let first = &self.settings.first;
        let epochs = self.at.epoch - first.epoch;
        if let Some(most) = self.settings.epochs
            && epochs >= most
        {
            return Some(format!("{most} {} done", counted(most, "epoch")));
        }
        let done = trigger::Progress {
            epoch: self.at.epoch,
            step: self.at.step,
            ..trigger::Progress::default()
        };
        let end = self.settings.end.as_ref();
        // A run may go on from a checkpoint at which it was over already.
        self.steps_are_over()
            .or_else(|| end.and_then(|end| end.fires(&done)))
    }

    fn steps_are_over(&self) -> Option<String> {
        let most = self.settings.max_steps?;
        let done = self.at.step - self.settings.first.step;
        (done >= most).then(|| format!("max_steps={most} {} done", counted(most, "step")))
    }

    /// One epoch, or what is left of it; the reason where it ends the run.
    fn epoch(&mut self) -> Result<Option<String>, E> {
        if self.at.step_in_epoch == 0 {
            self.watcher.epoch_begins(&self.at)?;
        }
        self.feed.open(self.at.epoch, self.at.step_in_epoch)?;
        let mut began = self.clock.now();
        while let Some(batch) = self.feed.next()? {
            let read = self.clock.now();
            self.at.waited += (read - began).as_secs_f64();
            let Some(loss) = self.step(batch)? else { break };
            let ended = self.clock.now();
            self.at.seconds += (ended - began).as_secs_f64();
            began = ended;
            if let Some(reason) = self.after_step(loss, ended)? {
                return Ok(Some(reason));
            }
        }
        self.end_epoch(began)
    }

    /// One step; nothing where no worker has any rows left.
    fn step(&mut self, batch: Batch<B>) -> Result<Option<f64>, E> {
        let total = match batch.total {
            Some(total) => total,
            None => self.model.agree(&batch.parts)?,
        };
        if total.rows == 0 {
            return Ok(None);
        }
        for part in batch.parts {
            // Exactly 1 where there is one lane, so that nothing is multiplied.
            let share = part.weight / total.weight;
            let seed = lane_seed(
                Draw::Model,
                self.settings.seed,
                self.at.epoch,
                self.at.step_in_epoch,
                part.lane,
            );
            self.model.train(part, share, seed)?;
        }
        let loss = self.model.commit()?;
        self.at.step += 1;
        self.at.step_in_epoch += 1;
        self.at.rows += total.rows;
        self.at.loss_sum += loss * total.weight;
        self.at.weight += total.weight;
        Ok(Some(loss))
    }

    fn after_step(&mut self, loss: f64, now: Time) -> Result<Option<String>, E> {
        self.losses.push((self.at.step, loss));
        if now - self.reported >= REPORT {
            self.report(now)?;
        }
        let asked = self.watcher.step_ends(&self.at, loss)?;
        let progress = trigger::Progress {
            epoch: self.at.epoch,
            step: self.at.step,
            epoch_end: false,
            loss: Some(loss),
            score: None,
        };
        let reason = asked.or_else(|| self.steps_are_over()).or_else(|| {
            let end = self.settings.end.as_ref()?;
            end.fires(&progress)
        });
        if let Some(save) = &self.settings.save
            && let Some(why) = save.fires(&progress)
        {
            self.watcher.save(&self.at, &why)?;
        } else if reason.is_some() && self.settings.save.is_some() {
            self.watcher.save(&self.at, "the run ends here")?;
        }
        if reason.is_some() {
            self.report(now)?;
        }
        Ok(reason)
    }

    fn report(&mut self, now: Time) -> Result<(), E> {
        self.reported = now;
        let progress = Progress {
            at: &self.at,
            losses: &self.losses,
        };
        self.watcher.report(&progress)?;
        self.losses.clear();
        Ok(())
    }

    fn end_epoch(&mut self, began: Time) -> Result<Option<String>, E> {
        let now = self.clock.now();
        self.at.seconds += (now - began).as_secs_f64();
        self.report(now)?;
        let mut record = self.record();
        self.watcher.validate(&self.at, &mut record)?;
        let done = Position {
            epoch: self.at.epoch + 1,
            step: self.at.step,
            ..Position::default()
        };
        self.at = done;
        let asked = self.watcher.epoch_ends(&self.at, &record)?;
        let progress = trigger::Progress {
            epoch: self.at.epoch,
            step: self.at.step,
            epoch_end: true,
            loss: record.get("loss"),
            score: record.score(),
        };
        if let Some(save) = &self.settings.save
            && let Some(why) = save.fires(&progress)
        {
            self.watcher.save(&self.at, &why)?;
        }
        let end = self.settings.end.as_ref();
        Ok(asked.or_else(|| end.and_then(|end| end.fires(&progress))))
    }

    fn record(&self) -> Record {
        let at = &self.at;
        let per = |sum: f64, count: f64| if count > 0.0 { sum / count } else { f64::NAN };
        let mut record = Record::default();
        record.add("epoch", (at.epoch + 1) as f64);
        record.add("loss", per(at.loss_sum, at.weight));
        record.add("samples", at.rows as f64);
        record.add("steps", at.step_in_epoch as f64);
        record.add("seconds", at.seconds);
        record.add("samples_per_second", per(at.rows as f64, at.seconds));
        record.add("data_wait", per(at.waited, at.seconds));
        record
    }
}

fn counted(count: u64, noun: &str) -> String {
    if count == 1 {
        noun.into()
    } else {
        format!("{noun}s")
    }
}
