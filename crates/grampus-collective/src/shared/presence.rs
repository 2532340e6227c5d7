//! Whether a member's process still lives: it holds a lock that the kernel takes back when it ends.
//!
//! A lock of the process (not of the open file) is what survives a fork unshared: children that a user's data
//! loader forks hold no lock, whereas a socket would stay open in them and hide the death of their parent. Such
//! locks go when the process closes any descriptor of the file, so a process keeps exactly one for each segment.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::CollectiveError;

/// Takes the lock of a member for this process.
pub(crate) fn appear(fd: BorrowedFd<'_>, member: usize) -> Result<(), CollectiveError> {
    let mut lock = range(member);
    // SAFETY: the descriptor is open and the structure outlives the call.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLK, &raw mut lock) } == 0 {
        return Ok(());
    }
    Err(CollectiveError::System(format!(
        "cannot lock shared memory: {}",
        io::Error::last_os_error()
    )))
}

/// Whether another process holds the lock of a member. Where the kernel cannot tell, it is taken to live: silence
/// ends the wait then.
pub(crate) fn lives(fd: BorrowedFd<'_>, member: usize) -> bool {
    let mut lock = range(member);
    // SAFETY: as above.
    let told = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETLK, &raw mut lock) } == 0;
    !told || i32::from(lock.l_type) != libc::F_UNLCK
}

fn range(member: usize) -> libc::flock {
    // SAFETY: a structure of integers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = member as libc::off_t;
    lock.l_len = 1;
    lock
}
