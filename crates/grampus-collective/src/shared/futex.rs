//! Words in shared memory, on the kernel's futexes.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use rustix::thread::futex;

use super::word::Word;

impl Word for AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        AtomicU32::load(self, order)
    }

    fn store(&self, value: u32, order: Ordering) {
        AtomicU32::store(self, value, order);
    }

    fn add(&self, value: u32, order: Ordering) {
        self.fetch_add(value, order);
    }

    fn fence() {
        fence(Ordering::SeqCst);
    }

    fn wait(&self, expected: u32, limit: Duration) {
        let limit = futex::Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        // Not private: the sleeper and the waker are different processes. Every way to return means: look again.
        let _ = futex::wait(self, futex::Flags::empty(), expected, Some(&limit));
    }

    fn wake(&self) {
        let _ = futex::wake(self, futex::Flags::empty(), i32::MAX as u32);
    }
}
