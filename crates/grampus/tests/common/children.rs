//! Programs that a test starts.

use std::process::{Child, Output};
use std::time::Duration;

use grampus_core::{Clock, SystemClock, Time};

/// What a program has printed when it ends, which it does within the limit.
pub fn finish(mut child: Child, limit: Duration) -> Output {
    let clock = SystemClock::start();
    while child.try_wait().unwrap().is_none() {
        if clock.now().since(Time::ZERO) > limit {
            child.kill().unwrap();
            panic!("it did not end");
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}
