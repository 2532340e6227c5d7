//! Ten thousand seeds of cluster life, and six bugs that they must find.

use grampus_chaos::simulation::{Coverage, run, steps};
use grampus_cluster::coordinator::Bug;

/// The first seed on which a run of all seeds starts; the last is [`SEEDS`].
const SEEDS: u64 = 10_000;

#[test]
fn every_seed_keeps_every_invariant_and_together_they_take_every_transition() {
    let mut coverage = Coverage::default();
    for seed in 0..SEEDS {
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
        let found = (0..SEEDS).find_map(|seed| run(seed, Some(bug), &mut Coverage::default()).err());
        let Some(broken) = found else {
            panic!("no seed of {SEEDS} finds {bug:?}");
        };
        let violation = &broken.violation;
        println!(
            "{bug:?}: seed {} broke {}: {}",
            broken.seed, violation.id, violation.what
        );
    }
}

#[test]
fn one_seed() {
    let asked = std::env::var("GRAMPUS_SEED").ok();
    let seed = asked
        .as_ref()
        .map_or(0, |text| text.parse().expect("GRAMPUS_SEED is a number"));
    let mut coverage = Coverage::default();
    if asked.is_some() {
        for step in steps(seed, None) {
            println!("{step}");
        }
    }
    if let Err(broken) = run(seed, None, &mut coverage) {
        panic!("{broken}");
    }
    println!("seed {seed} broke nothing: {coverage}");
}
