//! The loop.

use std::collections::VecDeque;
use std::time::Duration;

use grampus_core::{Clock, Time};

use super::{Batch, Feed, Model, Position, Progress, Record, Settings, Total, Watcher};
use crate::plan::{Draw, lane_seed};
use crate::trigger;
use crate::whereabouts::{Phase, Whereabouts};

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

/// Trains a model until its settings, a trigger or the watcher ends it, from `at` on; `at` then says where it stands, also
/// where it failed: of a step, either all was done or nothing. `here` says meanwhile what it is at.
pub fn fit<B, E>(
    model: &mut dyn Model<Batch = B, Error = E>,
    feed: &mut dyn Feed<Batch = B, Error = E>,
    watcher: &mut dyn Watcher<Error = E>,
    settings: &Settings,
    at: &mut Position,
    clock: &dyn Clock,
    here: &Whereabouts,
) -> Result<Outcome, E> {
    let mut run = Run {
        model,
        feed,
        watcher,
        settings,
        clock,
        here,
        at: *at,
        losses: Vec::new(),
        unknown: VecDeque::new(),
        reported: clock.now(),
    };
    let ended = run.all();
    if ended.is_err() {
        // What is done is done, and counts where the run goes on; what ended it is the error.
        let _ = run.hear(true);
    }
    if ended.is_err() && !run.losses.is_empty() {
        // Whoever goes on from here will not tell of these steps again; what ended the run is the error.
        let _ = run.report(clock.now());
    }
    *at = run.at;
    run.enter(Phase::End);
    ended.map(|reason| Outcome { at: *at, reason })
}

struct Run<'a, B, E> {
    model: &'a mut dyn Model<Batch = B, Error = E>,
    feed: &'a mut dyn Feed<Batch = B, Error = E>,
    watcher: &'a mut dyn Watcher<Error = E>,
    settings: &'a Settings,
    clock: &'a dyn Clock,
    here: &'a Whereabouts,
    at: Position,
    losses: Vec<(u64, f64)>,
    /// Steps whose loss is still being computed, and what they weigh.
    unknown: VecDeque<(u64, f64)>,
    reported: Time,
}

/// A step that was done; its loss may still be computed.
struct Done {
    loss: Option<f64>,
}

impl<B, E> Run<'_, B, E> {
    fn enter(&self, phase: Phase) -> Time {
        let now = self.clock.now();
        self.here.enter(phase, now);
        now
    }

    /// Rows come next.
    fn reads(&self) -> Time {
        self.here.at(self.at.epoch, self.at.step_in_epoch, self.at.rows);
        self.enter(Phase::Data)
    }

    /// All epochs; the reason why there are no more.
    fn all(&mut self) -> Result<String, E> {
        if self.settings.goes_on && self.has_begun() && !self.epoch_is_to_end()? {
            let is_over = self.is_over().is_some();
            self.save(&self.standing(), is_over)?;
        }
        loop {
            // All steps of an epoch may be done, and its end not: a run that goes on from there has that to do.
            if !self.epoch_is_to_end()?
                && let Some(reason) = self.is_over()
            {
                return Ok(reason);
            }
            if let Some(reason) = self.epoch()? {
                return Ok(reason);
            }
        }
    }

    fn epoch_is_to_end(&mut self) -> Result<bool, E> {
        let at = &self.at;
        Ok(at.step_in_epoch > 0 && self.feed.steps(at.epoch)? == Some(at.step_in_epoch))
    }

    /// Whether there is nothing left to do, and why.
    fn is_over(&self) -> Option<String> {
        let first = &self.settings.first;
        let epochs = self.at.epoch - first.epoch;
        if let Some(most) = self.settings.epochs
            && epochs >= most
        {
            return Some(format!("{most} {} done", counted(most, "epoch")));
        }
        let end = self.settings.end.as_ref();
        self.steps_are_over()
            .or_else(|| end.and_then(|end| end.fires(&self.standing())))
    }

    /// Whether any step of this run is done.
    fn has_begun(&self) -> bool {
        self.at.step > self.settings.first.step
    }

    /// What is done, for triggers. A run may go on from a checkpoint at which it was over already; one that begins is not
    /// over because of the last.
    fn standing(&self) -> trigger::Progress {
        let begun = self.has_begun();
        trigger::Progress {
            epoch: self.at.epoch,
            step: self.at.step,
            epoch_end: begun && self.at.step_in_epoch == 0,
            loss: self.at.loss.filter(|_| begun),
            score: self.at.score.filter(|_| begun),
        }
    }

    fn steps_are_over(&self) -> Option<String> {
        let most = self.settings.max_steps?;
        let done = self.at.step - self.settings.first.step;
        (done >= most).then(|| format!("max_steps={most} {} done", counted(most, "step")))
    }

    /// One epoch, or what is left of it; the reason where it ends the run.
    fn epoch(&mut self) -> Result<Option<String>, E> {
        if self.at.step_in_epoch == 0 {
            self.enter(Phase::Callbacks);
            self.watcher.epoch_begins(&self.at)?;
        }
        self.reads();
        self.feed.open(self.at.epoch, self.at.step_in_epoch)?;
        let steps = self.feed.steps(self.at.epoch)?;
        let mut began = self.clock.now();
        let over = match self.epoch_is_to_end()? {
            true => self.step_ends_the_run(),
            false => None,
        };
        while let Some(batch) = self.feed.next()? {
            let read = self.enter(Phase::Callbacks);
            self.at.waited += (read - began).as_secs_f64();
            let Some(done) = self.step(batch)? else {
                if steps.is_none() {
                    break;
                }
                // All of its rows were left out, and batches come after it.
                self.at.step_in_epoch += 1;
                self.at.seconds += (read - began).as_secs_f64();
                began = read;
                self.reads();
                continue;
            };
            let ended = self.enter(Phase::Callbacks);
            self.here.advance(ended);
            self.at.seconds += (ended - began).as_secs_f64();
            began = ended;
            let is_last = steps == Some(self.at.step_in_epoch);
            let reason = self.after_step(&done, ended, is_last)?;
            if is_last {
                return self.end_epoch(began, reason);
            }
            if reason.is_some() {
                return Ok(reason);
            }
            self.reads();
        }
        self.end_epoch(began, over)
    }

    /// One step; nothing where no worker has any rows for it.
    fn step(&mut self, batch: Batch<B>) -> Result<Option<Done>, E> {
        let total = match batch.total {
            Some(total) => total,
            None => {
                self.enter(Phase::Sync);
                self.model.agree(&batch.parts)?
            }
        };
        if total.rows == 0 {
            return Ok(None);
        }
        self.watcher.step_begins(&self.at)?;
        if total.weight == 0.0 {
            // Such as where all labels are ignored: the mean over nothing is NaN, and would make all weights NaN.
            self.model.skip()?;
            self.count(&total);
            return Ok(Some(Done { loss: None }));
        }
        for part in batch.parts {
            // Exactly 1 where there is one lane, so that nothing is multiplied.
            let share = match self.settings.sums {
                true => 1.0,
                false => part.weight / total.weight,
            };
            let seed = lane_seed(
                Draw::Model,
                self.settings.seed,
                self.at.epoch,
                self.at.step_in_epoch,
                part.lane,
            );
            self.enter(Phase::Forward);
            self.model.train(part, share, seed)?;
        }
        self.enter(Phase::Sync);
        match self.model.commit() {
            Ok(loss) => {
                self.advance(&total, loss);
                Ok(Some(Done { loss }))
            }
            Err(error) => {
                if let Some(loss) = self.model.applied() {
                    self.advance(&total, Some(loss));
                }
                Err(error)
            }
        }
    }

    /// A step is done.
    fn advance(&mut self, total: &Total, loss: Option<f64>) {
        self.count(total);
        match loss {
            Some(loss) => self.learn(self.at.step, total.weight, loss),
            None => self.unknown.push_back((self.at.step, total.weight)),
        }
    }

    fn count(&mut self, total: &Total) {
        self.at.step += 1;
        self.at.step_in_epoch += 1;
        self.at.rows += total.rows;
        self.at.score = None;
    }

    /// The loss of a step is known.
    fn learn(&mut self, step: u64, weight: f64, loss: f64) {
        if self.settings.sums {
            self.at.loss_sum += loss;
            self.at.weight = 1.0;
        } else {
            self.at.loss_sum += loss * weight;
            self.at.weight += weight;
        }
        self.at.loss = Some(loss);
        self.losses.push((step, loss));
    }

    /// Asks for losses that were not known when their steps were done.
    fn hear(&mut self, wait: bool) -> Result<(), E> {
        if self.unknown.is_empty() {
            return Ok(());
        }
        for loss in self.model.late(wait)? {
            if let Some((step, weight)) = self.unknown.pop_front() {
                self.learn(step, weight, loss);
            }
        }
        Ok(())
    }

    /// Looks at what the step has done; the reason where it ends the run. The last step of an epoch is saved with it.
    fn after_step(&mut self, done: &Done, now: Time, is_last: bool) -> Result<Option<String>, E> {
        self.hear(false)?;
        if now - self.reported >= REPORT {
            self.report(now)?;
        }
        let asked = self.watcher.step_ends(&self.at, done.loss)?;
        let reason = asked.or_else(|| self.step_ends_the_run());
        if !is_last {
            self.save(&self.after_its_step(), reason.is_some())?;
        }
        if reason.is_some() {
            self.hear(true)?;
            self.report(now)?;
        }
        self.watcher.may_yield(&self.at)?;
        Ok(reason)
    }

    /// Why the step that was done last ends the run, if it does.
    fn step_ends_the_run(&self) -> Option<String> {
        let end = self.settings.end.as_ref();
        self.steps_are_over()
            .or_else(|| end.and_then(|end| end.fires(&self.after_its_step())))
    }

    fn after_its_step(&self) -> trigger::Progress {
        trigger::Progress {
            epoch: self.at.epoch,
            step: self.at.step,
            epoch_end: false,
            loss: self.at.loss,
            score: None,
        }
    }

    /// Saves where the trigger says so, and at the end of the run.
    fn save(&mut self, progress: &trigger::Progress, is_over: bool) -> Result<(), E> {
        let Some(trigger) = &self.settings.save else {
            return Ok(());
        };
        let why = trigger.fires(progress);
        let Some(why) = why.or_else(|| is_over.then(|| "the run ends here".into())) else {
            return Ok(());
        };
        self.hear(true)?;
        if !self.losses.is_empty() {
            // Whoever goes on from here will not tell of these steps again.
            self.report(self.clock.now())?;
        }
        self.enter(Phase::Save);
        self.watcher.save(&self.at, &why)
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

    /// Ends an epoch; `over` is why its last step ends the run, if it does.
    fn end_epoch(&mut self, began: Time, over: Option<String>) -> Result<Option<String>, E> {
        // What is still being computed is part of the epoch, and so is the time that it takes.
        self.hear(true)?;
        let now = self.enter(Phase::Validate);
        self.at.seconds += (now - began).as_secs_f64();
        self.report(now)?;
        let mut record = self.record();
        self.watcher.validate(&self.at, &mut record)?;
        let next = Position {
            epoch: self.at.epoch + 1,
            step: self.at.step,
            // Where a step has ended the run, its loss is why.
            loss: if over.is_some() {
                self.at.loss
            } else {
                record.get("loss")
            },
            score: record.score(),
            ..Position::default()
        };
        self.enter(Phase::Callbacks);
        let asked = self.watcher.epoch_ends(&next, &record)?;
        self.at = next;
        let progress = trigger::Progress {
            epoch: self.at.epoch,
            step: self.at.step,
            epoch_end: true,
            loss: record.get("loss"),
            score: self.at.score,
        };
        let end = self.settings.end.as_ref();
        let reason = over
            .or(asked)
            .or_else(|| end.and_then(|end| end.fires(&progress)))
            .or_else(|| self.is_over());
        self.save(&progress, reason.is_some())?;
        Ok(reason)
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
