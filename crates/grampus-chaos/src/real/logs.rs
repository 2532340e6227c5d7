//! A folder of logs whose files are pipes, so that they can be made to take nothing more.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use super::error::{ChaosError, during};

/// As little as a pipe can hold: it is full soon.
const PIPE: usize = 4096;
/// Between two looks at pipes that are not to be read.
const PAUSE: Duration = Duration::from_millis(20);
/// No file is stalled.
const NONE: usize = usize::MAX;

/// The logs of a run, read by a thread until it is dropped.
pub(super) struct LogFolder {
    stalled: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl LogFolder {
    pub(super) fn make(path: PathBuf, ranks: usize) -> Result<LogFolder, ChaosError> {
        let made = fs::create_dir(&path).and_then(|()| {
            (0..ranks)
                .map(|rank| pipe(&path.join(format!("rank-{rank}.log"))))
                .collect()
        });
        let mut pipes: Vec<File> = during(format!("cannot make pipes in {}", path.display()), made)?;
        let (stalled, over) = (Arc::new(AtomicUsize::new(NONE)), Arc::new(AtomicBool::new(false)));
        let (now_stalled, is_over) = (Arc::clone(&stalled), Arc::clone(&over));
        let reader = std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let except = now_stalled.load(Ordering::Relaxed);
                read_all(&mut pipes, except);
            }
        });
        Ok(LogFolder {
            stalled,
            over,
            reader: Some(reader),
        })
    }

    /// Reads nothing more of what one rank writes.
    pub(super) fn stall(&self, rank: usize) {
        self.stalled.store(rank, Ordering::Relaxed);
    }

    /// Reads everything again.
    pub(super) fn flow(&self) {
        self.stalled.store(NONE, Ordering::Relaxed);
    }
}

impl Drop for LogFolder {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Makes a pipe with a name, and opens it for both, so that neither side finds the other missing.
fn pipe(path: &Path) -> std::io::Result<File> {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    let mut options = File::options();
    options.read(true).write(true);
    let file = options.custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    rustix::pipe::fcntl_setpipe_size(&file, PIPE)?;
    Ok(file)
}

/// Reads what has come, of all pipes but one, and waits a moment where nothing has.
fn read_all(pipes: &mut [File], except: usize) {
    let mut space = [0; PIPE];
    for (_, pipe) in pipes.iter_mut().enumerate().filter(|(rank, _)| *rank != except) {
        while match pipe.read(&mut space) {
            Ok(count) => count > 0,
            Err(error) => error.kind() == ErrorKind::Interrupted,
        } {}
    }
    let read = pipes.iter().enumerate().filter(|(rank, _)| *rank != except);
    let mut waited: Vec<PollFd<'_>> = read.map(|(_, pipe)| PollFd::new(pipe, PollFlags::IN)).collect();
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: PAUSE.as_nanos() as i64,
    };
    let _ = poll(&mut waited, Some(&timeout));
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_log_that_is_stalled_takes_a_pipe_and_no_more_until_it_flows() {
        let folder = tempfile::tempdir().unwrap();
        let logs = LogFolder::make(folder.path().join("logs"), 2).unwrap();
        let open = |rank: usize| {
            let path = folder.path().join(format!("logs/rank-{rank}.log"));
            File::options().write(true).open(path).unwrap()
        };
        logs.stall(1);
        // Far more than fits.
        open(0).write_all(&[b'.'; 20 * PIPE]).unwrap();
        let mut stalled = open(1);
        // What is on its way when the log is stalled may still be read.
        stalled.write_all(&[b'.'; PIPE / 2]).unwrap();
        let writer = std::thread::spawn(move || stalled.write_all(&[b'.'; 20 * PIPE]).is_ok());
        std::thread::park_timeout(PAUSE * 5);
        assert!(!writer.is_finished());
        logs.flow();
        assert!(writer.join().unwrap());
    }
}
