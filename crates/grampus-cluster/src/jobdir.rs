//! The private folder of a job: its sockets and, unless the user names another place, its logs.
//!
//! It lies under the user's runtime folder, is removed by the driver when the job ends, by the supervisor
//! when the driver is killed, and by the next job where both were killed at once.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use grampus_core::JobId;
use rustix::fs::{FlockOperation, flock};

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
        make_private(&root)?;
        sweep(&root);
        let path = root.join(job.to_string());
        make_private(&path)?;
        let lock = lock_file(&path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
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
        let _ = fs::remove_dir_all(&self.path);
        // Fails while other jobs have theirs in it, as it should.
        let _ = self.path.parent().map(fs::remove_dir);
    }
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
        None => PathBuf::from(format!("/tmp/grampus-{user}")),
    }
}

/// The folders of all jobs of this user that live now.
pub fn live() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = entries(&root()).filter(|path| !is_abandoned(path)).collect();
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
    lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok())
}

fn sweep(root: &Path) {
    for path in entries(root).filter(|path| is_abandoned(path)) {
        let _ = fs::remove_dir_all(path);
    }
}

fn is_private(path: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(path)
        .is_ok_and(|meta| meta.is_dir() && meta.uid() == user && meta.mode() & 0o077 == 0)
}

fn make_private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_private(path) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
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
}
