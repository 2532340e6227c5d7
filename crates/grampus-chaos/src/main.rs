//! `grampus-chaos`: disturbs real runs, and prints what that cost. Exit status 1 where a promise was broken.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use grampus_chaos::real::measure::Tally;
use grampus_chaos::real::{
    ChaosError, Hosts, Kind, Leftovers, Made, Outcome, Plan, Setting, Sweeper, play, slow_links, sweep,
    table, unavailable, undisturbed, wait_for_end,
};

/// Parts of a step, where the workers are not more.
const LANES: usize = 4;

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
    /// Workers of a run on one machine, or each on a host of its own.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(3..=64), conflicts_with = "hosts")]
    workers: u64,
    /// Hosts and workers on each, such as 2x2; of several, runs take turns. All kinds of faults come to all runs.
    #[arg(long, value_delimiter = ',')]
    hosts: Vec<Hosts>,
    /// Runs that are played at the same time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=16))]
    at_once: u64,
    /// Seconds of silence after which a worker is given up.
    #[arg(long, default_value_t = 1.5)]
    heartbeat_timeout: f64,
    /// The interpreter, which must have grampus and torch.
    #[arg(long, default_value = ".venv/bin/python")]
    python: PathBuf,
    /// Remove what dead processes of this program have left, once this one has ended, and play nothing.
    #[arg(long, value_name = "PID", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    sweep: Option<i32>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(pid) = arguments.sweep {
        wait_for_end(pid);
        sweep().iter().for_each(|what| println!("removed {what}"));
        return ExitCode::SUCCESS;
    }
    match disturb(&arguments) {
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
    sweep()
        .iter()
        .for_each(|what| println!("a dead run had left {what}"));
    let _sweeper = Sweeper::start()?;
    let kinds = playable(&arguments.kinds);
    if kinds.is_empty() {
        return Err(ChaosError::NoKinds);
    }
    if let Some(how) = slow_links().filter(|_| kinds.contains(&Kind::Delay)) {
        println!("slow links: {how}");
    }
    let settings = settings(arguments);
    let wanted = undisturbed(&settings[0])?;
    println!("undisturbed: {}", wanted.digest);
    let first = arguments.run.unwrap_or(0);
    let chaos = Chaos {
        arguments,
        kinds: &kinds,
        settings: &settings,
        wanted: &wanted,
        state: Mutex::new(State {
            next: first,
            ..State::default()
        }),
    };
    let at_once = if arguments.run.is_some() {
        1
    } else {
        arguments.at_once
    };
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| chaos.play_runs());
        }
    });
    let state = chaos.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = state.failed {
        return Err(error);
    }
    state.totals.print(&settings);
    println!("repeat a run: {}", repeat(arguments, &kinds, first));
    Ok(state.totals.broken == 0)
}

/// How runs are made, in turn.
fn settings(arguments: &Arguments) -> Vec<Setting> {
    let python = std::path::absolute(&arguments.python).unwrap_or_else(|_| arguments.python.clone());
    let sizes: Vec<(usize, Option<usize>)> = match arguments.hosts.as_slice() {
        [] => vec![(arguments.workers as usize, None)],
        all => all
            .iter()
            .map(|hosts| (hosts.workers(), Some(hosts.count)))
            .collect(),
    };
    // The same for all, so that all are held against one undisturbed run.
    let most = sizes.iter().map(|(workers, _)| *workers).max();
    let lanes = most.unwrap_or(LANES).max(LANES);
    let made = |(workers, hosts): (usize, Option<usize>)| Setting {
        python: python.clone(),
        workers,
        hosts,
        lanes,
        steps: Plan::steps(arguments.per_run as usize),
        heartbeat_timeout: Duration::from_secs_f64(arguments.heartbeat_timeout),
    };
    sizes.into_iter().map(made).collect()
}

/// Runs that are played, some of them at the same time.
struct Chaos<'a> {
    arguments: &'a Arguments,
    kinds: &'a [Kind],
    settings: &'a [Setting],
    wanted: &'a Made,
    state: Mutex<State>,
}

/// How far it has come.
#[derive(Default)]
struct State {
    next: u64,
    /// Faults of runs that are under way.
    under_way: usize,
    totals: Totals,
    failed: Option<ChaosError>,
}

impl Chaos<'_> {
    fn play_runs(&self) {
        while let Some((run, plan)) = self.next() {
            let setting = &self.settings[run as usize % self.settings.len()];
            let outcome = play(setting, &plan, run, Some(self.wanted));
            let repeat = repeat(self.arguments, self.kinds, run);
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.under_way -= plan.faults.len();
            match outcome {
                Ok(outcome) => state.totals.add(plan.faults.len(), outcome, &repeat),
                Err(error) => state.failed = Some(error),
            }
        }
    }

    /// The next run, where there are not faults enough.
    fn next(&self) -> Option<(u64, Plan)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Arguments {
            seed,
            per_run,
            faults,
            ..
        } = *self.arguments;
        let all = state.totals.tally.faults() + state.under_way >= faults;
        let once = self.arguments.run.is_some() && state.totals.runs + state.under_way as u64 > 0;
        if all || once || state.failed.is_some() || state.totals.has_no_faults {
            return None;
        }
        let run = state.next;
        let draw = match self.arguments.hosts.is_empty() {
            true => Plan::draw,
            false => Plan::draw_on_hosts,
        };
        let plan = draw(seed, run, self.kinds, per_run as usize);
        state.next += 1;
        state.under_way += plan.faults.len();
        Some((run, plan))
    }
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
        hosts,
        heartbeat_timeout,
        ..
    } = arguments;
    let names = names.join(",");
    let hosts: Vec<String> = hosts.iter().map(Hosts::to_string).collect();
    let place = match hosts.as_slice() {
        [] => format!("--workers {workers}"),
        all => format!("--hosts {}", all.join(",")),
    };
    format!(
        "grampus-chaos --seed {seed} --run {run} --per-run {per_run} {place} --heartbeat-timeout {heartbeat_timeout} \
         --kinds {names}"
    )
}

/// Over all runs.
#[derive(Default)]
struct Totals {
    tally: Tally,
    runs: u64,
    /// Faults that were drawn for them; those that a run had no steps left for did not come.
    planned: usize,
    equal: u64,
    broken: usize,
    lost: u64,
    doubled: u64,
    repeated_steps: f64,
    losses: u64,
    left: Leftovers,
    /// A run was over before its first fault came: so would be the next.
    has_no_faults: bool,
}

impl Totals {
    fn add(&mut self, planned: usize, outcome: Outcome, repeat: &str) {
        self.runs += 1;
        self.planned += planned;
        self.broken += outcome.broken.len();
        self.equal += u64::from(outcome.equal);
        self.lost += outcome.rows.lost;
        self.doubled += outcome.rows.doubled;
        self.losses += outcome.repeated.losses;
        if outcome.repeated.lanes > 0 {
            self.repeated_steps += outcome.repeated.parts as f64 / outcome.repeated.lanes as f64;
        }
        self.has_no_faults |= outcome.faults.is_empty();
        self.tally.add(&outcome.faults, outcome.equal);
        let (runs, faults) = (self.runs, self.tally.faults());
        eprintln!("{runs} runs, {faults} faults, {} promises broken", self.broken);
        for what in &outcome.broken {
            println!("BROKEN: {what}\n  repeat it with: {repeat}");
        }
        self.left.add(outcome.left);
    }

    fn print(&self, settings: &[Setting]) {
        println!();
        for line in table::lines(&self.tally) {
            println!("{line}");
        }
        let places: Vec<String> = settings.iter().map(place).collect();
        println!(
            "\nfaults: {} of {} planned, in {} runs on {}",
            self.tally.faults(),
            self.planned,
            self.runs,
            places.join(" and ")
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
        println!("hangs: {}", self.tally.hangs());
        let Leftovers {
            processes,
            sockets,
            files,
            memory,
            namespaces,
        } = &self.left;
        println!(
            "left behind: {} processes, {} sockets, {} files, {} of shared memory, {} namespaces",
            processes.len(),
            sockets.len(),
            files.len(),
            memory.len(),
            namespaces.len()
        );
        println!("promises broken: {}", self.broken);
    }
}

/// Where a run is, in words.
fn place(setting: &Setting) -> String {
    let workers = setting.workers;
    match setting.hosts {
        None => format!("{workers} workers"),
        Some(hosts) => format!("{hosts} hosts with {} workers each", workers / hosts),
    }
}
