//! Members as real processes that are killed and stopped at random moments.
//!
//! `GRAMPUS_FAULTS=100` makes as many faults of each kind, `GRAMPUS_SEED=…` repeats a run.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod forks;
mod member;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "these tests need a part of it")]
mod support;
mod team;
mod zombies;

use std::time::Duration;

use grampus_core::{Clock, SystemClock};
use rustix::process::Signal;

use support::{pause, random, within};
use team::Team;

const SIZE: usize = 4;
/// What may pass between the moment when a fault can be known and the error.
const GRACE: Duration = Duration::from_secs(2);

fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |text| text.parse().unwrap())
}

/// Printed, so that what failed can be tried again.
fn seed() -> u64 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap();
    let seed = number("GRAMPUS_SEED", now.as_micros() as u64);
    eprintln!("GRAMPUS_SEED={seed}");
    seed
}

/// Somewhere in the middle of whatever the members do.
fn moment(seed: u64, round: u64) -> Duration {
    Duration::from_micros(random(seed, 2 * round) % 15_000)
}

/// All survivors name the victim, in the same words and in time.
fn all_name(team: &mut Team, victim: usize, how: &str, limit: Duration) {
    let clock = SystemClock::start();
    let survivors = (0..SIZE).filter(|rank| *rank != victim);
    let said: Vec<String> = survivors.map(|rank| team.error(rank, limit)).collect();
    let wanted = format!("lost rank {victim} on here during ");
    for words in &said {
        assert!(words.starts_with(&wanted) && words.contains(how), "{words}");
        assert_eq!(*words, said[0], "after {:?}", clock.now());
    }
}

/// The test harness starts this as a process of its own; alone it does nothing.
#[test]
#[ignore = "is a member of the other tests' groups"]
fn member_process() {
    if std::env::var_os(team::MEMBER).is_some() {
        member::run();
    }
}

#[test]
fn a_killed_member_is_named_and_replaced() {
    within(300, || {
        let seed = seed();
        let mut team = Team::start(SIZE, Duration::from_secs(15));
        for round in 0..number("GRAMPUS_FAULTS", 25) {
            team.form(random(seed, round));
            pause(moment(seed, round));
            let victim = random(seed, 2 * round + 1) as usize % SIZE;
            team.signal(victim, Signal::KILL);
            all_name(&mut team, victim, "its process ended", GRACE);
            team.replace(victim);
        }
        team.form(seed);
    });
}

#[test]
fn a_stopped_member_is_named_and_gets_an_error_when_it_goes_on() {
    within(600, || {
        let seed = seed();
        let silence = Duration::from_secs(1);
        let mut team = Team::start(SIZE, silence);
        for round in 0..number("GRAMPUS_FAULTS", 10) {
            team.form(random(seed, round));
            pause(moment(seed, round));
            let victim = random(seed, 2 * round + 1) as usize % SIZE;
            team.signal(victim, Signal::STOP);
            all_name(&mut team, victim, "gives no sign of life", silence + GRACE);
            if round % 2 == 0 {
                // It goes on, and comes to the next generation itself.
                team.signal(victim, Signal::CONT);
                team.error(victim, GRACE);
            } else {
                // The others go on without it, and it wakes up beside them.
                let mut stopped = team.replace(victim);
                team.form(random(seed, round + 7));
                stopped.signal(Signal::CONT);
                stopped.error(GRACE);
                stopped.exit();
                team.signal(0, Signal::KILL);
                all_name(&mut team, 0, "its process ended", GRACE);
                team.replace(0);
            }
        }
        team.form(seed);
    });
}

/// A job that is suspended as a whole, and goes on later, has lost nobody.
#[test]
fn members_that_stand_still_together_go_on_together() {
    within(60, || {
        let mut team = Team::start(SIZE, Duration::from_secs(1));
        team.form(1);
        pause(Duration::from_millis(20));
        (0..SIZE).for_each(|rank| team.signal(rank, Signal::STOP));
        pause(Duration::from_secs(3));
        for rank in 0..SIZE {
            team.signal(rank, Signal::CONT);
            pause(Duration::from_millis(30));
        }
        pause(Duration::from_millis(1200));
        team.signal(1, Signal::KILL);
        all_name(&mut team, 1, "its process ended", GRACE);
    });
}
