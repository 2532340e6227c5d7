//! The private folder of a job: its sockets and, unless the user names another place, its logs.
//!
//! It lies under the user's runtime folder, is removed by the driver when the job ends, by the supervisor
//! when the driver is killed, and by the next job where both were killed at once.
//!
//! Invariants; tests cite them by id:
//! - `JD-1` The folder of all jobs is locked while a job's folder is made, looked at or removed: jobs that start and
//!   end at the same time never take each other's for abandoned, nor find the folder of all jobs gone.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use grampus_core::{Clock, JobId, SystemClock, Time};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// A job's folder; removed when dropped.
pub struct JobDir {
    path: PathBuf,
    /// Held as long as the driver lives: whoever can take it has found a folder that nobody owns.
    _lock: File,
}

impl JobDir {
    /// Makes the folder of a job, and sweeps away those of jobs whose every process was killed.
    pub fn create(job: JobId) -> io::Result<Self> {
        let root = root();
        let _guard = guard(&root, FlockOperation::NonBlockingLockExclusive, true)?;
        sweep(&root);
        let path = root.join(job.to_string());
        make_private(&path)?;
        let lock = lock_file(&path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            let why =
                "a job of this very name and key runs on this host already: give it another `--rdzv-id`";
            io::Error::new(ErrorKind::AlreadyExists, why)
        })?;
        Ok(Self { path, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The coordinator's socket.
    pub fn socket(&self) -> PathBuf {
        self.path.join("coordinator")
    }

    /// Logs, where the user named no other place.
    pub fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }
}

impl Drop for JobDir {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes a job's folder, and that of all jobs where it was the last.
pub(crate) fn remove(path: &Path) {
    let Some(root) = path.parent() else { return };
    // Better unguarded than left behind.
    let _guard = guard(root, FlockOperation::NonBlockingLockExclusive, false);
    let _ = fs::remove_dir_all(path);
    // Fails while other jobs have theirs in it, as it should.
    let _ = fs::remove_dir(root);
}

/// The lock of the folder of all jobs.
struct Guard(File);

impl Drop for Guard {
    fn drop(&mut self) {
        // Closing would not do: a child that was forked meanwhile has a copy of the descriptor.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Locks the folder of all jobs (JD-1), after making it where that is asked for.
fn guard(root: &Path, how: FlockOperation, make: bool) -> io::Result<Guard> {
    const WITHIN: Duration = Duration::from_secs(5);
    let clock = SystemClock::start();
    loop {
        let made = if make { make_private(root) } else { Ok(()) };
        match made.and_then(|()| try_guard(root, how)) {
            Ok(Some(guard)) => return Ok(guard),
            // Another job has it, or took it away between two steps.
            Ok(None) => {}
            Err(error)
                if make && error.kind() == ErrorKind::NotFound && root.parent().is_some_and(Path::exists) => {
            }
            Err(error) => return Err(error),
        }
        if clock.now() > Time::ZERO + WITHIN {
            let why = format!(
                "another process has held {} for {WITHIN:?}: end it",
                root.display()
            );
            return Err(io::Error::new(ErrorKind::TimedOut, why));
        }
        pause();
    }
}

/// The lock is held for moments; there is no waiting for it with a deadline.
fn pause() {
    let millisecond = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    let _ = rustix::event::poll(&mut [], Some(&millisecond));
}

fn try_guard(root: &Path, how: FlockOperation) -> io::Result<Option<Guard>> {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits() as i32;
    let folder = OpenOptions::new().read(true).custom_flags(flags).open(root)?;
    match flock(&folder, how) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let guard = Guard(folder);
    // Who had it before may have removed the folder, and somebody else made it anew.
    let same = fs::symlink_metadata(root)
        .is_ok_and(|now| guard.0.metadata().is_ok_and(|was| was.ino() == now.ino()));
    Ok(same.then_some(guard))
}

/// The folder of all jobs of this user.
pub fn root() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    match std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|dir| is_private(dir))
    {
        Some(runtime) => runtime.join("grampus"),
        // Not the temporary folder of the environment: its path may be too long for a socket.
        None => own_folder(&format!("/tmp/grampus-{user}")),
    }
}

/// The first name that is ours or free: anybody can make a folder of the plain name in the common `/tmp`.
fn own_folder(name: &str) -> PathBuf {
    let plain = PathBuf::from(name);
    let others = (2..10).map(|number| PathBuf::from(format!("{name}-{number}")));
    // One look each: between two, another job may remove the folder and a third one make it again.
    let usable = |path: &PathBuf| fs::symlink_metadata(path).map_or(true, |meta| belongs_to_us(&meta));
    std::iter::once(plain.clone())
        .chain(others)
        .find(usable)
        .unwrap_or(plain)
}

/// The folders of all jobs of this user that live now.
pub fn live() -> Vec<PathBuf> {
    let root = root();
    // A view for people: better without the guard than not at all. Without the folder there is nothing to view, and
    // looking unguarded at one that is made a moment later would disturb its makers.
    let guard = guard(&root, FlockOperation::NonBlockingLockShared, false);
    if guard
        .as_ref()
        .is_err_and(|error| error.kind() == ErrorKind::NotFound)
    {
        return Vec::new();
    }
    let mut found: Vec<PathBuf> = entries(&root).filter(|path| !is_abandoned(path)).collect();
    found.sort();
    found
}

fn entries(root: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

fn lock_file(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path.join("lock"))
}

fn is_abandoned(path: &Path) -> bool {
    let lock = fs::OpenOptions::new().write(true).open(path.join("lock"));
    // Shared, so that two who look at the same time do not take each other for the owner.
    lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared).is_ok())
}

fn sweep(root: &Path) {
    for path in entries(root).filter(|path| is_abandoned(path)) {
        let _ = fs::remove_dir_all(path);
    }
}

fn is_private(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| belongs_to_us(&meta))
}

/// A folder that only we can read.
fn belongs_to_us(meta: &fs::Metadata) -> bool {
    meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o077 == 0
}

fn make_private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && is_private(path) => Ok(()),
        // Another job took it away since.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && fs::symlink_metadata(path).is_err() => {
            Err(ErrorKind::NotFound.into())
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(io::Error::new(
            ErrorKind::PermissionDenied,
            format!(
                "{} is open to other users: remove it, or run `chmod 700` on it",
                path.display()
            ),
        )),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_leaves_no_folder_and_sweeps_those_of_the_killed() {
        let dead = root().join("dead-for-test");
        let first = JobDir::create(JobId(0xfeed_0001)).unwrap();
        make_private(&dead).unwrap();
        drop(lock_file(&dead).unwrap());
        assert!(live().contains(&first.path().to_owned()) && !live().contains(&dead));
        let second = JobDir::create(JobId(0xfeed_0002)).unwrap();
        assert!(!dead.exists() && first.path().exists());
        let paths = [first.path().to_owned(), second.path().to_owned()];
        drop((first, second));
        assert!(paths.iter().all(|path| !path.exists()));
    }

    #[test]
    fn jobs_that_start_and_end_at_once_leave_each_other_alone() {
        // JD-1
        let cycles = |who: u64| {
            for number in 0..100 {
                let job = JobDir::create(JobId(0xfeed_1000_0000 + (who << 16) + number)).unwrap();
                assert!(live().contains(&job.path().to_owned()) && job.path().join("lock").exists());
            }
        };
        std::thread::scope(|scope| {
            for who in 0..4 {
                scope.spawn(move || cycles(who));
            }
        });
    }
}
