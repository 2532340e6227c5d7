//! The simulated cluster around the real coordinator: event loop, driver, launcher and user.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use grampus_cluster::coordinator::{self, Action, Input, State, Step, Transition};
use grampus_core::{Exit, Join, Outcome, Random, TaskId, Time, ToWorker, WorkerId};

use super::coverage::Coverage;
use super::ledger::Ledger;
use super::process::{Happening, Process};
use super::queue::{Event, Queue};
use super::report::Violation;
use super::schedule::{Call, Planned, Schedule, millis, part};

/// What a process says to the driver.
pub(super) enum Said {
    Join(Join),
    Heartbeat,
    Leaves,
    Finished(TaskId, Outcome),
    LinkLost,
}

/// What reaches the driver.
pub(super) enum Arrival {
    Said(usize, Said),
    Exited(WorkerId, Exit),
    LaunchFailed(WorkerId),
    Call(Call),
}

/// The simulated driver: the thin loop around the coordinator.
#[derive(Default)]
struct Driver {
    /// Whose messages travel over the link of which process.
    links: BTreeMap<WorkerId, usize>,
    /// Its own pause: what arrives meanwhile waits.
    away_since: Option<Time>,
    away_until: Option<Time>,
    backlog: VecDeque<Arrival>,
    wake: Option<Time>,
}

pub(super) struct World {
    pub now: Time,
    pub queue: Queue,
    pub random: Random,
    pub schedule: Schedule,
    pub processes: Vec<Process>,
    launched: BTreeMap<WorkerId, usize>,
    next_id: u64,
    driver: Driver,
    state: Option<State>,
    pub(super) ledger: Ledger,
    coverage: Coverage,
    steps: Option<Vec<String>>,
}

impl World {
    pub fn new(schedule: Schedule, recorded: bool) -> Self {
        let options = schedule.options.clone();
        Self {
            now: Time::ZERO,
            queue: Queue::default(),
            random: Random::from_parts(&[schedule.seed, 2]),
            processes: Vec::new(),
            launched: BTreeMap::new(),
            next_id: 1_000,
            driver: Driver::default(),
            state: Some(State::new(options)),
            ledger: Ledger::new(&schedule),
            coverage: Coverage::default(),
            steps: recorded.then(Vec::new),
            schedule,
        }
    }

    /// Plays the schedule to its end, and adds what it reached to the total.
    pub fn play(&mut self, total: &mut Coverage) -> Result<(), Violation> {
        let played = self.play_all();
        self.coverage.schedules = 1;
        self.coverage.simulated = self.now.since(Time::ZERO);
        total.add(&self.coverage);
        played
    }

    pub fn into_steps(self) -> Vec<String> {
        self.steps.unwrap_or_default()
    }

    fn play_all(&mut self) -> Result<(), Violation> {
        for (at, planned) in std::mem::take(&mut self.schedule.plan) {
            self.queue.push(Time::ZERO + at, Event::Planned(planned));
        }
        if !self.schedule.options.launches {
            self.members_come();
        }
        self.feed(Input::Start, None)?;
        self.plan_wake();
        let end = Time::ZERO + self.schedule.end;
        while let Some((at, event)) = self.queue.pop().filter(|(at, _)| *at <= end) {
            self.now = at;
            self.happen(event)?;
        }
        self.ledger.finish(&self.state, &self.processes)
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Arrival(arrival) if self.driver.away_until.is_some() => {
                self.driver.backlog.push_back(arrival);
                Ok(())
            }
            Event::Arrival(arrival) => self.receive(arrival),
            Event::Wake => self.wake(),
            Event::Resume => self.resume(),
            Event::Process(index, happening) => self.live(index, happening),
            Event::Planned(Planned::Call(call)) => self.happen(Event::Arrival(Arrival::Call(call))),
            Event::Planned(Planned::Fault(fault)) => {
                self.strike(fault);
                Ok(())
            }
        }
    }

    pub fn odds(&mut self, of_a_thousand: u64) -> bool {
        self.random.below(1_000) < of_a_thousand
    }

    pub fn fresh_id(&mut self) -> WorkerId {
        self.next_id += 1;
        WorkerId(self.next_id)
    }

    fn members_come(&mut self) {
        let any_place = self.random.chance(30);
        for slot in 0..self.schedule.options.size {
            let worker = self.fresh_id();
            let delay = part(&mut self.random, self.schedule.options.join_within.mul_f64(0.4));
            self.come(worker, Some(slot).filter(|_| !any_place), delay);
        }
    }

    /// Where members come by themselves, whoever asks for more places also starts more of them.
    fn more_come(&mut self, size: u32) {
        let before = self.state.as_ref().map_or(size, State::wanted);
        for _ in before..size.max(before) {
            if !self.schedule.options.launches {
                let worker = self.fresh_id();
                // Not at once: the place has to be there.
                let delay = millis(&mut self.random, 10, 500);
                self.come(worker, None, delay);
            }
        }
    }

    /// A process that nobody launched comes by itself.
    pub fn come(&mut self, worker: WorkerId, slot: Option<u32>, delay: Duration) {
        let ranks = 1 + self.random.below(u64::from(self.schedule.most_ranks)) as u32;
        let mut process = Process::new(worker, slot, false);
        process.ranks = ranks;
        self.processes.push(process);
        self.later(self.processes.len() - 1, delay, Happening::Boot);
    }

    /// The driver is away, and hears nothing, for a while.
    pub fn pause(&mut self, length: Duration) {
        let until = self.now + length;
        let was = self.driver.away_until.unwrap_or(self.now);
        if until > was {
            self.driver.away_since.get_or_insert(self.now);
            self.driver.away_until = Some(until);
            self.ledger.away(until - was);
            self.queue.push(until, Event::Resume);
        }
    }

    fn resume(&mut self) -> Result<(), Violation> {
        if self.driver.away_until.is_none_or(|until| until > self.now) {
            return Ok(());
        }
        self.driver.away_until = None;
        let since = self.driver.away_since.take().unwrap_or(self.now);
        // After a pause that the coordinator can notice, the driver may even look at the clock first.
        if self.now - since >= self.schedule.options.silent_after / 2 && self.random.chance(50) {
            self.tick()?;
        }
        for arrival in std::mem::take(&mut self.driver.backlog) {
            self.take_in(arrival)?;
        }
        self.tick()?;
        self.plan_wake();
        Ok(())
    }

    fn wake(&mut self) -> Result<(), Violation> {
        if self.driver.wake != Some(self.now) {
            return Ok(());
        }
        self.driver.wake = None;
        if self.driver.away_until.is_none() {
            self.tick()?;
            self.plan_wake();
        }
        Ok(())
    }

    /// Makes sure that the driver looks at the state when the next wait ends.
    fn plan_wake(&mut self) {
        let Some(deadline) = self.state.as_ref().and_then(State::deadline) else {
            return;
        };
        let jitter = part(&mut self.random, Duration::from_millis(3));
        let at = deadline.max(self.now) + jitter;
        if self.driver.wake.is_none_or(|wake| at < wake) {
            self.driver.wake = Some(at);
            self.queue.push(at, Event::Wake);
        }
    }

    fn tick(&mut self) -> Result<(), Violation> {
        let most = 10 + 8 * self.schedule.options.size;
        for _ in 0..most {
            if self.feed(Input::Tick, None)? == Transition::Idle {
                return self.ledger.idle(self.now, &self.state);
            }
        }
        Err(Violation::new(
            "CO-5",
            format!("{most} ticks of one moment found no end"),
        ))
    }

    fn receive(&mut self, arrival: Arrival) -> Result<(), Violation> {
        self.take_in(arrival)?;
        if self.schedule.eager {
            self.tick()?;
        }
        self.plan_wake();
        Ok(())
    }

    fn take_in(&mut self, arrival: Arrival) -> Result<(), Violation> {
        match self.input(arrival) {
            Some((input, from)) => self.feed(input, from).map(|_| ()),
            None => Ok(()),
        }
    }

    /// What the driver makes of an arrival, and the process that said it.
    fn input(&mut self, arrival: Arrival) -> Option<(Input, Option<usize>)> {
        let input = match arrival {
            Arrival::Said(index, Said::Join(join)) => return Some((Input::Joined(join), Some(index))),
            Arrival::Said(index, said) => {
                let worker = self.processes[index].worker;
                self.is_delivered(index, worker)?;
                match said {
                    Said::Finished(task, outcome) => Input::Finished {
                        worker,
                        task,
                        outcome,
                        ports: Vec::new(),
                    },
                    Said::LinkLost => {
                        self.driver.links.remove(&worker);
                        let why = "reset by peer".to_owned();
                        Input::LinkLost { worker, why }
                    }
                    Said::Leaves => Input::Leaves(worker),
                    Said::Join(_) | Said::Heartbeat => Input::Heard(worker),
                }
            }
            Arrival::Exited(worker, exit) => Input::Exited {
                worker,
                exit,
                log_tail: String::new(),
            },
            Arrival::LaunchFailed(worker) => Input::LaunchFailed {
                worker,
                why: "no".to_owned(),
            },
            Arrival::Call(Call::Submit {
                task,
                world,
                least,
                patient,
            }) => Input::Submit {
                task,
                world,
                least,
                restarts: 0,
                patient,
            },
            Arrival::Call(Call::Cancel { task }) => Input::Cancel {
                task,
                why: "the user had enough".to_owned(),
            },
            Arrival::Call(Call::Resize { size }) => {
                self.more_come(size);
                Input::Resize { size }
            }
            Arrival::Call(Call::Yield { task }) => Input::Yield { task, save: true },
            Arrival::Call(Call::Stop) => Input::Stop {
                why: "the user is done".to_owned(),
            },
        };
        Some((input, None))
    }

    /// Messages of a link that the driver closed may have been waiting in its queue, or not.
    fn is_delivered(&mut self, index: usize, worker: WorkerId) -> Option<()> {
        match self.driver.links.get(&worker) {
            Some(holder) => (*holder == index).then_some(()),
            None => (self.processes[index].accepted && self.random.chance(50)).then_some(()),
        }
    }

    fn feed(&mut self, input: Input, from: Option<usize>) -> Result<Transition, Violation> {
        let Some(state) = self.state.take() else {
            return Err(Violation::new("CO-5", "the state was lost"));
        };
        let text = self.steps.is_some().then(|| format!("{input:?}"));
        let seen = self.ledger.note(self.now, &input);
        let step = coordinator::step(self.now, state, input);
        self.coverage.count(step.transition);
        if let (Some(steps), Some(text)) = (&mut self.steps, text) {
            steps.push(told(self.now, &text, &step));
        }
        let checked = self.ledger.check(self.now, &seen, &step);
        self.state = Some(step.state);
        checked?;
        self.connect(from, &step.actions);
        for action in step.actions {
            self.act(action, from);
        }
        Ok(step.transition)
    }

    /// The link of a process that was let in carries its messages from now on.
    fn connect(&mut self, from: Option<usize>, actions: &[Action]) {
        let refused = actions.iter().any(|action| matches!(action, Action::Refuse(..)));
        if let Some(index) = from.filter(|_| !refused) {
            let process = &mut self.processes[index];
            process.accepted = true;
            self.driver.links.insert(process.worker, index);
        }
    }

    fn act(&mut self, action: Action, from: Option<usize>) {
        match action {
            Action::Launch { worker, slot } => self.launch(worker, slot),
            Action::Kill(worker) => self.kill(worker),
            Action::Send(worker, message) => self.send(worker, message),
            Action::Refuse(..) => {
                if let Some(index) = from {
                    self.tell(index, Happening::LinkClosed);
                }
            }
            Action::Resolve(..) => {}
        }
    }

    fn launch(&mut self, worker: WorkerId, slot: u32) {
        let odds = self.schedule.odds;
        if self.odds(odds.launch_fails) {
            let at = self.now + millis(&mut self.random, 0, 50);
            self.queue.push(at, Event::Arrival(Arrival::LaunchFailed(worker)));
            return;
        }
        let index = self.processes.len();
        self.processes.push(Process::new(worker, Some(slot), true));
        self.launched.insert(worker, index);
        let within = self.schedule.options.join_within;
        let delay = match self.schedule.calm || self.random.chance(80) {
            true => part(&mut self.random, within.mul_f64(0.3)),
            false => part(&mut self.random, within.mul_f64(1.1)),
        };
        if self.odds(odds.crash_before_join) {
            self.later(index, delay, Happening::Die(Exit::Code(2)));
        } else if !self.odds(odds.hang_before_join) {
            self.later(index, delay, Happening::Boot);
        }
    }

    fn kill(&mut self, worker: WorkerId) {
        let link = self.driver.links.remove(&worker);
        if let Some(index) = self.launched.get(&worker).copied() {
            let delay = millis(&mut self.random, 0, 20);
            self.later(index, delay, Happening::Killed);
        } else if let Some(index) = link {
            self.tell(index, Happening::LinkClosed);
        }
    }

    fn send(&mut self, worker: WorkerId, message: ToWorker) {
        if let ToWorker::Task(task) = &message
            && self.ledger.is_news(task.id)
        {
            let call = Call::Cancel { task: task.id };
            let at = self.now + self.schedule.patience;
            self.queue.push(at, Event::Planned(Planned::Call(call)));
        }
        if let Some(index) = self.driver.links.get(&worker).copied() {
            self.tell(index, Happening::Hear(message));
        }
    }
}

fn told(now: Time, input: &str, step: &Step) -> String {
    let actions: Vec<String> = step.actions.iter().map(brief).collect();
    let Step { transition, why, .. } = step;
    let arrow = if actions.is_empty() { "" } else { " => " };
    format!(
        "{now} {input} -> {transition:?}: {why}{arrow}{}",
        actions.join(", ")
    )
}

/// An action without what makes it long.
fn brief(action: &Action) -> String {
    match action {
        Action::Send(worker, ToWorker::Generation(generation)) => {
            format!("Send({worker}, generation {})", generation.number)
        }
        Action::Send(worker, ToWorker::Task(task)) => format!("Send({worker}, task {})", task.id),
        other => format!("{other:?}"),
    }
}
