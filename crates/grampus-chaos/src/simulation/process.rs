//! One simulated process: it starts, joins, beats, works, hears and dies.

use std::collections::VecDeque;
use std::time::Duration;

use grampus_core::{Exit, Failure, Join, Outcome, Task, TaskId, Time, ToWorker, WorkerId};

use super::queue::Event;
use super::report::{Violation, hold};
use super::schedule::{millis, part};
use super::world::{Arrival, Said, World};

/// What can happen to a process.
pub(super) enum Happening {
    /// It is up and asks to join.
    Boot,
    /// It shows that it lives.
    Beat,
    /// A message reaches it.
    Hear(ToWorker),
    /// Its part of a task ends.
    End(TaskId, Ending),
    /// It says the end of a task once more.
    SayAgain(TaskId),
    /// The other side closed its link.
    LinkClosed,
    /// It ends.
    Die(Exit),
    /// It goes on after it was stopped.
    Thaw,
    /// Somebody ends it; this works on a stopped process too.
    Killed,
}

/// How a part of a task ends.
#[derive(Clone, Copy)]
pub(super) enum Ending {
    Finish,
    Raise,
    /// It raises and believes that another rank is to blame.
    Blame,
    /// It says that it was cancelled.
    Cancelled,
}

/// A task on one process.
struct Run {
    task: TaskId,
    /// It heard that it should end.
    told: bool,
}

pub(super) struct Process {
    pub worker: WorkerId,
    /// The place that it asks for.
    pub slot: Option<u32>,
    pub ranks: u32,
    pub launched: bool,
    pub alive: bool,
    /// It asked to join.
    pub booted: bool,
    /// The driver let it in once.
    pub accepted: bool,
    /// It was told to leave.
    leaving: bool,
    stopped_until: Time,
    /// What came while it was stopped, in order.
    missed: VecDeque<Happening>,
    pub cut_until: Time,
    /// The last message of each direction was sent.
    mute: bool,
    deaf: bool,
    /// When the last message of each direction arrives: a link is first in, first out.
    said_until: Time,
    heard_until: Time,
    generation: u64,
    run: Option<Run>,
}

impl Process {
    pub fn new(worker: WorkerId, slot: Option<u32>, launched: bool) -> Self {
        Self {
            worker,
            slot,
            ranks: 1,
            launched,
            alive: true,
            booted: false,
            accepted: false,
            leaving: false,
            stopped_until: Time::ZERO,
            missed: VecDeque::new(),
            cut_until: Time::ZERO,
            mute: false,
            deaf: false,
            said_until: Time::ZERO,
            heard_until: Time::ZERO,
            generation: 0,
            run: None,
        }
    }
}

impl World {
    /// A message from a process to the driver.
    pub(super) fn say(&mut self, index: usize, said: Said) {
        let delay = self.delay();
        let process = &mut self.processes[index];
        if process.mute {
            return;
        }
        process.mute = matches!(said, Said::LinkLost);
        let at = (self.now.max(process.cut_until) + delay).max(process.said_until);
        process.said_until = at;
        self.queue.push(at, Event::Arrival(Arrival::Said(index, said)));
    }

    /// A message from the driver to a process, or the end of its link.
    pub(super) fn tell(&mut self, index: usize, happening: Happening) {
        let delay = self.delay();
        let process = &mut self.processes[index];
        if process.deaf {
            return;
        }
        process.deaf = matches!(happening, Happening::LinkClosed);
        let at = (self.now.max(process.cut_until) + delay).max(process.heard_until);
        process.heard_until = at;
        self.queue.push(at, Event::Process(index, happening));
    }

    fn delay(&mut self) -> Duration {
        if self.odds(self.schedule.odds.slow) {
            return part(&mut self.random, self.schedule.options.silent_after.mul_f64(1.5));
        }
        Duration::from_micros(50) + part(&mut self.random, Duration::from_millis(5))
    }

    pub(super) fn later(&mut self, index: usize, delay: Duration, happening: Happening) {
        self.queue
            .push(self.now + delay, Event::Process(index, happening));
    }

    pub(super) fn live(&mut self, index: usize, happening: Happening) -> Result<(), Violation> {
        let process = &mut self.processes[index];
        if !process.alive {
            return Ok(());
        }
        if process.stopped_until > self.now && !matches!(happening, Happening::Killed) {
            process.missed.push_back(happening);
            return Ok(());
        }
        match happening {
            Happening::Thaw => {
                for missed in std::mem::take(&mut process.missed) {
                    self.live(index, missed)?;
                }
            }
            Happening::Boot => self.boot(index),
            Happening::Beat => self.beat(index),
            Happening::Hear(message) => self.hear(index, message)?,
            Happening::End(task, ending) => self.end_task(index, task, ending),
            Happening::SayAgain(task) => {
                let outcome = Outcome::Ok;
                self.say(index, Said::Finished(task, outcome));
            }
            Happening::LinkClosed => {
                let delay = millis(&mut self.random, 0, 200);
                self.later(index, delay, Happening::Die(Exit::Code(1)));
            }
            Happening::Die(exit) => {
                self.follow(index);
                self.die(index, exit);
            }
            Happening::Killed => self.die(index, Exit::Signal(9)),
        }
        Ok(())
    }

    /// Stops a process for a while.
    pub(super) fn freeze(&mut self, index: usize, length: Duration) {
        let process = &mut self.processes[index];
        process.stopped_until = process.stopped_until.max(self.now + length);
        self.queue
            .push(process.stopped_until, Event::Process(index, Happening::Thaw));
    }

    fn boot(&mut self, index: usize) {
        let process = &mut self.processes[index];
        process.booted = true;
        let join = Join {
            worker: process.worker,
            slot: process.slot,
            ranks: process.ranks,
            node: false,
            pid: 100 + index as u32,
            host: "h".to_owned(),
            address: "a".to_owned(),
            ports: Vec::new(),
            card: Vec::new(),
        };
        self.say(index, Said::Join(join));
        self.later(index, self.interval(), Happening::Beat);
    }

    fn interval(&self) -> Duration {
        self.schedule.options.silent_after / 6
    }

    fn beat(&mut self, index: usize) {
        self.say(index, Said::Heartbeat);
        self.later(index, self.interval(), Happening::Beat);
    }

    fn hear(&mut self, index: usize, message: ToWorker) -> Result<(), Violation> {
        let process = &mut self.processes[index];
        match message {
            ToWorker::Generation(generation) => {
                let number = generation.number.0;
                hold(number > process.generation, "CO-2", || {
                    format!(
                        "{} hears of generation {number} after {}",
                        process.worker, process.generation
                    )
                })?;
                process.generation = number;
            }
            ToWorker::Task(task) => self.begin(index, &task)?,
            ToWorker::Cancel { task, .. } => self.cancel(index, task),
            ToWorker::Lost { task, .. } => {
                let delay = part(&mut self.random, self.schedule.options.leave_within.mul_f64(1.2));
                self.later(index, delay, Happening::End(task, Ending::Blame));
            }
            ToWorker::Yield { task, .. } => {
                let delay = millis(&mut self.random, 0, 100);
                if !self.schedule.calm && self.random.chance(30) {
                    self.say(index, Said::Leaves);
                    let after = delay + millis(&mut self.random, 0, 300);
                    self.later(index, after, Happening::Die(Exit::Code(0)));
                }
                self.later(index, delay, Happening::End(task, Ending::Blame));
            }
            ToWorker::Stop { .. } => {
                process.leaving = true;
                process.run = None;
                self.leave(index);
            }
            ToWorker::Inspect { .. } | ToWorker::Heartbeat => {}
        }
        Ok(())
    }

    fn begin(&mut self, index: usize, task: &Task) -> Result<(), Violation> {
        let process = &mut self.processes[index];
        hold(process.run.is_none(), "CO-4", || {
            format!("{} gets task {} while it runs another", process.worker, task.id)
        })?;
        hold(process.generation == task.generation.0, "CO-4", || {
            format!(
                "{} is in generation {}, task {} in {}",
                process.worker, process.generation, task.id, task.generation
            )
        })?;
        process.run = Some(Run {
            task: task.id,
            told: false,
        });
        let odds = self.schedule.odds;
        let after = match self.random.chance(70) {
            true => millis(&mut self.random, 0, 300),
            false => part(&mut self.random, self.schedule.patience.mul_f64(1.2)),
        };
        let ending = if self.odds(odds.hang) {
            return Ok(());
        } else if self.odds(odds.exit_in_task) {
            self.later(index, after, Happening::Die(Exit::Code(3)));
            return Ok(());
        } else if self.odds(odds.raise) {
            Ending::Raise
        } else if self.odds(odds.blame) {
            Ending::Blame
        } else if self.odds(odds.end_unasked) {
            Ending::Cancelled
        } else {
            Ending::Finish
        };
        self.later(index, after, Happening::End(task.id, ending));
        Ok(())
    }

    fn cancel(&mut self, index: usize, task: TaskId) {
        match &mut self.processes[index].run {
            Some(run) if run.task == task => run.told = true,
            _ => return,
        }
        let odds = self.schedule.odds;
        let within = self.ledger.cancel_within(task);
        if self.odds(odds.ignore_cancel) {
            return;
        }
        // A calm process ends in time, with what its two messages may take.
        let whole = match self.schedule.calm {
            true => within.saturating_sub(Duration::from_millis(20)).mul_f64(0.8),
            false => within.mul_f64(1.2),
        };
        let after = part(&mut self.random, whole);
        if self.odds(odds.crash_on_cancel) {
            self.later(index, after, Happening::Die(Exit::Code(4)));
        } else if self.odds(odds.raise_on_cancel) {
            self.later(index, after, Happening::End(task, Ending::Raise));
        } else {
            self.later(index, after, Happening::End(task, Ending::Cancelled));
        }
    }

    fn end_task(&mut self, index: usize, task: TaskId, ending: Ending) {
        let process = &mut self.processes[index];
        let (worker, ranks) = (process.worker, u64::from(process.ranks));
        let Some(run) = process.run.take_if(|run| run.task == task) else {
            return;
        };
        let outcome = match ending {
            Ending::Finish => Outcome::Ok,
            Ending::Cancelled => Outcome::Cancelled,
            // What is raised after the order to end came is never a cause: that is the agent's part of CO-8.
            Ending::Raise | Ending::Blame => Outcome::Failed {
                local: self.random.below(ranks) as u32,
                pid: None,
                failure: raised(worker, run.told || matches!(ending, Ending::Blame)),
            },
        };
        if matches!(ending, Ending::Raise) && !run.told {
            self.follow_task(index, task);
        }
        self.say(index, Said::Finished(task, outcome));
        if self.odds(self.schedule.odds.say_twice) {
            let after = millis(&mut self.random, 0, 2_000);
            self.later(index, after, Happening::SayAgain(task));
        }
    }

    fn leave(&mut self, index: usize) {
        let within = self.schedule.options.stop_within;
        if self.odds(self.schedule.odds.ignore_stop) {
            return;
        }
        let whole = match self.schedule.calm {
            true => within.mul_f64(0.5),
            false => within.mul_f64(2.5),
        };
        let after = part(&mut self.random, whole);
        self.later(index, after, Happening::Die(Exit::Code(0)));
    }

    /// The peers of a process that dies in a task may raise for it.
    pub(super) fn follow(&mut self, index: usize) {
        if let Some(task) = self.processes[index].run.as_ref().map(|run| run.task) {
            self.follow_task(index, task);
        }
    }

    fn follow_task(&mut self, index: usize, task: TaskId) {
        for peer in 0..self.processes.len() {
            let runs = self.processes[peer]
                .run
                .as_ref()
                .is_some_and(|run| run.task == task);
            if peer != index && runs && self.odds(self.schedule.odds.follow) {
                let after = millis(&mut self.random, 0, 50);
                self.later(peer, after, Happening::End(task, Ending::Blame));
            }
        }
    }

    /// A process is gone; who hears of it when, if at all, is another matter.
    pub(super) fn die(&mut self, index: usize, exit: Exit) {
        let process = &mut self.processes[index];
        process.alive = false;
        process.run = None;
        let (worker, launched, booted, leaving) =
            (process.worker, process.launched, process.booted, process.leaving);
        if booted {
            self.say(index, Said::LinkLost);
        }
        if !launched {
            let awaited = !self.schedule.options.launches;
            if awaited && !leaving && self.odds(self.schedule.odds.succeed) {
                self.succeed(index);
            }
        } else if !self.odds(self.schedule.odds.exit_lost) {
            let late = self.schedule.options.exit_report_within.mul_f64(1.5);
            let after = match self.schedule.calm || self.random.chance(80) {
                true => millis(&mut self.random, 0, 10),
                false => part(&mut self.random, late),
            };
            self.queue
                .push(self.now + after, Event::Arrival(Arrival::Exited(worker, exit)));
        }
    }

    /// Where members come by themselves, somebody starts another one, sometimes under the same id.
    fn succeed(&mut self, index: usize) {
        let (worker, slot) = (self.processes[index].worker, self.processes[index].slot);
        let worker = match self.random.chance(30) {
            true => worker,
            false => self.fresh_id(),
        };
        let delay = part(&mut self.random, self.schedule.options.join_within.mul_f64(0.4));
        self.come(worker, slot, delay);
    }
}

fn raised(worker: WorkerId, consequence: bool) -> Failure {
    Failure::Raised {
        kind: "E".to_owned(),
        message: format!("by {worker}"),
        traceback: String::new(),
        consequence,
    }
}
