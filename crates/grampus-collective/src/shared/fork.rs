//! What a forked child inherits is its parent's: it must neither use it nor clean it up.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

static FORKS: AtomicU64 = AtomicU64::new(0);

/// The process that something belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u64);

impl Owner {
    /// This process.
    pub fn here() -> Self {
        static WATCH: Once = Once::new();
        // SAFETY: the handler only counts, which is allowed in a child of a process with several threads.
        WATCH.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(forked));
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this process is a child that was forked meanwhile. Costs no system call.
    pub fn is_parent(self) -> bool {
        self.0 != FORKS.load(Ordering::Relaxed)
    }
}

unsafe extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
