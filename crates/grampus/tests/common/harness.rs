//! Tests of a program that is its own workers: it has a `main` of its own, which calls `init` first.

use std::panic::catch_unwind;
use std::time::Duration;

use grampus_core::{Clock, SystemClock, Time};

/// Longer than all of it takes on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Runs those of the tests that the arguments name, and ends the process.
pub fn run(tests: &[(&str, fn())]) {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let clock = SystemClock::start();
    std::thread::spawn(move || {
        std::thread::park_timeout(PATIENCE);
        eprintln!("the tests took longer than {PATIENCE:?}");
        std::process::exit(1);
    });
    let mut failed = 0;
    for (name, test) in tests {
        if !wanted.is_empty() && !wanted.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        let passed = catch_unwind(test).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += i32::from(!passed);
    }
    println!(
        "{failed} failed in {:.1} s",
        clock.now().since(Time::ZERO).as_secs_f64()
    );
    std::process::exit(i32::from(failed > 0));
}
