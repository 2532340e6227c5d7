//! What was trained is never thrown away, on real workers, which are this very program.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

#[path = "common/children.rs"]
mod children;
#[path = "common/gate.rs"]
mod gate;
#[path = "common/harness.rs"]
mod harness;
#[path = "common/models.rs"]
mod models;
#[path = "common/processes.rs"]
mod processes;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, BinaryArray, Int64Array, RecordBatch};
use children::finish;
use gate::Gate;
use grampus::data::image::{Output, Pipeline};
use grampus::data::{Table, table::parquet};
use grampus::nn::{BatchNorm, CrossEntropy, Flatten, Linear, Sequential};
use grampus::optim::Adam;
use grampus::{Error, Estimator, Fit, History, Shards};
use grampus_core::{Clock, Order, SystemClock, Time};
use image::{ExtendedColorType, ImageEncoder, codecs::png::PngEncoder};
use models::{ROWS, cluster, kill, kill_workers, noisy, rows, undisturbed, weights};
use processes::{lives, workers};

/// The argument of a rank of `grampus run`.
const RANKED: &str = "as-a-rank";
/// The step of the first epoch in which there is a row that cannot be trained on.
const BAD_STEP: u64 = 4;
/// Long enough that a worker is lost within, whenever it is told to.
const EPOCHS: u64 = 500;
/// How long workers may take to come to where they are killed.
const WITHIN: Duration = Duration::from_secs(30);

fn main() {
    // Workers never come back from here.
    drop(grampus::init().unwrap());
    if std::env::args().nth(1).as_deref() == Some(RANKED) {
        return ranked();
    }
    harness::run(&[
        (
            "workers_lost_in_the_handover_change_nothing",
            workers_lost_in_the_handover_change_nothing,
        ),
        (
            "workers_lost_in_the_handover_of_divided_memory_change_nothing",
            workers_lost_in_the_handover_of_divided_memory_change_nothing,
        ),
        (
            "a_damaged_checkpoint_is_not_resumed_from_the_start",
            a_damaged_checkpoint_is_not_resumed_from_the_start,
        ),
        (
            "weights_outlive_checkpoints_that_cannot_be_written",
            weights_outlive_checkpoints_that_cannot_be_written,
        ),
        (
            "a_place_that_takes_no_more_checkpoints_ends_no_run",
            a_place_that_takes_no_more_checkpoints_ends_no_run,
        ),
        (
            "a_bad_row_keeps_what_was_trained_before_it",
            a_bad_row_keeps_what_was_trained_before_it,
        ),
        (
            "a_worker_that_is_not_made_good_leaves_what_was_trained",
            a_worker_that_is_not_made_good_leaves_what_was_trained,
        ),
        (
            "a_loss_that_is_no_number_keeps_nothing",
            a_loss_that_is_no_number_keeps_nothing,
        ),
        (
            "ranks_keep_what_was_trained_before_a_bad_row",
            ranks_keep_what_was_trained_before_a_bad_row,
        ),
    ]);
}

fn refusal(estimator: &mut Estimator, fit: Fit<'_>) -> String {
    estimator.fit(&cluster(2), &rows(), fit).unwrap_err().to_string()
}

/// Which workers are lost while a run is handed over: of those that have it, and of those that came for one that was lost.
type Victims = fn(survivors: &[u32], new: &[u32]) -> Vec<u32>;

/// Kills a worker after the first epoch. All the others and the one that comes hand over the state, and then open their rows, where
/// they are held up: there it kills some more. Says how many it has killed.
fn killed_twice(
    estimator: &mut Estimator,
    rows: &Pictures,
    victims: Victims,
) -> Result<(History, usize), Error> {
    let mut second = None;
    let fit = Fit::epochs(EPOCHS).batch_size(20).on_epoch(|_| {
        if second.is_none() {
            let before = workers(std::process::id());
            let gate = Gate::shut(&rows.path);
            kill_workers(1);
            second = Some(std::thread::spawn(move || kill_at(gate, &before, victims)));
        }
        true
    });
    let history = estimator.fit(&cluster(3), &rows.shards(), fit)?;
    Ok((history, second.unwrap().join().unwrap()))
}

fn kill_at(gate: Gate, before: &[u32], victims: Victims) -> usize {
    // In order of their numbers, as all that a rule says of them is how many they are.
    let arrived = || -> Vec<u32> { gate.waiting().into_iter().collect() };
    wait_for(|| arrived().len() == 3);
    let (survivors, new): (Vec<u32>, Vec<u32>) = arrived().iter().partition(|pid| before.contains(pid));
    assert_eq!((survivors.len(), new.len()), (2, 1));
    let victims = victims(&survivors, &new);
    let killed = victims.iter().filter(|pid| kill(**pid)).count();
    wait_for(|| !victims.iter().any(|pid| lives(*pid)));
    killed
}

fn wait_for(what: impl Fn() -> bool) {
    let clock = SystemClock::start();
    while !what() {
        assert!(clock.now().since(Time::ZERO) < WITHIN, "it did not happen");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// A file of small pictures: workers read all of it when they begin with a run, and do not open it again.
struct Pictures {
    path: String,
    _scratch: tempfile::TempDir,
}

impl Pictures {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("pictures.parquet").display().to_string();
        let files: ArrayRef = Arc::new(BinaryArray::from_iter_values((0..ROWS).map(picture)));
        let classes: ArrayRef = Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| row as i64 % 4)));
        let batch = RecordBatch::try_from_iter([("picture", files), ("class", classes)]).unwrap();
        let table = Table::new(batch.schema(), vec![batch]).unwrap();
        parquet::write(&table, Path::new(&path)).unwrap();
        Self {
            path,
            _scratch: scratch,
        }
    }

    fn shards(&self) -> Shards {
        let as_it_is = Pipeline::new(Vec::new(), Output::default()).unwrap();
        let shards = Shards::parquet(&self.path).unwrap();
        shards.images("picture", as_it_is).labels(["class"])
    }
}

fn picture(row: usize) -> Vec<u8> {
    let pixels: Vec<u8> = (0..4 * 4 * 3).map(|at| (at * 37 + row * 53) as u8).collect();
    let mut file = Vec::new();
    PngEncoder::new(&mut file)
        .write_image(&pixels, 4, 4, ExtendedColorType::Rgb8)
        .unwrap();
    file
}

fn small() -> Estimator {
    let model = Sequential::new()
        .add(Flatten)
        .add(Linear::new(48, 16))
        .add(BatchNorm::new(16))
        .add(Linear::new(16, 4));
    let estimator = Estimator::native(model, Adam::new(0.01), CrossEntropy);
    estimator.seed(7).lanes(4).threads_per_lane(1)
}

fn check_lost_in_the_handover(make: fn() -> Estimator, rules: &[(Victims, usize)]) {
    let mut calm = make();
    let rows = Pictures::new();
    let fit = Fit::epochs(EPOCHS).batch_size(20);
    calm.fit(&cluster(1), &rows.shards(), fit).unwrap();
    for (victims, count) in rules {
        let mut estimator = make();
        let (history, killed) = killed_twice(&mut estimator, &rows, *victims).unwrap();
        assert_eq!((killed, history.losses), (*count, 2));
        assert_eq!(weights(&estimator), weights(&calm), "{count} lost");
    }
}

fn workers_lost_in_the_handover_change_nothing() {
    // One that had the state, and both: then the one that came has it alone.
    check_lost_in_the_handover(small, &[(|had, _| vec![had[0]], 1), (|had, _| had.to_vec(), 2)]);
}

fn workers_lost_in_the_handover_of_divided_memory_change_nothing() {
    // Each had two of three parts, and whoever is left has all three.
    check_lost_in_the_handover(
        || small().sharded(),
        &[
            (|had, _| had.to_vec(), 2),
            (|had, new| vec![had[0], new[0]], 2),
            (|had, new| vec![had[1], new[0]], 2),
        ],
    );
}

fn a_damaged_checkpoint_is_not_resumed_from_the_start() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("runs").display().to_string();
    let fit = || Fit::epochs(1).batch_size(20).checkpoint(&place);
    noisy().fit(&cluster(1), &rows(), fit()).unwrap();
    let manifest = format!("{place}/step-00000005/manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    for (damaged, why) in [
        (text.replace("\"format\": 1", "\"format\": 2"), "format 2"),
        (text.replace("\"format\"", "\"from\""), "no manifest"),
    ] {
        std::fs::write(&manifest, damaged).unwrap();
        let refused = refusal(&mut noisy(), fit().resume());
        for part in [&manifest, why, "start anew"] {
            assert!(refused.contains(part), "{refused}");
        }
    }
    std::fs::remove_file(&manifest).unwrap();
    let refused = refusal(&mut noisy(), fit().resume());
    assert!(
        refused.contains("step-00000005") && refused.contains("start anew"),
        "{refused}"
    );
}

fn weights_outlive_checkpoints_that_cannot_be_written() {
    // Nothing can be made there, also by root.
    let place = "/proc/grampus-test";
    for epochs in [1, 3] {
        let mut estimator = noisy();
        let refused = refusal(
            &mut estimator,
            Fit::epochs(epochs).batch_size(20).checkpoint(place),
        );
        assert!(
            refused.contains(place) && refused.contains("weights of the whole run"),
            "{refused}"
        );
        assert_eq!(weights(&estimator), undisturbed(epochs));
    }
}

fn a_place_that_takes_no_more_checkpoints_ends_no_run() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("runs");
    let mut epochs = 0;
    let fit = Fit::epochs(60)
        .batch_size(20)
        .checkpoint(place.display().to_string());
    let fit = fit.on_epoch(|_| {
        epochs += 1;
        if epochs == 2 {
            // A file, in which no folder can be made; it moves away one checkpoint at least.
            wait_for(|| place.join("step-00000005/manifest.json").exists());
            wait_for(|| std::fs::rename(&place, scratch.path().join("old")).is_ok());
            std::fs::write(&place, "").unwrap();
        }
        true
    });
    let mut estimator = noisy();
    estimator.fit(&cluster(2), &rows(), fit).unwrap();
    assert!(place.is_file());
    assert_eq!(weights(&estimator), undisturbed(60));
}

/// The row that the seed brings into the midst of that step.
fn bad_row() -> usize {
    Order::new(7, 0, ROWS as u64).row((BAD_STEP - 1) * 20 + 7) as usize
}

/// Rows of which one has a class that there is none of.
fn spoilt() -> Shards {
    let x = (0..ROWS * 3).map(|at| ((at * 37 % 101) as f32 - 50.0) / 25.0);
    let y = (0..ROWS).map(|row| if row == bad_row() { 9.0 } else { (row % 4) as f32 });
    Shards::arrays((x.collect(), [3]), (y.collect(), [])).unwrap()
}

/// The weights after so many steps, which do not see the bad row.
fn after(steps: u64) -> Vec<u32> {
    let mut estimator = noisy();
    estimator
        .fit(&cluster(1), &rows(), Fit::steps(steps).batch_size(20))
        .unwrap();
    weights(&estimator)
}

fn a_bad_row_keeps_what_was_trained_before_it() {
    for workers in [1, 2] {
        let mut estimator = noisy();
        let fit = Fit::epochs(2).batch_size(20);
        let error = estimator.fit(&cluster(workers), &spoilt(), fit).unwrap_err();
        let Error::Partial { source, epoch, step } = &error else {
            panic!("{error}");
        };
        assert!(
            source
                .to_string()
                .contains(&format!("row {} of the data", bad_row())),
            "{source}"
        );
        assert_eq!((*epoch, *step), (1, BAD_STEP - 1));
        assert!(error.to_string().contains("epoch 1, step "), "{error}");
        assert_eq!(weights(&estimator), after(BAD_STEP - 1));
        // It goes on from there.
        estimator
            .fit(&cluster(workers), &rows(), Fit::epochs(1).batch_size(20))
            .unwrap();
    }
}

fn a_worker_that_is_not_made_good_leaves_what_was_trained() {
    for make in [noisy, || noisy().sharded()] {
        // Once: further epochs may be over before the run has ended, and the last worker has the weights.
        let mut killed = false;
        let fit = Fit::epochs(10_000).batch_size(20).max_failures(0);
        let fit = fit.on_epoch(|_| {
            if !std::mem::replace(&mut killed, true) {
                kill_workers(1);
            }
            true
        });
        let mut estimator = make();
        let error = estimator.fit(&cluster(2), &rows(), fit).unwrap_err();
        let Error::Partial { source, step, .. } = &error else {
            panic!("{error}");
        };
        assert!(matches!(&**source, Error::Lost { .. }), "{source}");
        assert_eq!(weights(&estimator), after(*step));
    }
}

fn a_loss_that_is_no_number_keeps_nothing() {
    let x = (0..ROWS * 3).map(|at| {
        if at == bad_row() * 3 {
            f32::NAN
        } else {
            (at % 7) as f32
        }
    });
    let y = (0..ROWS).map(|row| (row % 4) as f32);
    let rows = Shards::arrays((x.collect(), [3]), (y.collect(), [])).unwrap();
    let mut estimator = noisy();
    let before = weights(&estimator);
    let fit = Fit::epochs(2).batch_size(20);
    let error = estimator.fit(&cluster(2), &rows, fit).unwrap_err();
    assert!(matches!(error, Error::Worker(_)), "{error}");
    assert_eq!(weights(&estimator), before);
}

fn sum(weights: Vec<u32>) -> u32 {
    let next = |sum: u32, bits| sum.wrapping_mul(31).wrapping_add(bits);
    weights.into_iter().fold(0, next)
}

/// What every rank does under `grampus run`.
fn ranked() {
    let mut estimator = noisy();
    let fit = Fit::epochs(2).batch_size(20);
    let error = estimator
        .fit(&grampus::init().unwrap(), &spoilt(), fit)
        .unwrap_err();
    let Error::Partial { step, .. } = &error else {
        panic!("{error}");
    };
    println!("{step} {}", sum(weights(&estimator)));
}

fn ranks_keep_what_was_trained_before_a_bad_row() {
    let program = std::env::current_exe().unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_grampus"))
        .args(["run", "-n", "2", "--threads", "1"])
        .arg(program)
        .arg(RANKED)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let output = finish(child.unwrap(), WITHIN);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    let wanted = format!("{} {}", BAD_STEP - 1, sum(after(BAD_STEP - 1)));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        lines,
        [format!("[rank 0] {wanted}"), format!("[rank 1] {wanted}")],
        "{errors}"
    );
}
