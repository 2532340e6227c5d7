//! A request to end that comes as a signal, for example from a batch system or at shutdown.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::pipe::{PipeFlags, pipe_with};

use super::SupervisorError;

static NOTE_TO: AtomicI32 = AtomicI32::new(-1);

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
        for signal in [libc::SIGTERM, libc::SIGHUP] {
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
