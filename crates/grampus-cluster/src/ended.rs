//! What is left of a process that has ended.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use grampus_core::Exit;

/// How it ended.
pub(crate) fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, signal) => Exit::Signal(signal.unwrap_or(0)),
    }
}

/// The same for people, of a child that was waited for.
pub(crate) fn describe(status: io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => exit_of(status).to_string(),
        // The user's program has asked the kernel to forget its children.
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
            "ended with an unknown status: this program ignores SIGCHLD".to_owned()
        }
        Err(error) => format!("cannot be waited for: {error}"),
    }
}

/// Bytes that are kept of its standard error.
const KEPT: usize = 4096;

/// What it said last.
#[derive(Default)]
pub(crate) struct Tail(Vec<u8>);

impl Tail {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        let surplus = self.0.len().saturating_sub(KEPT);
        self.0.drain(..surplus);
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).trim().to_owned()
    }
}
