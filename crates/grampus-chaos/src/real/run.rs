//! One run, from its first step to what it leaves behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use grampus_core::{Clock, SystemClock};

use super::driver::{Driver, Event, Heard};
use super::error::ChaosError;
use super::fault::{Fault, Kind, Plan};
use super::flood::Flood;
use super::ledger;
use super::leftover::{Leftovers, left_behind, shared_memory};
use super::logs::LogFolder;
use super::measure::{Figures, Struck, figures};
use super::network::{Network, namespaces};
use super::place::Place;
use super::process::{marked, signal};

/// Nothing that is asked of a run takes so long, and no step; whatever has not come by then does not come.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// A driver imports, starts its workers and begins within this, on a machine that is busy with others.
const BEGUN_WITHIN: Duration = Duration::from_secs(300);
/// Lines of what a driver said last that are shown where it failed.
const LAST_LINES: usize = 15;

/// What all runs have in common.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The interpreter.
    pub python: PathBuf,
    /// How many workers.
    pub workers: usize,
    /// How many hosts they are on, where they are on hosts; by default as many as workers.
    pub hosts: Option<usize>,
    /// Parts of a step, which decide about its bits.
    pub lanes: usize,
    /// How many steps, at least.
    pub steps: u64,
    /// Silence after which a worker is given up.
    pub heartbeat_timeout: Duration,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The faults that came, and their figures.
    pub faults: Vec<(Kind, Figures)>,
    /// What it made, where the run ended.
    pub made: Option<Made>,
    /// Whether that is what the undisturbed run made.
    pub equal: bool,
    /// Steps that were computed twice, in lanes; and the workers whose loss may excuse one step each.
    pub repeated: Repeated,
    /// Rows that some epoch did not use, and those it used twice.
    pub rows: Rows,
    /// Promises that were broken.
    pub broken: Vec<String>,
    /// What was left behind.
    pub left: Leftovers,
}

/// What a run is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    /// The hash of the weights.
    pub digest: String,
    /// Losses and metrics, epoch by epoch.
    pub history: BTreeMap<String, Vec<f64>>,
}

impl Made {
    /// In what it differs from what the undisturbed run made.
    pub fn differences(&self, undisturbed: &Made) -> Vec<String> {
        let mut found = Vec::new();
        if self.digest != undisturbed.digest {
            let (now, wanted) = (&self.digest, &undisturbed.digest);
            found.push(format!("the weights differ: {now}, undisturbed {wanted}"));
        }
        for (name, wanted) in &undisturbed.history {
            let now = self.history.get(name);
            if now != Some(wanted) {
                found.push(format!("{name} differs: {now:?}, undisturbed {wanted:?}"));
            }
        }
        found
    }
}

/// How much was computed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeated {
    /// Parts of steps.
    pub parts: u64,
    /// Parts that a step has.
    pub lanes: u64,
    /// Workers that were lost.
    pub losses: u64,
}

/// Rows by the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Not used.
    pub lost: u64,
    /// Used twice.
    pub doubled: u64,
}

/// What a run without faults makes.
///
/// # Errors
/// Where it cannot be played, or breaks a promise all by itself.
pub fn undisturbed(setting: &Setting) -> Result<Made, ChaosError> {
    let plan = Plan {
        faults: Vec::new(),
        network: false,
    };
    let outcome = play(setting, &plan, u64::MAX - 1, None)?;
    let why = || ChaosError::Undisturbed(outcome.broken.join("; "));
    let made = outcome.made.clone();
    made.filter(|_| outcome.broken.is_empty()).ok_or_else(why)
}

/// Plays a plan, as the run of a number; what is made must be as `wanted`.
///
/// # Errors
/// Where it cannot be played. A broken promise is no error, it is part of the outcome.
pub fn play(
    setting: &Setting,
    plan: &Plan,
    number: u64,
    wanted: Option<&Made>,
) -> Result<Outcome, ChaosError> {
    let small_disk = plan.faults.iter().any(|fault| fault.kind == Kind::DiskFull);
    let hosts = if plan.network {
        setting.hosts.unwrap_or(setting.workers)
    } else {
        0
    };
    let place = Place::new(small_disk, hosts, number)?;
    let memory = shared_memory();
    let mut run = Run::start(setting, &place)?;
    let played = run.play(plan);
    let mut outcome = run.outcome();
    if let (Some(wanted), Some(made)) = (wanted, &outcome.made) {
        let differences = made.differences(wanted);
        outcome.equal = differences.is_empty();
        outcome.broken.extend(differences);
    }
    outcome.left = left_behind(&place, &memory, &run.clock);
    drop(run);
    for pid in marked(&place.mark()) {
        signal(pid, rustix::process::Signal::KILL);
    }
    let made = place
        .network
        .as_ref()
        .map(|network| network.hosts().to_vec())
        .unwrap_or_default();
    drop(place);
    outcome.left.namespaces = namespaces()
        .into_iter()
        .filter(|name| made.contains(name))
        .collect();
    let left = outcome.left.all().map(|what| format!("left behind: {what}"));
    outcome.broken.extend(left.collect::<Vec<_>>());
    played.map(|()| outcome)
}

/// A run while it is played.
pub(super) struct Run<'a> {
    pub(super) setting: &'a Setting,
    pub(super) place: &'a Place,
    pub(super) clock: SystemClock,
    pub(super) driver: Driver,
    pub(super) logs: LogFolder,
    pub(super) flood: Option<Flood>,
    /// The last step that was heard of.
    pub(super) step: u64,
    /// Workers that are in the run.
    present: u64,
    pub(super) struck: Vec<Struck>,
    pub(super) broken: Vec<String>,
    rows: Rows,
    end: Option<Event>,
    gone: bool,
    /// Where this driver began: the step, parts that were computed until then, and faults.
    began: (Option<u64>, u64, usize),
}

impl<'a> Run<'a> {
    fn start(setting: &'a Setting, place: &'a Place) -> Result<Run<'a>, ChaosError> {
        let clock = SystemClock::start();
        let logs = place.logs(setting.workers)?;
        Ok(Run {
            setting,
            place,
            clock,
            driver: driver(setting, place, clock, false)?,
            logs,
            flood: None,
            step: 0,
            present: 0,
            struck: Vec::new(),
            broken: Vec::new(),
            rows: Rows::default(),
            end: None,
            gone: false,
            began: (None, 0, 0),
        })
    }

    /// Starts another driver, which goes on from the last checkpoint.
    pub(super) fn resume(&mut self) -> Result<(), ChaosError> {
        self.began = (None, self.parts(), self.struck.len());
        self.driver = driver(self.setting, self.place, self.clock, true)?;
        self.gone = false;
        Ok(())
    }

    fn play(&mut self, plan: &Plan) -> Result<(), ChaosError> {
        for fault in &plan.faults {
            let target = self.step + fault.after_steps;
            if !self.trains_until(|run| run.step >= target)? || self.is_over() {
                break;
            }
            self.pass(fault.delay);
            if self.is_over() {
                break;
            }
            self.strike(fault)?;
            let waits = if self.reaches(|run| run.is_made_good())? {
                self.wait_for_all(fault)?
            } else {
                Some("was not made good")
            };
            if let Some(what) = waits {
                self.hang(fault, what);
                return Ok(());
            }
        }
        if self.trains_until(|run| run.gone)? {
            self.finish();
        } else {
            self.broken.push(format!(
                "the run stood still at step {}: {}",
                self.step,
                self.said()
            ));
        }
        Ok(())
    }

    /// Waits until workers that were lost with a host are back, so that the next fault finds all of them; what it waits
    /// for in vain. On one machine, places are filled again at once or not at all.
    fn wait_for_all(&mut self, fault: &Fault) -> Result<Option<&'static str>, ChaosError> {
        let all = self.setting.workers as u64;
        let needed = self.setting.hosts.is_some() && fault.kind != Kind::CutForGood;
        if needed && self.present < all {
            // They need seconds, in which the run would come to its end.
            self.place.tell("slow", "")?;
            let held = self.reaches(|run| run.present >= all || run.is_over())?;
            self.place.untell("slow");
            if !held {
                return Ok(Some("took workers that did not come back"));
            }
        }
        self.flood = None;
        let now = self.clock.now();
        if let Some(struck) = self
            .struck
            .last_mut()
            .filter(|struck| needed && struck.victims > 0)
        {
            struck.whole = Some(now);
        }
        Ok(None)
    }

    /// What a fault asks for did not come in time.
    fn hang(&mut self, fault: &Fault, what: &str) {
        let told = self.story();
        self.broken
            .push(format!("{} {what} within {PATIENCE:?}: {told}", fault.kind));
        if let Some(struck) = self.struck.last_mut() {
            struck.hung = true;
        }
    }

    /// Listens until a condition holds, however long that takes while steps are done.
    fn trains_until(&mut self, condition: impl Fn(&Run) -> bool) -> Result<bool, ChaosError> {
        loop {
            let before = self.step;
            let held = self.reaches(|run| condition(run) || run.step > before)?;
            if !held || condition(self) || self.gone {
                return Ok(held);
            }
        }
    }

    /// Listens until a condition holds; a run that a full disk has ended is begun again meanwhile.
    fn reaches(&mut self, condition: impl Fn(&Run) -> bool) -> Result<bool, ChaosError> {
        let held = self.until(&condition);
        if !self.ended_by_full_disk() {
            return Ok(held);
        }
        let now = self.clock.now();
        if let Some(struck) = self.struck.last_mut() {
            struck.noticed = Some(now);
        }
        self.resume()?;
        Ok(self.until(condition))
    }

    fn ended_by_full_disk(&self) -> bool {
        let last = self.struck.last();
        let full = last.is_some_and(|struck| struck.kind == Kind::DiskFull && struck.noticed.is_none());
        self.gone && self.end.is_none() && full && self.said().contains("CheckpointError")
    }

    /// What was heard since the last fault, for whoever looks for what went wrong.
    pub(super) fn story(&self) -> String {
        let Some(struck) = self.struck.last() else {
            return "nothing was heard".to_owned();
        };
        // Of steps in a row, the last one tells enough.
        let is_steps =
            |heard: Option<&Heard>| heard.is_some_and(|heard| matches!(heard.event, Event::Steps { .. }));
        let following = struck.heard.iter().skip(1).map(Some).chain([None]);
        let pairs = struck.heard.iter().zip(following);
        let kept = pairs.filter(|(heard, next)| !(is_steps(Some(heard)) && is_steps(*next)));
        let told = kept.map(|(heard, _)| {
            let after = heard.at.since(struck.at).as_secs_f64();
            format!("\n    {after:.3} s after it: {:?}", heard.event)
        });
        told.collect()
    }

    /// Whether the last fault is made good, or never will be.
    pub(super) fn is_made_good(&self) -> bool {
        let Some(struck) = self.struck.last() else {
            return true;
        };
        if self.is_over() {
            return true;
        }
        let lost = struck
            .heard
            .iter()
            .any(|heard| matches!(heard.event, Event::Lost { .. }));
        if lost || struck.kind.loses_workers() || struck.noticed.is_some() {
            return figures(struck).recovery.is_some();
        }
        struck
            .heard
            .iter()
            .any(|heard| heard.at > struck.last && matches!(heard.event, Event::Steps { .. }))
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    fn is_over(&self) -> bool {
        self.gone || self.end.is_some()
    }

    /// Listens until a condition holds; false where it does not in time.
    pub(super) fn until(&mut self, condition: impl Fn(&Run) -> bool) -> bool {
        self.until_within(PATIENCE, condition)
    }

    pub(super) fn until_within(&mut self, patience: Duration, condition: impl Fn(&Run) -> bool) -> bool {
        let has_begun = self.began.0.is_some();
        let deadline = self.clock.now() + if has_begun { patience } else { BEGUN_WITHIN };
        while !condition(self) && !self.gone {
            let left = deadline.since(self.clock.now());
            if left.is_zero() {
                return false;
            }
            self.hear(left);
        }
        true
    }

    /// Lets time pass, and listens.
    pub(super) fn pass(&mut self, length: Duration) {
        let deadline = self.clock.now() + length;
        loop {
            let left = deadline.since(self.clock.now());
            if left.is_zero() {
                return;
            }
            self.hear(left);
        }
    }

    fn hear(&mut self, within: Duration) {
        let Some(heard) = self.driver.hear(within) else {
            return;
        };
        match &heard.event {
            Event::Begin { step, workers } => {
                (self.step, self.present) = (*step, *workers);
                self.began.0.get_or_insert(*step);
            }
            Event::Recovered { step, workers } => (self.step, self.present) = (*step, *workers),
            Event::Steps { step } => self.step = *step,
            Event::End { .. } => self.end = Some(heard.event.clone()),
            Event::Gone => self.gone = true,
            Event::Lost { .. } | Event::Note { .. } => {}
        }
        if let Some(struck) = self.struck.last_mut() {
            struck.heard.push(heard);
        }
    }

    /// The driver has said all: how did it end?
    fn finish(&mut self) {
        let status = self.driver.reap(PATIENCE, &self.clock);
        if self.end.is_none() || status != "exit status: 0" {
            let said = self.said();
            let lines: Vec<&str> = said.lines().collect();
            let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n    ");
            self.broken.push(format!(
                "the driver ended at step {} with {status}:\n    {last}",
                self.step
            ));
        }
        if self.end.is_some() {
            let (rows, verdict) = ledger::audit(&self.setting.python, &self.ledger());
            self.rows = rows;
            if let Err(why) = verdict {
                self.broken.push(format!(
                    "the ledger does not prove that each row was used once: {why}"
                ));
            }
        }
    }

    /// The folder of the run, in which its ledger is.
    pub(super) fn ledger(&self) -> PathBuf {
        self.place.work().join("run")
    }

    /// What the drivers of this run have said on their error output.
    fn said(&self) -> String {
        fs::read_to_string(self.place.work().join("errors")).unwrap_or_default()
    }

    /// How many committed steps a fault may take back. A killed driver resumes from a checkpoint. Between hosts, the
    /// worker that reports a step may be lost before the sums of that step have reached the others.
    fn may_take_back(&self, struck: &Struck) -> u64 {
        match struck.noticed {
            Some(_) => u64::MAX,
            None => u64::from(self.setting.hosts.is_some() && struck.kind.loses_workers()),
        }
    }

    fn parts(&self) -> u64 {
        fs::metadata(self.place.work().join("parts")).map_or(0, |meta| meta.len())
    }

    fn outcome(&mut self) -> Outcome {
        let mut outcome = Outcome {
            broken: std::mem::take(&mut self.broken),
            ..Outcome::default()
        };
        let repeated = ledger::repeated(&self.ledger());
        for (number, struck) in self.struck.iter().enumerate() {
            let next = self.struck.get(number + 1).map_or(u64::MAX, |next| next.attempts);
            let mut found = figures(struck);
            let attempts = repeated
                .iter()
                .filter(|(attempt, _)| **attempt > struck.attempts && **attempt <= next);
            found.repeated = attempts.map(|(_, count)| count).sum();
            let told = format!("fault {number}, {} at step {},", struck.kind, struck.step);
            if found.back > self.may_take_back(struck) {
                outcome
                    .broken
                    .push(format!("{told} took {} committed steps", found.back));
            }
            if found.losses > struck.victims {
                let (losses, victims) = (found.losses, struck.victims);
                outcome
                    .broken
                    .push(format!("{told} hit {victims} workers, and {losses} were lost"));
            }
            outcome.faults.push((struck.kind, found));
        }
        let Some(Event::End {
            digest,
            history,
            samples,
            rows,
            lanes,
            steps,
        }) = self.end.take()
        else {
            return outcome;
        };
        outcome.rows = self.rows;
        if outcome.rows != Rows::default() || samples.iter().any(|used| *used != rows) {
            let rows = outcome.rows;
            outcome.broken.push(format!(
                "rows were lost or doubled: {rows:?} by the ledger, {samples:?} used in the epochs"
            ));
        }
        let (from, before, faults) = self.began;
        let losses = self.struck[faults..].iter().map(|struck| struck.victims).sum();
        let parts = (self.parts() - before).saturating_sub(lanes * (steps - from.unwrap_or(0)));
        outcome.repeated = Repeated { parts, lanes, losses };
        // One step each; and a worker that is cut off may have gone one step further than the others, who do not
        // know of it.
        let beyond = lanes.div_ceil(self.setting.workers as u64);
        if parts > (lanes + beyond) * losses {
            outcome.broken.push(format!(
                "{parts} parts of {lanes} a step were repeated for {losses} losses"
            ));
        }
        outcome.made = Some(Made { digest, history });
        outcome
    }
}

fn driver(setting: &Setting, place: &Place, clock: SystemClock, resume: bool) -> Result<Driver, ChaosError> {
    let mut command = match &place.network {
        None => Command::new(&setting.python),
        Some(network) => {
            let mut command = Command::new("ip");
            command
                .args(["netns", "exec", network.driver()])
                .arg(&setting.python);
            command
        }
    };
    command
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/drivers/train.py"))
        .arg(place.work());
    command.args([
        "--workers",
        &setting.workers.to_string(),
        "--steps",
        &setting.steps.to_string(),
        "--lanes",
        &setting.lanes.to_string(),
    ]);
    command.arg("--logs").arg(place.log_folder());
    command.args([
        "--heartbeat-timeout",
        &setting.heartbeat_timeout.as_secs_f64().to_string(),
    ]);
    if let Some(network) = &place.network {
        command
            .args(["--address", Network::DRIVER])
            .arg("--hosts")
            .args(network.workers());
    }
    if resume {
        command.arg("--resume");
    }
    command.current_dir(place.work());
    command
        .env("XDG_RUNTIME_DIR", place.runtime())
        .env("TMPDIR", place.temporary());
    // Torch keeps a cache in the temporary folder, and nothing may be left there.
    command.env("TORCHINDUCTOR_CACHE_DIR", place.work().join("inductor"));
    Driver::start(command, &place.work().join("errors"), clock)
}
