//! What was trained is never thrown away, on real workers, which are this very program.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

#[path = "common/harness.rs"]
mod harness;
#[path = "common/models.rs"]
mod models;
#[path = "common/processes.rs"]
mod processes;

use std::time::Duration;

use grampus::nn::{CrossEntropy, Linear, Sequential};
use grampus::optim::Adam;
use grampus::{Error, Estimator, Fit, History};
use grampus_core::{Clock, SystemClock, Time};
use harness::PATIENCE;
use models::{cluster, kill, kill_workers, noisy, rows, undisturbed, weights};
use processes::{lives, workers};

fn main() {
    // Workers never come back from here.
    drop(grampus::init().unwrap());
    harness::run(&[
        (
            "a_second_worker_lost_in_the_handover_changes_nothing",
            a_second_worker_lost_in_the_handover_changes_nothing,
        ),
        (
            "a_damaged_checkpoint_is_not_resumed_from_the_start",
            a_damaged_checkpoint_is_not_resumed_from_the_start,
        ),
        (
            "weights_outlive_a_checkpoint_that_cannot_be_written",
            weights_outlive_a_checkpoint_that_cannot_be_written,
        ),
    ]);
}

fn refusal(estimator: &mut Estimator, fit: Fit<'_>) -> String {
    estimator.fit(&cluster(2), &rows(), fit).unwrap_err().to_string()
}

/// Kills one worker, and a second one `delay` after the first was replaced: while the survivors hand over their state.
/// Says whether the second one still ran then.
fn killed_twice(estimator: &mut Estimator, delay: Duration) -> Result<(History, bool), Error> {
    let mut second = None;
    let fit = Fit::epochs(3).batch_size(20).on_epoch(|_| {
        if second.is_none() {
            let before = workers(std::process::id());
            kill_workers(1);
            second = Some(std::thread::spawn(move || kill_survivor(&before, delay)));
        }
        true
    });
    let history = estimator.fit(&cluster(3), &rows(), fit)?;
    Ok((history, second.unwrap().join().unwrap()))
}

fn kill_survivor(before: &[u32], delay: Duration) -> bool {
    let clock = SystemClock::start();
    let is_new = |pid: &u32| !before.contains(pid);
    while !workers(std::process::id()).iter().any(is_new) && clock.now().since(Time::ZERO) < PATIENCE {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    std::thread::park_timeout(delay);
    let survivor = workers(std::process::id()).into_iter().find(|pid| !is_new(pid));
    survivor.is_some_and(|pid| lives(pid) && kill(pid))
}

fn a_second_worker_lost_in_the_handover_changes_nothing() {
    // A state of megabytes takes its time to travel.
    let wide = || {
        let model = Sequential::new()
            .add(Linear::new(3, 600))
            .add(Linear::new(600, 600))
            .add(Linear::new(600, 4));
        let estimator = Estimator::native(model, Adam::new(0.001), CrossEntropy)
            .seed(7)
            .lanes(4);
        estimator.threads_per_lane(1)
    };
    let mut calm = wide();
    calm.fit(&cluster(1), &rows(), Fit::epochs(3).batch_size(20))
        .unwrap();
    for delay in [0, 10, 20, 40, 60, 80, 120, 160, 240].map(Duration::from_millis) {
        let mut estimator = wide();
        match killed_twice(&mut estimator, delay) {
            Ok((_, killed)) => {
                // A longer delay may outlast the run.
                assert!(killed || !delay.is_zero(), "no second worker was lost");
                assert_eq!(weights(&estimator), weights(&calm), "killed after {delay:?}");
            }
            Err(error) => panic!("killed after {delay:?}: {error}"),
        }
    }
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

fn weights_outlive_a_checkpoint_that_cannot_be_written() {
    // Nothing can be made there, also by root.
    let place = "/proc/grampus-test";
    let mut estimator = noisy();
    let refused = refusal(&mut estimator, Fit::epochs(1).batch_size(20).checkpoint(place));
    assert!(
        refused.contains(place) && refused.contains("weights"),
        "{refused}"
    );
    assert_eq!(weights(&estimator), undisturbed(1));
}
