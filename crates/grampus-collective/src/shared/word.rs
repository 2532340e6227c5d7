//! The words by which members tell each other how far they are: no system call while all keep pace.
//!
//! A word only grows (modulo 2³²). Whoever waits for it spins first; then it counts itself as a sleeper and sleeps
//! on the word. Whoever moves the word looks for sleepers afterwards. Both sides have a full fence between their
//! write and their look, so that one of them sees the other: no wake-up is lost. `model.rs` checks this.

use std::sync::atomic::Ordering;
use std::time::Duration;

/// An atomic word with a place to sleep on. Real ones lie in shared memory; the model checker has its own.
pub trait Word {
    /// The value; what was written before it was moved there is visible afterwards.
    fn load(&self, order: Ordering) -> u32;
    /// Moves it.
    fn store(&self, value: u32, order: Ordering);
    /// Adds, modulo 2³².
    fn add(&self, value: u32, order: Ordering);
    /// Orders all before against all after.
    fn fence();
    /// Sleeps while the word is `expected`, at most `limit`; may return early.
    fn wait(&self, expected: u32, limit: Duration);
    /// Wakes all who sleep.
    fn wake(&self);
}

/// Whether a word that is at `seen` has reached `target`.
pub fn reached(seen: u32, target: u32) -> bool {
    // Members are never further apart than a few phases, so half the range tells before from after.
    seen.wrapping_sub(target) < 1 << 31
}

/// Moves `word` and wakes those who sleep on it.
pub fn publish<W: Word>(word: &W, sleepers: &W, value: u32) {
    word.store(value, Ordering::Release);
    W::fence();
    if sleepers.load(Ordering::Relaxed) != 0 {
        word.wake();
    }
}

/// Sleeps until `word` has reached `target`, at most `limit`; may return early.
pub fn sleep_until<W: Word>(word: &W, sleepers: &W, target: u32, limit: Duration) {
    sleepers.add(1, Ordering::Relaxed);
    W::fence();
    let seen = word.load(Ordering::Acquire);
    if !reached(seen, target) {
        word.wait(seen, limit);
    }
    sleepers.add(1_u32.wrapping_neg(), Ordering::Relaxed);
}
