//! A file that holds up whoever opens it, so that a test can kill processes at exactly that place.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// `F_SETSIG` of Linux, which this platform's crate does not name.
const SET_SIGNAL: libc::c_int = 10;

/// A lease on a file: the kernel lets no other process open it until it is given back, which takes at most the 45 s of
/// `/proc/sys/fs/lease-break-time`.
pub struct Gate {
    file: File,
    inode: u64,
}

impl Gate {
    /// Puts a copy of a file into its place. Those who have the file open already are not held up.
    pub fn shut(path: &str) -> Self {
        let copy = format!("{path}.gate");
        fs::copy(path, &copy).unwrap();
        let file = File::open(&copy).unwrap();
        let inode = file.metadata().unwrap().ino();
        // A signal that is ignored unless it is asked for; without this it would be one that ends the process.
        control(&file, SET_SIGNAL, libc::SIGURG);
        control(&file, libc::F_SETLEASE, libc::F_WRLCK);
        fs::rename(&copy, path).unwrap();
        Self { file, inode }
    }

    /// The processes that it holds up, as the kernel lists them:
    ///
    /// ```text
    /// 5: LEASE  BREAKING  READ 19726 fe:00:10930504 0 EOF
    /// 5: -> LEASE  BREAKER   READ 19769 <none>:0 0 EOF
    /// ```
    pub fn waiting(&self) -> BTreeSet<u32> {
        let text = fs::read_to_string("/proc/locks").unwrap();
        let lines = || {
            text.lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>())
        };
        let place = format!(":{}", self.inode);
        let own = lines().find(|words| words[1] == "LEASE" && words[5].ends_with(&place));
        let Some(own) = own else {
            return BTreeSet::new();
        };
        lines()
            .filter(|words| words[0] == own[0] && words[1] == "->")
            .map(|words| words[5].parse().unwrap())
            .collect()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        control(&self.file, libc::F_SETLEASE, libc::F_UNLCK);
    }
}

fn control(file: &File, what: libc::c_int, value: libc::c_int) {
    // SAFETY: of a file that is open; neither takes a pointer.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), what, value) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
