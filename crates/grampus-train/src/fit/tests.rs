//! The loop, with a model that only counts.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use grampus_core::{Clock, ManualClock};

use super::*;
use crate::whereabouts::{Phase, Whereabouts};

type Log = Rc<RefCell<Vec<String>>>;

/// Ten rows an epoch in batches of four, on one lane: three steps.
struct Rows {
    log: Log,
    clock: Rc<ManualClock>,
    /// Of its batches.
    sizes: Vec<u64>,
    left: Vec<u64>,
    total_known: bool,
    /// It is known how many batches there are.
    steps_known: bool,
    /// The batch of which no row counts, if any.
    void: Option<usize>,
}

impl Rows {
    fn new(log: &Log, clock: &Rc<ManualClock>) -> Self {
        Self {
            log: Rc::clone(log),
            clock: Rc::clone(clock),
            sizes: vec![4, 4, 2],
            left: Vec::new(),
            total_known: true,
            steps_known: false,
            void: None,
        }
    }
}

impl Feed for Rows {
    type Batch = u64;
    type Error = String;

    fn steps(&mut self, _epoch: u64) -> Result<Option<u64>, String> {
        Ok(self.steps_known.then_some(self.sizes.len() as u64))
    }

    fn open(&mut self, epoch: u64, step: u64) -> Result<(), String> {
        self.log.borrow_mut().push(format!("open {epoch} at {step}"));
        self.left = self.sizes.iter().skip(step as usize).rev().copied().collect();
        if !self.total_known && !self.steps_known {
            self.left.insert(0, 0);
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Batch<u64>>, String> {
        self.clock.advance(Duration::from_millis(10));
        let Some(rows) = self.left.pop() else {
            return Ok(None);
        };
        let number = self.sizes.len().checked_sub(self.left.len() + 1);
        let counts = f64::from(u8::from(self.void.is_none() || self.void != number));
        let part = |lane, rows| Part {
            lane,
            rows,
            weight: rows as f64 * counts,
            batch: (rows > 0).then_some(rows),
        };
        Ok(Some(Batch {
            total: self.total_known.then_some(Total {
                rows,
                weight: rows as f64 * counts,
            }),
            parts: vec![part(0, rows / 2), part(1, rows - rows / 2)],
        }))
    }
}

struct Counts {
    log: Log,
    clock: Rc<ManualClock>,
    shares: Vec<f64>,
    seeds: Vec<u64>,
    skipped: usize,
    /// Whether losses are said later, and how many are not said yet.
    late: bool,
    unknown: usize,
}

impl Model for Counts {
    type Batch = u64;
    type Error = String;

    fn train(&mut self, part: Part<u64>, share: f64, seed: u64) -> Result<(), String> {
        self.clock.advance(Duration::from_millis(15));
        self.shares.push(share);
        self.seeds.push(seed);
        assert_eq!(part.batch.is_some(), part.rows > 0);
        Ok(())
    }

    fn commit(&mut self) -> Result<Option<f64>, String> {
        match self.late {
            false => Ok(Some(0.5)),
            true => {
                self.unknown += 1;
                Ok(None)
            }
        }
    }

    fn skip(&mut self) -> Result<(), String> {
        self.skipped += 1;
        Ok(())
    }

    fn late(&mut self, wait: bool) -> Result<Vec<f64>, String> {
        // Who does not wait learns of all steps but the last.
        let told = self.unknown.saturating_sub(usize::from(!wait));
        self.unknown -= told;
        Ok(vec![0.5; told])
    }

    fn agree(&mut self, parts: &[Part<u64>]) -> Result<Total, String> {
        self.log.borrow_mut().push("agree".into());
        let rows = parts.iter().map(|part| part.rows).sum();
        Ok(Total {
            rows,
            weight: parts.iter().map(|part| part.weight).sum(),
        })
    }
}

#[derive(Default)]
struct Looks {
    log: Log,
    stop_at: Option<u64>,
    records: Vec<Record>,
    saved: Vec<Position>,
}

impl Watcher for Looks {
    type Error = String;

    fn epoch_begins(&mut self, at: &Position) -> Result<(), String> {
        self.log.borrow_mut().push(format!("epoch {} begins", at.epoch));
        Ok(())
    }

    fn step_ends(&mut self, at: &Position, _loss: Option<f64>) -> Result<Option<String>, String> {
        self.log.borrow_mut().push(format!("step {}", at.step));
        Ok((self.stop_at == Some(at.step)).then(|| "asked to".into()))
    }

    fn validate(&mut self, _at: &Position, record: &mut Record) -> Result<(), String> {
        record.add("val_accuracy", 0.9);
        record.score = Some("val_accuracy".into());
        Ok(())
    }

    fn epoch_ends(&mut self, at: &Position, record: &Record) -> Result<Option<String>, String> {
        self.log.borrow_mut().push(format!("epoch {} ends", at.epoch));
        self.records.push(record.clone());
        Ok(None)
    }

    fn save(&mut self, at: &Position, _why: &str) -> Result<(), String> {
        self.saved.push(*at);
        Ok(())
    }

    fn report(&mut self, progress: &Progress<'_>) -> Result<(), String> {
        let steps = progress.losses.len();
        self.log.borrow_mut().push(format!("report of {steps}"));
        Ok(())
    }
}

struct Ran {
    outcome: Outcome,
    log: Vec<String>,
    model: Counts,
    watcher: Looks,
    here: Whereabouts,
}

fn settings() -> Settings {
    Settings {
        seed: 7,
        first: Position::default(),
        epochs: Some(1),
        max_steps: None,
        end: None,
        goes_on: false,
        sums: false,
        save: None,
    }
}

fn run(settings: &Settings, at: Position, stop_at: Option<u64>, total_known: bool) -> Ran {
    run_with(settings, at, stop_at, total_known, false)
}

fn run_with(settings: &Settings, at: Position, stop_at: Option<u64>, total_known: bool, late: bool) -> Ran {
    let (log, clock) = (Log::default(), Rc::new(ManualClock::default()));
    let mut feed = Rows {
        total_known,
        ..Rows::new(&log, &clock)
    };
    let mut model = Counts {
        log: Rc::clone(&log),
        clock: Rc::clone(&clock),
        shares: Vec::new(),
        seeds: Vec::new(),
        skipped: 0,
        late,
        unknown: 0,
    };
    let mut watcher = Looks {
        log: Rc::clone(&log),
        stop_at,
        ..Looks::default()
    };
    let mut at = at;
    let here = Whereabouts::default();
    let outcome = fit(
        &mut model,
        &mut feed,
        &mut watcher,
        settings,
        &mut at,
        &*clock,
        &here,
    )
    .unwrap();
    let log = log.borrow().clone();
    Ran {
        outcome,
        log,
        model,
        watcher,
        here,
    }
}

#[test]
fn whoever_asks_is_told_what_the_loop_is_at() {
    let ran = run(&settings(), Position::default(), Some(2), true);
    let now = ManualClock::default();
    now.advance(Duration::from_millis(100));
    let standing = ran.here.read(now.now());
    assert_eq!(
        (standing.phase, standing.epoch, standing.step, standing.rows),
        (Phase::End, 0, 1, 4)
    );
    // Two steps of 10 ms for their rows and 15 ms for each of two lanes.
    assert_eq!(standing.idle, Duration::from_millis(20));
    assert_eq!(ran.here.spent(Phase::Data), Duration::from_millis(20));
    assert_eq!(ran.here.spent(Phase::Forward), Duration::from_millis(60));
}

fn steps_of(log: &[String]) -> Vec<&str> {
    let kept = log.iter().filter(|line| !line.starts_with("report"));
    kept.map(String::as_str).collect()
}

#[test]
fn an_epoch_goes_through_all_its_batches_in_order() {
    let ran = run(&settings(), Position::default(), None, true);
    assert_eq!(
        steps_of(&ran.log),
        [
            "epoch 0 begins",
            "open 0 at 0",
            "step 1",
            "step 2",
            "step 3",
            "epoch 1 ends"
        ]
    );
    assert_eq!(ran.outcome.reason, "1 epoch done");
    assert_eq!((ran.outcome.at.epoch, ran.outcome.at.step), (1, 3));
    assert_eq!(ran.model.shares, [0.5; 6]);
    let record = &ran.watcher.records[0];
    assert_eq!(record.get("samples"), Some(10.0));
    assert_eq!(record.get("loss"), Some(0.5));
    // Three steps of 10 ms of reading and 30 ms of work, and 10 ms to learn that there is no more.
    assert!((record.get("seconds").unwrap() - 0.13).abs() < 1e-9);
    assert!((record.get("data_wait").unwrap() - 0.03 / 0.13).abs() < 1e-9);
}

#[test]
fn seeds_depend_on_step_and_lane_alone() {
    let whole = run(&settings(), Position::default(), None, true);
    let from_step_2 = Position {
        step_in_epoch: 1,
        step: 1,
        ..Position::default()
    };
    let rest = run(&settings(), from_step_2, None, true);
    assert_eq!(rest.model.seeds, whole.model.seeds[2..]);
    let mut all = whole.model.seeds;
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 6);
}

#[test]
fn a_run_goes_on_within_an_epoch_and_keeps_what_was_counted() {
    let at = Position {
        step_in_epoch: 2,
        step: 2,
        loss_sum: 8.0,
        weight: 8.0,
        rows: 8,
        seconds: 1.0,
        waited: 0.5,
        ..Position::default()
    };
    let ran = run(&settings(), at, None, true);
    assert_eq!(steps_of(&ran.log), ["open 0 at 2", "step 3", "epoch 1 ends"]);
    let record = &ran.watcher.records[0];
    assert_eq!(record.get("samples"), Some(10.0));
    assert_eq!(record.get("loss"), Some((8.0 + 0.5 * 2.0) / 10.0));
}

#[test]
fn steps_triggers_and_watchers_end_a_run() {
    let limited = Settings {
        epochs: None,
        max_steps: Some(4),
        ..settings()
    };
    let ran = run(&limited, Position::default(), None, true);
    assert_eq!(ran.outcome.reason, "max_steps=4 steps done");
    assert_eq!((ran.outcome.at.epoch, ran.outcome.at.step_in_epoch), (1, 1));

    let asked = run(&settings(), Position::default(), Some(2), true);
    assert_eq!(asked.outcome.reason, "asked to");
    assert_eq!(asked.outcome.at.step, 2);
    assert!(asked.watcher.records.is_empty());

    let triggered = Settings {
        epochs: None,
        end: Some(Trigger::from_json(r#"{"kind": "max_score", "above": 0.8}"#).unwrap()),
        ..settings()
    };
    let ran = run(&triggered, Position::default(), None, true);
    assert_eq!(ran.outcome.at.epoch, 1);
    assert!(ran.outcome.reason.contains("0.9"), "{}", ran.outcome.reason);
}

#[test]
fn a_run_that_is_over_does_nothing_more() {
    let done = Position {
        epoch: 1,
        step: 3,
        ..Position::default()
    };
    let ran = run(&settings(), done, None, true);
    assert!(ran.log.is_empty());
    assert_eq!(ran.outcome.at, done);
}

#[test]
fn an_epoch_whose_steps_are_all_done_is_ended_though_they_were_the_last() {
    let ends = [
        (Some(3), None, "max_steps=3 steps done"),
        (None, Some(r#"{"kind": "min_loss", "below": 0.6}"#), "0.5"),
    ];
    for (max_steps, end, words) in ends {
        let limited = Settings {
            epochs: None,
            max_steps,
            end: end.map(|text| Trigger::from_json(text).unwrap()),
            save: Some(Trigger::from_json(r#"{"kind": "every_epoch"}"#).unwrap()),
            ..settings()
        };
        let mut at = Position {
            step_in_epoch: 3,
            step: 3,
            loss_sum: 5.0,
            weight: 10.0,
            rows: 10,
            loss: Some(0.5),
            ..Position::default()
        };
        let (log, clock) = (Log::default(), Rc::new(ManualClock::default()));
        let mut feed = Rows {
            steps_known: true,
            ..Rows::new(&log, &clock)
        };
        let mut model = Counts {
            log: Rc::clone(&log),
            clock: Rc::clone(&clock),
            shares: Vec::new(),
            seeds: Vec::new(),
            skipped: 0,
            late: false,
            unknown: 0,
        };
        let mut watcher = Looks {
            log: Rc::clone(&log),
            ..Looks::default()
        };
        let outcome = fit(
            &mut model,
            &mut feed,
            &mut watcher,
            &limited,
            &mut at,
            &*clock,
            &Whereabouts::default(),
        )
        .unwrap();
        assert_eq!(steps_of(&log.borrow()), ["open 0 at 3", "epoch 1 ends"]);
        assert!(outcome.reason.contains(words), "{}", outcome.reason);
        assert_eq!((at.epoch, at.step_in_epoch, at.step), (1, 0, 3));
        assert_eq!(watcher.records[0].get("loss"), Some(0.5));
        assert_eq!(watcher.saved, [at]);
    }
}

#[test]
fn a_run_that_trains_further_counts_from_where_it_began() {
    let first = Position {
        epoch: 5,
        step: 15,
        ..Position::default()
    };
    let further = Settings { first, ..settings() };
    let ran = run(&further, first, None, true);
    assert_eq!((ran.outcome.at.epoch, ran.outcome.at.step), (6, 18));
    assert_eq!(ran.watcher.records[0].get("epoch"), Some(6.0));
}

#[test]
fn it_is_saved_when_the_trigger_says_so_and_where_it_ends_early() {
    let every = |text: &str| Settings {
        save: Some(Trigger::from_json(text).unwrap()),
        ..settings()
    };
    let steps = |ran: &Ran| ran.watcher.saved.iter().map(|at| at.step).collect::<Vec<_>>();
    let ran = run(
        &every(r#"{"kind": "every_steps", "n": 2}"#),
        Position::default(),
        None,
        true,
    );
    // The end of the run is saved, too.
    assert_eq!(steps(&ran), [2, 3]);
    let ran = run(
        &every(r#"{"kind": "every_epoch"}"#),
        Position::default(),
        None,
        true,
    );
    assert_eq!(ran.watcher.saved[0].epoch, 1);
    let ran = run(
        &every(r#"{"kind": "every_epoch"}"#),
        Position::default(),
        Some(2),
        true,
    );
    assert_eq!(steps(&ran), [2]);
}

#[test]
fn workers_ask_each_other_where_nobody_knows_the_size_of_a_batch() {
    let ran = run(&settings(), Position::default(), None, false);
    let asked = ran.log.iter().filter(|line| *line == "agree").count();
    // Three batches, and one that turns out to be empty.
    assert_eq!(asked, 4);
    assert_eq!(ran.watcher.records[0].get("samples"), Some(10.0));
}

/// One epoch of batches of these sizes; of the `void` one no row counts.
fn epoch_of(sizes: &[u64], void: Option<usize>, settings: &Settings) -> (Position, Counts, Looks) {
    let clock = Rc::new(ManualClock::default());
    let log = Log::default();
    let mut model = Counts {
        log: log.clone(),
        clock: clock.clone(),
        shares: Vec::new(),
        seeds: Vec::new(),
        skipped: 0,
        late: false,
        unknown: 0,
    };
    let mut feed = Rows {
        sizes: sizes.to_vec(),
        total_known: false,
        steps_known: true,
        void,
        ..Rows::new(&log, &clock)
    };
    let mut watcher = Looks {
        log: log.clone(),
        ..Looks::default()
    };
    let mut at = Position::default();
    let here = Whereabouts::default();
    fit(
        &mut model,
        &mut feed,
        &mut watcher,
        settings,
        &mut at,
        &*clock,
        &here,
    )
    .unwrap();
    (at, model, watcher)
}

#[test]
fn a_batch_without_rows_is_not_the_end_where_others_come() {
    // All rows of a batch are left out, before another and at the end.
    let (at, _, watcher) = epoch_of(&[4, 0, 4, 0], None, &settings());
    assert_eq!((at.epoch, at.step), (1, 2));
    assert_eq!(watcher.records[0].get("samples"), Some(8.0));
    assert_eq!(watcher.records[0].get("steps"), Some(4.0));
}

#[test]
fn a_batch_of_which_no_row_counts_is_a_skipped_step() {
    for void in 0..3 {
        let (at, model, watcher) = epoch_of(&[4, 4, 2], Some(void), &settings());
        assert_eq!((at.epoch, at.step, model.skipped), (1, 3, 1));
        assert_eq!(model.shares, [0.5; 4]);
        assert_eq!(
            steps_of(&watcher.log.borrow())
                .iter()
                .filter(|line| line.starts_with("step"))
                .count(),
            3
        );
        let record = &watcher.records[0];
        assert_eq!(record.get("samples"), Some(10.0));
        assert_eq!((record.get("steps"), record.get("loss")), (Some(3.0), Some(0.5)));
    }
}

#[test]
fn a_loss_that_is_a_sum_is_not_divided() {
    let sums = Settings {
        sums: true,
        ..settings()
    };
    let (_, model, watcher) = epoch_of(&[4, 4, 2], None, &sums);
    assert_eq!(model.shares, [1.0; 6]);
    assert_eq!(watcher.records[0].get("loss"), Some(1.5));
}

#[test]
fn a_run_that_went_on_where_it_was_over_is_saved_all_the_same() {
    let over = Position {
        epoch: 1,
        step: 3,
        ..Position::default()
    };
    let saved = |goes_on: bool| {
        let settings = Settings {
            save: Some(Trigger::from_json(r#"{"kind": "every_epoch"}"#).unwrap()),
            goes_on,
            ..settings()
        };
        run(&settings, over, None, true).watcher.saved.len()
    };
    assert_eq!((saved(true), saved(false)), (1, 0));
}

#[test]
fn losses_that_are_known_late_count_as_others_do() {
    let every = Settings {
        save: Some(Trigger::from_json(r#"{"kind": "every_steps", "n": 2}"#).unwrap()),
        ..settings()
    };
    let at_once = run(&every, Position::default(), None, true);
    let late = run_with(&every, Position::default(), None, true, true);
    assert_eq!(late.watcher.records, at_once.watcher.records);
    assert_eq!(late.watcher.saved, at_once.watcher.saved);
    assert_eq!(late.outcome, at_once.outcome);
    assert_eq!(late.model.unknown, 0);
    let stopped = run_with(&every, Position::default(), Some(1), true, true);
    assert_eq!(stopped.outcome.at.loss_sum, 0.5 * 4.0);
}
