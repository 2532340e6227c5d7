//! What signals do to a supervisor, and what its workers inherit. A request to end comes as one, for example from a batch system
//! or at shutdown.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::pipe::{PipeFlags, pipe_with};

use super::SupervisorError;

static NOTE_TO: AtomicI32 = AtomicI32::new(-1);

/// Whatever a driver blocks or ignores must not be passed on to the workers: they would be deaf to a polite end. And where SIGCHLD
/// is ignored the kernel forgets how children ended: the supervisor could not tell, and nor could programs that workers start.
pub(crate) fn inherit_defaults() {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set, which is then valid for the second call; the last one sets no handler.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut());
    }
    expect_children();
}

/// From now on the kernel keeps how a child of this process ended until that is asked for.
pub(crate) fn expect_children() {
    // SAFETY: sets no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

const REQUESTS: [libc::c_int; 2] = [libc::SIGTERM, libc::SIGHUP];

/// While it lives, SIGTERM and SIGHUP end nothing by themselves: they make its descriptor readable.
pub(super) struct Signals {
    read: OwnedFd,
    _write: OwnedFd,
}

impl Signals {
    pub(super) fn catch() -> Result<Self, SupervisorError> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(SupervisorError::system("make a pipe"))?;
        NOTE_TO.store(write.as_raw_fd(), Ordering::SeqCst);
        for signal in REQUESTS {
            // SAFETY: the handler makes one system call, which is allowed in a handler.
            unsafe { libc::signal(signal, note as extern "C" fn(libc::c_int) as libc::sighandler_t) };
        }
        Ok(Self { read, _write: write })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for signal in REQUESTS {
            // SAFETY: sets no handler. Whoever rests has nobody to end, and ends at once.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        NOTE_TO.store(-1, Ordering::SeqCst);
    }
}

extern "C" fn note(_: libc::c_int) {
    let descriptor = NOTE_TO.load(Ordering::SeqCst);
    // SAFETY: writes one byte of a live buffer; a descriptor of -1 is refused by the kernel. What was
    // interrupted finds its own error number again.
    unsafe {
        let error = *libc::__errno_location();
        libc::write(descriptor, [0_u8].as_ptr().cast(), 1);
        *libc::__errno_location() = error;
    }
}
