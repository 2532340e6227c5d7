//! Ten thousand seeds of cluster life, and the planted bugs that they must find.

use grampus_chaos::simulation::{Coverage, run, steps};
use grampus_cluster::coordinator::Bug;

/// How many seeds are played; `GRAMPUS_SEEDS` asks for more.
fn seeds() -> u64 {
    number("GRAMPUS_SEEDS").unwrap_or(10_000)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn every_seed_keeps_every_invariant_and_together_they_take_every_transition() {
    let mut coverage = Coverage::default();
    for seed in 0..seeds() {
        if let Err(broken) = run(seed, None, &mut coverage) {
            panic!("{broken}");
        }
    }
    println!("{coverage}");
    let missed = coverage.missed();
    assert!(missed.is_empty(), "no seed took {missed:?}");
}

#[test]
fn every_planted_bug_is_found() {
    for bug in Bug::ALL {
        let found = (0..seeds()).find_map(|seed| run(seed, Some(bug), &mut Coverage::default()).err());
        let Some(broken) = found else {
            panic!("no seed finds {bug:?}");
        };
        let violation = &broken.violation;
        println!(
            "{bug:?}: seed {} broke {}: {}",
            broken.seed, violation.id, violation.what
        );
    }
}

#[test]
fn a_broken_seed_says_what_broke_after_which_steps_and_how_to_repeat_it() {
    let found =
        (0..seeds()).find_map(|seed| run(seed, Some(Bug::ResolveTwice), &mut Coverage::default()).err());
    let broken = found.expect("some seed finds it");
    let (seed, text) = (broken.seed, broken.to_string());
    assert!(
        text.starts_with(&format!("seed {seed} broke CO-3: task ")),
        "{text}"
    );
    assert!(
        text.contains(" -> Started: waiting for ") || text.lines().count() == 33,
        "{text}"
    );
    let repeat = format!("GRAMPUS_SEED={seed} cargo test -p grampus-chaos one_seed -- --nocapture");
    assert!(text.ends_with(&repeat), "{text}");
}

#[test]
fn a_seed_takes_the_same_steps_every_time() {
    assert_eq!(steps(5, None), steps(5, None));
    assert_ne!(steps(5, None), steps(6, None));
}

#[test]
fn one_seed() {
    let asked = number("GRAMPUS_SEED");
    let seed = asked.unwrap_or(0);
    if asked.is_some() {
        for step in steps(seed, None) {
            println!("{step}");
        }
    }
    let mut coverage = Coverage::default();
    if let Err(broken) = run(seed, None, &mut coverage) {
        panic!("{broken}");
    }
    println!("seed {seed} broke nothing: {coverage}");
}
