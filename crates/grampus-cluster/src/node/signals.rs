//! Ctrl-C and its kin as events. They are blocked in every thread and taken by one, so that no code runs
//! inside a signal handler. The supervisor unblocks them again for the programs that it starts.

use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Listens until closed; then the signals do again what they did before.
pub(super) struct Signals {
    before: libc::sigset_t,
    over: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Signals {
    pub(super) fn listen(tell: impl Fn(i32) + Send + 'static) -> io::Result<Self> {
        let set = signal_set();
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are valid for the call, which fills the second.
        let result = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr()) };
        if result != 0 {
            return Err(io::Error::from_raw_os_error(result));
        }
        // SAFETY: filled by the call above.
        let before = unsafe { before.assume_init() };
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let thread = thread::Builder::new()
            .name("grampus-signals".to_owned())
            .spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    if let Some(signal) = wait(&set) {
                        tell(signal);
                    }
                }
            })?;
        Ok(Self { before, over, thread })
    }

    pub(super) fn close(self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
        // SAFETY: a set that the system gave us.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

fn signal_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set; the signals are valid numbers.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in SIGNALS {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// The next signal, or nothing after a moment.
fn wait(set: &libc::sigset_t) -> Option<i32> {
    let moment = libc::timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };
    // SAFETY: the set and the time are valid; no information about the signal is asked for.
    let signal = unsafe { libc::sigtimedwait(set, std::ptr::null_mut(), &raw const moment) };
    (signal > 0).then_some(signal)
}
