//! A thousand workers join, work, and a hundred of them die: how long the coordinator takes, and what it says.
//!
//! `cargo run --release -p grampus-chaos --example thousand`
//!
//! What is timed is [`coordinator::step`] and this loop around it; there is no network. What is counted are the
//! messages that the coordinator would send (`Send` actions) and the inputs that its members would cause.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use grampus_cluster::coordinator::{Action, Input, Options, Phase, State, Step, step};
use grampus_core::{Clock, Exit, Join, Outcome, Random, SystemClock, TaskFailure, TaskId, Time, WorkerId};

const SIZE: u32 = 1_000;
const LOST: u32 = 100;
const TASKS: u64 = 100;
/// What a task does between its start and its end; the coordinator does not know of it.
const STEPS: u32 = 100;
const STEP: Duration = Duration::from_millis(10);
const ROUNDS: u32 = 10;

type Done = Result<(), Box<dyn Error>>;

/// Messages between the coordinator and its members.
#[derive(Default)]
struct Counts {
    heartbeats: u64,
    /// From members, without heartbeats.
    inputs: u64,
    /// To members.
    sends: u64,
}

struct Cluster {
    now: Time,
    random: Random,
    state: Option<State>,
    counts: Counts,
    /// Members that joined, and when each beats next.
    members: BTreeMap<WorkerId, Time>,
    /// Launched, and not yet joined.
    starting: Vec<WorkerId>,
    ends: Vec<Result<(), TaskFailure>>,
    tasks: u64,
}

impl Cluster {
    fn new() -> Self {
        Self {
            now: Time::ZERO,
            random: Random::new(1),
            state: Some(State::new(Options::launched(SIZE))),
            counts: Counts::default(),
            members: BTreeMap::new(),
            starting: Vec::new(),
            ends: Vec::new(),
            tasks: 0,
        }
    }

    fn feed(&mut self, input: Input) -> Result<String, Box<dyn Error>> {
        match &input {
            Input::Heard(_) => self.counts.heartbeats += 1,
            Input::Joined(_) | Input::Finished { .. } => self.counts.inputs += 1,
            _ => {}
        }
        let state = self.state.take().ok_or("the state was lost")?;
        let Step {
            state, actions, why, ..
        } = step(self.now, state, input);
        self.state = Some(state);
        for action in actions {
            match action {
                Action::Launch { worker, .. } => self.starting.push(worker),
                Action::Send(..) => self.counts.sends += 1,
                Action::Resolve(_, end) => self.ends.push(end),
                Action::Kill(worker) => return Err(format!("{worker} is killed: {why}").into()),
                Action::Refuse(_, why) => return Err(why.into()),
            }
        }
        Ok(why)
    }

    /// Whoever was launched joins, in random order.
    fn join_all(&mut self) -> Done {
        let mut starting = std::mem::take(&mut self.starting);
        shuffle(&mut starting, &mut self.random);
        for worker in starting {
            self.now = self.now + Duration::from_micros(100);
            self.members
                .insert(worker, self.now + Options::launched(SIZE).silent_after / 6);
            self.feed(Input::Joined(Join {
                worker,
                slot: None,
                ranks: 1,
                node: false,
                pid: 1,
                host: "host".to_owned(),
                address: "10.0.0.1".to_owned(),
                ports: vec![1],
                card: Vec::new(),
            }))?;
        }
        self.expect(&Phase::Ready)
    }

    fn expect(&self, phase: &Phase) -> Done {
        let is = self.state.as_ref().map(State::phase);
        match is == Some(phase) {
            true => Ok(()),
            false => Err(format!("{is:?} instead of {phase:?}").into()),
        }
    }

    /// Time passes: members that are due beat, and the driver looks at the clock when it should.
    fn pass(&mut self, length: Duration) -> Done {
        self.now = self.now + length;
        let every = Options::launched(SIZE).silent_after / 6;
        let due = self.members.iter().filter(|(_, next)| **next <= self.now);
        for worker in due.map(|(worker, _)| *worker).collect::<Vec<_>>() {
            self.members.insert(worker, self.now + every);
            self.feed(Input::Heard(worker))?;
        }
        let deadline = self.state.as_ref().and_then(State::deadline);
        if deadline.is_some_and(|deadline| deadline <= self.now) {
            self.feed(Input::Tick)?;
        }
        Ok(())
    }

    fn submit(&mut self) -> Done {
        self.tasks += 1;
        self.feed(Input::Submit {
            task: TaskId(self.tasks),
            world: SIZE,
            least: SIZE,
            restarts: 0,
            patient: false,
        })?;
        self.expect(&Phase::Running)
    }

    /// Every member that is left ends its part, in random order, and the task ends as it should.
    fn finish(&mut self, outcome: &Outcome, succeeds: bool) -> Done {
        let mut members: Vec<WorkerId> = self.members.keys().copied().collect();
        shuffle(&mut members, &mut self.random);
        for worker in members {
            self.feed(Input::Finished {
                worker,
                task: TaskId(self.tasks),
                outcome: outcome.clone(),
                ports: vec![1],
            })?;
        }
        match self.ends.pop() {
            Some(end) if end.is_ok() == succeeds => Ok(()),
            other => Err(format!("the task ended with {other:?}").into()),
        }
    }

    fn kill(&mut self, count: u32) -> Done {
        for _ in 0..count {
            let index = self.random.below(self.members.len() as u64) as usize;
            let victim = self.members.keys().copied().nth(index).ok_or("nobody is left")?;
            self.members.remove(&victim);
            self.feed(Input::Exited {
                worker: victim,
                exit: Exit::Signal(9),
                log_tail: String::new(),
            })?;
        }
        Ok(())
    }

    /// Some die in a task, some between tasks; the cluster forms again and the next task succeeds.
    fn round(&mut self, deaths: u32) -> Done {
        self.submit()?;
        self.kill(deaths / 2)?;
        self.finish(&Outcome::Cancelled, false)?;
        self.join_all()?;
        self.kill(deaths - deaths / 2)?;
        self.join_all()?;
        self.submit()?;
        self.finish(&Outcome::Ok, true)?;
        Ok(())
    }
}

impl Cluster {
    /// Tasks without faults; says how many messages other than heartbeats came or went between the first step
    /// and the last of each.
    fn good_path(&mut self) -> Result<u64, Box<dyn Error>> {
        let mut within_steps = 0;
        for _ in 0..TASKS {
            self.submit()?;
            let before = self.counts.inputs + self.counts.sends;
            for _ in 0..STEPS {
                self.pass(STEP)?;
            }
            within_steps += self.counts.inputs + self.counts.sends - before;
            self.finish(&Outcome::Ok, true)?;
        }
        Ok(within_steps)
    }

    fn stop(&mut self) -> Done {
        self.feed(Input::Stop {
            why: "done".to_owned(),
        })?;
        for worker in std::mem::take(&mut self.members).into_keys() {
            self.feed(Input::Exited {
                worker,
                exit: Exit::Code(0),
                log_tail: String::new(),
            })?;
        }
        self.expect(&Phase::Over)
    }
}

fn shuffle(workers: &mut [WorkerId], random: &mut Random) {
    for last in (1..workers.len()).rev() {
        workers.swap(last, random.below(last as u64 + 1) as usize);
    }
}

fn main() -> Done {
    let clock = SystemClock::start();
    let mut cluster = Cluster::new();
    cluster.feed(Input::Start)?;
    cluster.join_all()?;
    let joined = clock.now();
    println!("{SIZE} workers joined: {joined} of real time");

    let before = std::mem::take(&mut cluster.counts);
    let within_steps = cluster.good_path()?;
    let worked = clock.now();
    let good = std::mem::replace(&mut cluster.counts, before);
    println!(
        "{TASKS} tasks of {STEPS} steps on {SIZE} workers: {}",
        seconds(worked - joined)
    );
    let per = |count: u64, times: u64| count as f64 / (times * u64::from(SIZE)) as f64;
    println!(
        "  per task and worker: {} message to it, {} from it (the task, and its end)",
        per(good.sends, TASKS),
        per(good.inputs, TASKS)
    );
    println!(
        "  per step and worker: {} messages, heartbeats aside (steps are time to the coordinator, which has no message for them)",
        per(within_steps, TASKS * u64::from(STEPS))
    );
    println!(
        "  heartbeats: {} per worker and simulated second",
        per(
            good.heartbeats,
            TASKS * u64::from(STEPS) * STEP.as_millis() as u64
        ) * 1000.0
    );

    for _ in 0..ROUNDS {
        cluster.round(LOST / ROUNDS)?;
    }
    let lost = clock.now();
    println!(
        "{LOST} deaths, half of them in tasks, and {} re-forms: {}",
        2 * ROUNDS,
        seconds(lost - worked)
    );
    cluster.stop()?;
    println!("all over: {} of real time in total", clock.now());
    match within_steps {
        0 => Ok(()),
        count => Err(format!("{count} messages within steps").into()),
    }
}

fn seconds(length: Duration) -> String {
    format!("{:.3} s", length.as_secs_f64())
}
