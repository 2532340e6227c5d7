//! The Estimator on real workers, which are this very program: so it has a `main` of its own, and calls `init` first.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

#[path = "common/files.rs"]
mod files;
#[path = "common/harness.rs"]
mod harness;
#[path = "common/models.rs"]
mod models;
#[path = "common/processes.rs"]
mod processes;

use std::num::NonZeroU64;

use files::{Scratch, table, write_parquet};
use grampus::nn::{BatchNorm, CrossEntropy, Linear, Loss, Relu, Rows, Sequential, Shape};
use grampus::optim::{Adam, Lamb, Optimizer, Plateau, Schedule, Sgd};
use grampus::{Error, Estimator, Fit, Shards, Trigger};
use models::{ROWS, cluster, kill_workers, noisy, noisy_with, rows, undisturbed, weights};
use processes::{descendants, lives};

fn main() {
    // Workers never come back from here.
    drop(grampus::init().unwrap());
    let tests: &[(&str, fn())] = &[
        (
            "equal_weights_at_any_number_of_workers",
            equal_weights_at_any_number_of_workers,
        ),
        ("a_killed_worker_changes_nothing", a_killed_worker_changes_nothing),
        (
            "a_worker_that_is_not_made_good_is_an_error",
            a_worker_that_is_not_made_good_is_an_error,
        ),
        (
            "a_run_goes_on_where_it_was_saved",
            a_run_goes_on_where_it_was_saved,
        ),
        (
            "a_run_within_an_epoch_needs_its_rows",
            a_run_within_an_epoch_needs_its_rows,
        ),
        ("a_run_does_not_go_on_as_another", a_run_does_not_go_on_as_another),
        (
            "answers_are_those_of_the_network_in_order",
            answers_are_those_of_the_network_in_order,
        ),
        ("files_give_each_row_once", files_give_each_row_once),
        (
            "an_epoch_is_heard_of_and_may_be_the_last",
            an_epoch_is_heard_of_and_may_be_the_last,
        ),
        ("triggers_and_schedules_hold", triggers_and_schedules_hold),
        ("weights_are_loaded_by_name", weights_are_loaded_by_name),
        ("divided_memory_changes_nothing", divided_memory_changes_nothing),
        ("divided_memory_is_healed", divided_memory_is_healed),
        (
            "neighbours_that_are_lost_at_once",
            neighbours_that_are_lost_at_once,
        ),
        (
            "layers_may_have_a_rate_of_their_own",
            layers_may_have_a_rate_of_their_own,
        ),
        ("wrong_use_is_named", wrong_use_is_named),
        ("nothing_is_left", nothing_is_left),
    ];
    harness::run(tests);
}

/// Kills one worker of this process; false where there is none.
fn kill_a_worker() -> bool {
    kill_workers(1) == 1
}

fn equal_weights_at_any_number_of_workers() {
    let mut found = Vec::new();
    for workers in [1, 2, 4] {
        let (cluster, data) = (cluster(workers), rows());
        let mut estimator = noisy();
        let history = estimator
            .fit(&cluster, &data, Fit::epochs(3).batch_size(20).validation(&data))
            .unwrap();
        assert_eq!(history.epochs.len(), 3);
        assert_eq!(history.last("samples"), Some(ROWS as f64));
        assert_eq!(history.last("val_num_samples"), Some(ROWS as f64));
        let measured = estimator.evaluate(&cluster, &data).unwrap();
        assert_eq!(history.last("val_accuracy"), measured.get("accuracy"));
        assert_eq!(measured.num_samples, ROWS as u64);
        found.push((weights(&estimator), measured));
    }
    assert!(found.windows(2).all(|pair| pair[0] == pair[1]));
}

/// Trains three times, and kills one worker each time; how often the run went on without one.
fn disturbed(estimator: &mut Estimator, workers: u32) -> u32 {
    let (cluster, mut losses) = (cluster(workers), 0);
    for _ in 0..3 {
        let mut killed = false;
        let fit = Fit::epochs(40).batch_size(20).on_epoch(|_| {
            killed = killed || kill_a_worker();
            true
        });
        let history = estimator.fit(&cluster, &rows(), fit).unwrap();
        let epochs: Vec<f64> = history
            .epochs
            .iter()
            .filter_map(|record| record.get("epoch"))
            .collect();
        assert_eq!(epochs.len(), 40);
        assert!(
            epochs.windows(2).all(|pair| pair[1] == pair[0] + 1.0),
            "{epochs:?}"
        );
        losses += history.losses;
    }
    losses
}

fn a_killed_worker_changes_nothing() {
    let mut estimator = noisy();
    // One that is killed when all is done is no loss.
    assert!((1..=3).contains(&disturbed(&mut estimator, 2)));
    assert_eq!(weights(&estimator), undisturbed(120));
}

fn a_worker_that_is_not_made_good_is_an_error() {
    // Only once: epochs that were done before are still heard of, and the other worker has what was trained.
    let mut killed = false;
    let fit = Fit::epochs(1000).batch_size(20).max_failures(0).on_epoch(|_| {
        killed = killed || kill_a_worker();
        true
    });
    match noisy().fit(&cluster(2), &rows(), fit) {
        Err(Error::Partial { source, .. }) => {
            let Error::Lost { why, failure } = *source else {
                panic!("{source}");
            };
            assert!(why.contains("max_failures(0)"), "{why}");
            assert!(failure.to_string().contains("signal 9"), "{failure}");
        }
        other => panic!("{:?}", other.map(|history| history.reason)),
    }
}

fn a_run_goes_on_where_it_was_saved() {
    let scratch = Scratch::new();
    let place = scratch.path("runs");
    let fit = |epochs| {
        Fit::epochs(epochs)
            .batch_size(20)
            .checkpoint(&place)
            .checkpoint_steps(NonZeroU64::new(3).unwrap())
            .keep(2)
    };
    // Ends within the third epoch, of 5 steps each.
    let cut = noisy().fit(&cluster(2), &rows(), fit(6).max_steps(12)).unwrap();
    assert_eq!(cut.reason, "max_steps=12 steps done");
    assert!(std::fs::read_dir(&place).unwrap().count() <= 2);
    let last = std::fs::read_to_string(format!("{place}/step-00000012/manifest.json")).unwrap();
    assert!(
        last.contains("ranks 0-1 on ") && last.contains("cpu features"),
        "{last}"
    );
    let mut next = noisy();
    let history = next.fit(&cluster(4), &rows(), fit(6).resume()).unwrap();
    assert_eq!(history.epochs.len(), 6);
    assert_eq!(weights(&next), undisturbed(6));
    let refused = noisy().fit(&cluster(1), &rows(), fit(6)).unwrap_err().to_string();
    assert!(refused.contains("holds checkpoints of another run"), "{refused}");
}

fn a_run_within_an_epoch_needs_its_rows() {
    let scratch = Scratch::new();
    let place = scratch.path("runs");
    let fit = |size| Fit::epochs(6).batch_size(size).checkpoint(&place).resume();
    noisy().fit(&cluster(1), &rows(), fit(20).max_steps(7)).unwrap();
    let refused = noisy()
        .fit(&cluster(1), &rows(), fit(10))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("batches of 20 of 98 rows"), "{refused}");
}

fn a_run_does_not_go_on_as_another() {
    let scratch = Scratch::new();
    let place = scratch.path("runs");
    let fit = || Fit::epochs(2).batch_size(20).checkpoint(&place).resume();
    noisy().fit(&cluster(1), &rows(), fit().max_steps(5)).unwrap();
    let others = [
        (
            noisy().lanes(5),
            "lanes(5) was asked for and the run was saved with 4",
        ),
        (
            noisy().seed(8),
            "seed(8) was asked for and the run was saved with 7",
        ),
        (noisy().threads_per_lane(2), "threads_per_lane(2) was asked for"),
        (
            noisy_with(Sgd::new(0.1)),
            "this one nothing: build it as the saved one was",
        ),
        (with(Adam::new(0.01)), "these weights are of another model"),
    ];
    for (mut other, says) in others {
        let refused = other.fit(&cluster(1), &rows(), fit()).unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
    }
    // Who asks for nothing goes on with what the run has.
    assert!(noisy().fit(&cluster(2), &rows(), fit()).is_ok());
}

fn answers_are_those_of_the_network_in_order() {
    let (cluster, count) = (cluster(3), 1000);
    let values: Vec<f32> = (0..count * 3).map(|at| at as f32 / 100.0).collect();
    let estimator = noisy();
    let said = estimator
        .predict(&cluster, &Shards::inputs((values.clone(), [3])).unwrap())
        .unwrap();
    assert_eq!((said.len(), said[0].shape.axes()), (1, &[4][..]));
    let mut network = estimator.network().unwrap();
    let shape = Shape::from([3]);
    let all = [Rows {
        values: &values,
        shape: &shape,
    }];
    network.forward(&all, count, false, 0).unwrap();
    let (expected, _) = network.output(&all, 0).unwrap();
    assert_eq!(said[0].values.len(), expected.len());
    let near = |(one, other): (&f32, &f32)| (one - other).abs() <= 1e-5 * other.abs().max(1.0);
    assert!(said[0].values.iter().zip(expected).all(near));
}

/// The rows of `table(0, 120)` as texts.
fn lines(line: impl Fn([f32; 3], usize) -> String) -> String {
    let number = |row: usize, factor: usize| ((row * factor % 101) as f32 - 50.0) / 25.0;
    (0..120)
        .map(|row| line([37, 53, 71].map(|factor| number(row, factor)), row % 4))
        .collect()
}

fn csv() -> String {
    "a,b,c,class\n".to_owned() + &lines(|[a, b, c], class| format!("{a},{b},{c},{class}\n"))
}

fn json() -> String {
    lines(|[a, b, c], class| format!("{{\"a\": {a}, \"b\": {b}, \"c\": {c}, \"class\": {class}}}\n"))
}

fn files_give_each_row_once() {
    let scratch = Scratch::new();
    for part in 0..3 {
        write_parquet(&scratch.path(&format!("{part}.parquet")), part * 40, 40);
    }
    let pattern = scratch.path("*.parquet");
    let files = || {
        Shards::parquet(&pattern)
            .unwrap()
            .features(["a", "b", "c"])
            .labels(["class"])
    };
    let tables = Shards::table(table(0, 120))
        .features(["a", "b", "c"])
        .labels(["class"]);
    assert_eq!(files().len().unwrap(), 120);
    let mut found = Vec::new();
    for data in [files(), tables, files().streamed(2)] {
        let mut estimator = noisy();
        let history = estimator
            .fit(&cluster(2), &data, Fit::epochs(2).batch_size(16))
            .unwrap();
        assert_eq!(history.last("samples"), Some(120.0));
        found.push((weights(&estimator), noisy().evaluate(&cluster(2), &data).unwrap()));
    }
    let texts = [("rows.csv", csv()), ("rows.json", json())];
    for (name, text) in texts {
        std::fs::write(scratch.path(name), text).unwrap();
        let read = match name {
            "rows.csv" => Shards::csv(&scratch.path(name)),
            _ => Shards::json(&scratch.path(name)),
        };
        let data = read.unwrap().features(["a", "b", "c"]).labels(["class"]);
        assert_eq!(noisy().evaluate(&cluster(2), &data).unwrap(), found[0].1);
    }
    // Rows that are streamed come in another order.
    assert_eq!(found[0], found[1]);
    assert_ne!(found[0].0, found[2].0);
    assert_eq!(found[0].1, found[2].1);
}

fn an_epoch_is_heard_of_and_may_be_the_last() {
    let mut heard = Vec::new();
    let fit = Fit::epochs(1000).batch_size(20).on_epoch(|record| {
        heard.push(record.get("loss").unwrap());
        heard.len() < 3
    });
    let history = noisy().fit(&cluster(2), &rows(), fit).unwrap();
    assert!(history.reason.contains("asked to end"), "{}", history.reason);
    assert!(heard.len() >= 3 && heard.len() < 1000);
}

fn triggers_and_schedules_hold() {
    let mut estimator = noisy().schedule(Schedule::Plateau(Plateau {
        patience: 0,
        epsilon: 1e9,
        factor: 0.5,
        ..Plateau::new("loss")
    }));
    let fit = Fit::epochs(100).batch_size(20).until(Trigger::MaxEpoch {
        n: NonZeroU64::new(4).unwrap(),
    });
    let history = estimator.fit(&cluster(2), &rows(), fit).unwrap();
    let rates: Vec<f64> = history
        .epochs
        .iter()
        .filter_map(|record| record.get("learning_rate"))
        .collect();
    assert_eq!(rates, [0.01, 0.01, 0.005, 0.0025]);
    assert_eq!(history.reason, "4 epochs done");
    let plateau = Schedule::Plateau(Plateau::new("speed"));
    let refused = noisy()
        .schedule(plateau)
        .fit(&cluster(2), &rows(), Fit::epochs(1));
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("more or less of \"speed\"")
    );
    let until = Fit::epochs(1).until(Trigger::MaxScore { above: 0.5 });
    let refused = noisy().fit(&cluster(2), &rows(), until);
    assert!(refused.unwrap_err().to_string().contains("validation"));
}

fn weights_are_loaded_by_name() {
    let scratch = Scratch::new();
    let path = scratch.path("model.safetensors");
    let mut estimator = noisy();
    estimator
        .fit(&cluster(2), &rows(), Fit::epochs(1).batch_size(20))
        .unwrap();
    estimator.save(&path).unwrap();
    let mut other = noisy().seed(8);
    other.load(&path).unwrap();
    assert_eq!(weights(&other), weights(&estimator));
    let mut small = Estimator::native(
        Sequential::new().add(Linear::new(3, 4)),
        Sgd::new(0.1),
        CrossEntropy,
    );
    let refused = small.load(&path).unwrap_err().to_string();
    assert!(refused.contains("0.weight"), "{refused}");
}

/// With memory for each parameter, and a norm over all gradients.
fn with(optimizer: impl Into<Optimizer>) -> Estimator {
    let model = Sequential::new()
        .add(Linear::new(3, 16))
        .add(BatchNorm::new(16))
        .add(Relu)
        .add(Linear::new(16, 4));
    let estimator = Estimator::native(model, optimizer, CrossEntropy).seed(7).lanes(4);
    estimator.threads_per_lane(1).clip_norm(1.0)
}

fn divided_memory_changes_nothing() {
    let kinds: [fn() -> Optimizer; 3] = [
        || Adam::new(0.01).into(),
        || Sgd::new(0.1).momentum(0.9).into(),
        || Lamb::new(0.01).into(),
    ];
    for kind in kinds {
        let mut whole = with(kind());
        whole
            .fit(&cluster(1), &rows(), Fit::epochs(3).batch_size(20))
            .unwrap();
        for workers in [1, 2, 3, 4] {
            let mut divided = with(kind()).sharded();
            let scratch = Scratch::new();
            let fit = Fit::epochs(2).batch_size(20).checkpoint(scratch.path("runs"));
            divided.fit(&cluster(workers), &rows(), fit).unwrap();
            // On from what was saved, with another number of workers.
            let mut next = with(kind()).sharded();
            let fit = Fit::epochs(3)
                .batch_size(20)
                .checkpoint(scratch.path("runs"))
                .resume();
            next.fit(&cluster(5 - workers), &rows(), fit).unwrap();
            assert_eq!(weights(&next), weights(&whole), "{:?} with {workers}", kind());
        }
    }
}

fn divided_memory_is_healed() {
    let mut whole = with(Adam::new(0.01));
    whole
        .fit(&cluster(1), &rows(), Fit::epochs(120).batch_size(20))
        .unwrap();
    let mut divided = with(Adam::new(0.01)).sharded();
    assert!((1..=3).contains(&disturbed(&mut divided, 3)));
    assert_eq!(weights(&divided), weights(&whole));
}

fn neighbours_that_are_lost_at_once() {
    let scratch = Scratch::new();
    let mut whole = with(Adam::new(0.01));
    whole
        .fit(&cluster(1), &rows(), Fit::epochs(12).batch_size(20))
        .unwrap();
    let fit = |place: &str| Fit::epochs(12).batch_size(20).checkpoint(scratch.path(place));
    let mut divided = with(Adam::new(0.01)).sharded();
    let mut killed = 0;
    let kills = fit("saved").on_epoch(|record| {
        if killed == 0 && record.get("epoch") >= Some(4.0) {
            killed = kill_workers(2);
        }
        true
    });
    // One after the other at the latest, and so with one loss or two.
    let history = divided.fit(&cluster(2), &rows(), kills).unwrap();
    assert_eq!(killed, 2);
    assert!(history.losses > 0);
    assert_eq!(weights(&divided), weights(&whole));
}

fn layers_may_have_a_rate_of_their_own() {
    let mut frozen = with(Sgd::new(0.1)).group(["0", "1.weight"], 0.0, None);
    let before = frozen.network().unwrap().parameters().to_vec();
    frozen
        .fit(&cluster(2), &rows(), Fit::epochs(1).batch_size(20))
        .unwrap();
    let network = frozen.network().unwrap();
    for placed in network.parameter_places() {
        let same = before[placed.place.clone()] == network.parameters()[placed.place.clone()];
        let wanted = ["0.weight", "0.bias", "1.weight"].contains(&placed.name.as_str());
        assert_eq!(same, wanted, "{}", placed.name);
    }
    let mut wrong = with(Sgd::new(0.1)).group(["fc"], 0.5, None);
    let found = refusal(&mut wrong, &rows(), Fit::epochs(1));
    assert!(found.contains("there is no parameter of fc"), "{found}");
}

/// What is said where something is asked for that cannot be.
fn refusal(estimator: &mut Estimator, data: &Shards, fit: Fit<'_>) -> String {
    estimator.fit(&cluster(2), data, fit).unwrap_err().to_string()
}

fn wrong_use_is_named() {
    let data = rows();
    let says = |found: String, wanted: &str| assert!(found.contains(wanted), "{found}");
    let two = Estimator::native(
        Sequential::new().add(Linear::new(2, 4)),
        Sgd::new(0.1),
        CrossEntropy,
    );
    says(
        refusal(&mut { two }, &data, Fit::epochs(1)),
        "layer 0 (Linear(2, 4))",
    );
    let mut few = Estimator::native(
        Sequential::new().add(Linear::new(3, 2)),
        Sgd::new(0.1),
        CrossEntropy,
    );
    let found = refusal(&mut few, &data, Fit::epochs(1));
    says(found.clone(), "of the data, in lane");
    says(found, "raised ModelError: row");
    let mut wild = Estimator::native(
        Sequential::new().add(Linear::new(3, 4)),
        Sgd::new(3e38),
        Loss::Mse,
    );
    let y = vec![1.0; ROWS * 4];
    let wide = Shards::arrays((vec![1.0; ROWS * 3], [3]), (y, [4])).unwrap();
    let found = refusal(&mut wild, &wide, Fit::epochs(9));
    says(found.clone(), "the loss is");
    says(found, "layer 0 (Linear(3, 4)) is the first that is not finite");
    says(
        refusal(&mut noisy().lanes(1), &data, Fit::epochs(1)),
        "1 lanes leave some of 2 workers without any",
    );
    says(
        refusal(&mut noisy(), &data, Fit::epochs(1).resume()),
        "give it with checkpoint()",
    );
    says(
        refusal(&mut noisy(), &data, Fit::epochs(1).batch_size(0)),
        "batch_size must be at least 1",
    );
    let bare = Shards::inputs((vec![1.0; 6], [3])).unwrap();
    says(
        refusal(&mut noisy(), &bare, Fit::epochs(1)),
        "the rows have no labels",
    );
    let table = Shards::table(table(0, 4)).features(["a", "bb"]).labels(["class"]);
    says(refusal(&mut noisy(), &table, Fit::epochs(1)), "bb");
    let empty = Shards::table(files::table(0, 0))
        .features(["a", "b", "c"])
        .labels(["class"]);
    says(refusal(&mut noisy(), &empty, Fit::epochs(1)), "no rows");
    assert!(noisy().metric("Acuracy").is_err());
    says(
        Shards::parquet("/nowhere/*.parquet").err().unwrap().to_string(),
        "/nowhere",
    );
}

fn nothing_is_left() {
    let cluster = cluster(2);
    noisy().evaluate(&cluster, &rows()).unwrap();
    let started = descendants(std::process::id());
    cluster.stop().unwrap();
    assert_eq!(descendants(std::process::id()), Vec::<u32>::new());
    assert!(started.len() >= 3 && !started.into_iter().any(lives));
    let jobs = std::fs::read_dir(grampus_cluster::jobdir::root());
    assert_eq!(jobs.into_iter().flatten().count(), 0);
}
