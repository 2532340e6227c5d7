//! One run, from its first step to what it leaves behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use grampus_core::{Clock, SystemClock};

use super::driver::{Driver, Event};
use super::error::ChaosError;
use super::fault::{Kind, Plan};
use super::leftover::{left_behind, shared_memory};
use super::measure::{Figures, Struck, figures};
use super::place::{Network, Place};
use super::process::{marked, signal};

/// Nothing that a run does takes so long; whatever has not come by then does not come.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Lines of what a driver said last that are shown where it failed.
const LAST_LINES: usize = 15;

/// What all runs have in common.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The interpreter.
    pub python: PathBuf,
    /// How many workers.
    pub workers: usize,
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

/// Rows by the books of the run itself.
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
    let outcome = play(setting, &plan, None)?;
    let why = || ChaosError::Undisturbed(outcome.broken.join("; "));
    let made = outcome.made.clone();
    made.filter(|_| outcome.broken.is_empty()).ok_or_else(why)
}

/// Plays a plan; what is made must be as `wanted`.
///
/// # Errors
/// Where it cannot be played. A broken promise is no error, it is part of the outcome.
pub fn play(setting: &Setting, plan: &Plan, wanted: Option<&Made>) -> Result<Outcome, ChaosError> {
    let small_disk = plan.faults.iter().any(|fault| fault.kind == Kind::DiskFull);
    let place = Place::new(small_disk, if plan.network { setting.workers } else { 0 })?;
    let memory = shared_memory();
    let mut run = Run::start(setting, &place)?;
    let played = run.play(plan);
    let mut outcome = run.outcome();
    if let (Some(wanted), Some(made)) = (wanted, &outcome.made) {
        let differences = made.differences(wanted);
        outcome.equal = differences.is_empty();
        outcome.broken.extend(differences);
    }
    outcome.broken.extend(
        left_behind(&place, &memory, &run.clock)
            .into_iter()
            .map(|what| format!("left behind: {what}")),
    );
    for pid in marked(&place.mark()) {
        signal(pid, rustix::process::Signal::KILL);
    }
    played.map(|()| outcome)
}

/// A run while it is played.
pub(super) struct Run<'a> {
    setting: &'a Setting,
    pub(super) place: &'a Place,
    pub(super) clock: SystemClock,
    pub(super) driver: Driver,
    /// The last step that was heard of.
    pub(super) step: u64,
    pub(super) struck: Vec<Struck>,
    pub(super) broken: Vec<String>,
    end: Option<Event>,
    gone: bool,
    /// Where this driver began: the step, parts that were computed until then, and faults.
    began: (Option<u64>, u64, usize),
}

impl<'a> Run<'a> {
    fn start(setting: &'a Setting, place: &'a Place) -> Result<Run<'a>, ChaosError> {
        let clock = SystemClock::start();
        Ok(Run {
            setting,
            place,
            clock,
            driver: driver(setting, place, clock, false)?,
            step: 0,
            struck: Vec::new(),
            broken: Vec::new(),
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
            if !self.reaches(|run| run.step >= target)? || self.is_over() {
                break;
            }
            self.pass(fault.delay);
            if self.is_over() {
                break;
            }
            self.strike(fault)?;
            if !self.reaches(|run| run.is_made_good())? {
                let told = self.story();
                let kind = fault.kind;
                self.broken
                    .push(format!("{kind} was not made good within {PATIENCE:?}: {told}"));
                return Ok(());
            }
        }
        if self.reaches(|run| run.gone)? {
            self.finish();
        } else {
            self.broken.push(format!(
                "the run did not end within {PATIENCE:?} after its last fault"
            ));
        }
        Ok(())
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
    fn story(&self) -> String {
        let Some(struck) = self.struck.last() else {
            return "nothing was heard".to_owned();
        };
        let told = struck.heard.iter().map(|heard| {
            let after = heard.at.since(struck.at).as_secs_f64();
            format!("\n    {after:.3} s after it: {:?}", heard.event)
        });
        told.collect()
    }

    /// Whether the last fault is made good, or never will be.
    fn is_made_good(&self) -> bool {
        let Some(struck) = self.struck.last() else {
            return true;
        };
        if self.is_over() {
            return true;
        }
        if struck.kind.loses_workers() || struck.noticed.is_some() {
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
        let deadline = self.clock.now() + PATIENCE;
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
            Event::Begin { step } => {
                self.step = *step;
                self.began.0.get_or_insert(*step);
            }
            Event::Steps { step } | Event::Recovered { step } => self.step = *step,
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
        if self.end.is_some() && !self.audit() {
            self.broken
                .push("the ledger does not prove that each row was used once".to_owned());
        }
    }

    fn audit(&self) -> bool {
        let mut command = Command::new(&self.setting.python);
        command
            .args(["-m", "grampus", "audit"])
            .arg(self.place.work().join("run"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    /// What the drivers of this run have said on their error output.
    fn said(&self) -> String {
        fs::read_to_string(self.place.work().join("errors")).unwrap_or_default()
    }

    fn parts(&self) -> u64 {
        fs::metadata(self.place.work().join("parts")).map_or(0, |meta| meta.len())
    }

    fn outcome(&mut self) -> Outcome {
        let mut outcome = Outcome {
            broken: std::mem::take(&mut self.broken),
            ..Outcome::default()
        };
        for (number, struck) in self.struck.iter().enumerate() {
            let found = figures(struck);
            let told = format!("fault {number}, {} at step {},", struck.kind, struck.step);
            if found.back > 0 && struck.noticed.is_none() {
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
        for used in samples {
            outcome.rows.lost += rows.saturating_sub(used);
            outcome.rows.doubled += used.saturating_sub(rows);
        }
        if outcome.rows != Rows::default() {
            outcome
                .broken
                .push(format!("rows were lost or doubled: {:?}", outcome.rows));
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
    ]);
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
