//! `grampus-chaos`: disturbs real runs, and prints what that cost. Exit status 1 where a promise was broken.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use grampus_chaos::real::measure::Tally;
use grampus_chaos::real::{ChaosError, Kind, Outcome, Plan, Setting, play, table, unavailable, undisturbed};

/// Disturb runs that train, and hold what comes out against a run without faults.
#[derive(Parser)]
#[command(name = "grampus-chaos")]
struct Arguments {
    /// How many faults, at least.
    #[arg(long, default_value_t = 50)]
    faults: usize,
    /// What is drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Play this run only.
    #[arg(long)]
    run: Option<u64>,
    /// Which faults; by default all that can be made here.
    #[arg(long, value_enum, value_delimiter = ',')]
    kinds: Vec<Kind>,
    /// Faults of one run.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100))]
    per_run: u64,
    /// Workers of a run.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(3..=64))]
    workers: u64,
    /// Seconds of silence after which a worker is given up.
    #[arg(long, default_value_t = 1.5)]
    heartbeat_timeout: f64,
    /// The interpreter, which must have grampus and torch.
    #[arg(long, default_value = ".venv/bin/python")]
    python: PathBuf,
}

fn main() -> ExitCode {
    match disturb(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("grampus-chaos: {error}");
            ExitCode::from(2)
        }
    }
}

/// Plays all runs, and says whether every promise was kept.
fn disturb(arguments: &Arguments) -> Result<bool, ChaosError> {
    let kinds = playable(&arguments.kinds);
    if kinds.is_empty() {
        return Err(ChaosError::NoKinds);
    }
    let per_run = arguments.per_run as usize;
    let python = std::path::absolute(&arguments.python).unwrap_or_else(|_| arguments.python.clone());
    let setting = Setting {
        python,
        workers: arguments.workers as usize,
        steps: Plan::steps(per_run),
        heartbeat_timeout: Duration::from_secs_f64(arguments.heartbeat_timeout),
    };
    let wanted = undisturbed(&setting)?;
    println!("undisturbed: {}", wanted.digest);
    let mut totals = Totals::default();
    let first = arguments.run.unwrap_or(0);
    for run in first.. {
        let plan = Plan::draw(arguments.seed, run, &kinds, per_run);
        let outcome = play(&setting, &plan, Some(&wanted))?;
        let repeat = repeat(arguments, &kinds, run);
        totals.add(&outcome, &repeat);
        let all = totals.tally.faults() >= arguments.faults || outcome.faults.is_empty();
        if arguments.run.is_some() || all {
            break;
        }
    }
    totals.print(&setting);
    println!("repeat a run: {}", repeat(arguments, &kinds, first));
    Ok(totals.broken == 0)
}

/// The kinds that can be played here; says why others cannot.
fn playable(asked: &[Kind]) -> Vec<Kind> {
    let mut kinds = if asked.is_empty() {
        Kind::value_variants().to_vec()
    } else {
        asked.to_vec()
    };
    for (kind, why) in unavailable(&kinds) {
        println!("left out: {kind}: {why}");
        kinds.retain(|known| *known != kind);
    }
    kinds
}

/// What to type to play a run once more.
fn repeat(arguments: &Arguments, kinds: &[Kind], run: u64) -> String {
    let names: Vec<String> = kinds.iter().map(Kind::to_string).collect();
    let Arguments {
        seed,
        per_run,
        workers,
        ..
    } = arguments;
    let names = names.join(",");
    format!("grampus-chaos --seed {seed} --run {run} --per-run {per_run} --workers {workers} --kinds {names}")
}

/// Over all runs.
#[derive(Default)]
struct Totals {
    tally: Tally,
    runs: u64,
    equal: u64,
    broken: usize,
    lost: u64,
    doubled: u64,
    repeated_steps: f64,
    losses: u64,
}

impl Totals {
    fn add(&mut self, outcome: &Outcome, repeat: &str) {
        self.runs += 1;
        self.broken += outcome.broken.len();
        self.equal += u64::from(outcome.equal);
        self.lost += outcome.rows.lost;
        self.doubled += outcome.rows.doubled;
        self.losses += outcome.repeated.losses;
        if outcome.repeated.lanes > 0 {
            self.repeated_steps += outcome.repeated.parts as f64 / outcome.repeated.lanes as f64;
        }
        for (kind, figures) in &outcome.faults {
            self.tally.add(*kind, figures.clone());
        }
        let (runs, faults) = (self.runs, self.tally.faults());
        eprintln!("{runs} runs, {faults} faults, {} promises broken", self.broken);
        for what in &outcome.broken {
            println!("BROKEN: {what}\n  repeat it with: {repeat}");
        }
    }

    fn print(&self, setting: &Setting) {
        println!();
        for line in table::lines(&self.tally) {
            println!("{line}");
        }
        println!(
            "\nfaults: {} in {} runs on {} workers",
            self.tally.faults(),
            self.runs,
            setting.workers
        );
        println!(
            "weights and history equal to the undisturbed run: {} of {} runs",
            self.equal, self.runs
        );
        println!("rows lost: {}, doubled: {}", self.lost, self.doubled);
        println!(
            "steps computed again: {:.2} for {} lost workers",
            self.repeated_steps, self.losses
        );
        println!("ledger: every run was audited");
        println!("promises broken: {}", self.broken);
    }
}
