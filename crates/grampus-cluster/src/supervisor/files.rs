//! The log files of a host, whose thread wakes the supervisor's loop when they have something to tell.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::SupervisorError;
use crate::rankfile::{FileEvent, RankFiles};

pub(super) struct LogFiles {
    files: RankFiles,
    events: mpsc::Receiver<FileEvent>,
    waker: Arc<OwnedFd>,
}

impl LogFiles {
    pub(super) fn open(dir: PathBuf) -> Result<Self, SupervisorError> {
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(SupervisorError::system("make an event"))?;
        let waker = Arc::new(waker);
        let (sender, events) = mpsc::channel();
        let wakes = Arc::clone(&waker);
        let tell = move |event| {
            // A supervisor that is about to end does not look any more.
            let _ = sender.send(event);
            let _ = rustix::io::write(&wakes, &1_u64.to_ne_bytes());
        };
        let files = RankFiles::open(dir, tell).map_err(failed)?;
        Ok(Self { files, events, waker })
    }

    /// Becomes readable when there are events.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }

    /// What came since the last call.
    pub(super) fn events(&self) -> Vec<FileEvent> {
        // Empty where nothing came: the read does not wait.
        let _ = rustix::io::read(&self.waker, &mut [0; 8]);
        self.events.try_iter().collect()
    }

    pub(super) fn create(&self, rank: u32) {
        self.files.create(rank);
    }

    pub(super) fn write(&self, rank: u32, bytes: &[u8]) {
        self.files.write(rank, bytes);
    }

    pub(super) fn settle(&self, within: Duration) {
        self.files.settle(within);
    }

    pub(super) fn close(&self, within: Duration) -> Vec<String> {
        self.files.close(within)
    }
}

fn failed(source: io::Error) -> SupervisorError {
    SupervisorError::System {
        what: "start the thread that writes log files",
        source,
    }
}
