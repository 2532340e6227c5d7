//! The supervisor's end of the line to its driver.

use std::collections::VecDeque;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use grampus_net::{Frame, Limits, pipe};
use rustix::io::Errno;

use super::SupervisorError;
use super::message::{Order, Report};
use crate::launcher::LaunchEvent;

/// Output is not read from workers while more than this waits for a slow driver.
const FULL: usize = 1 << 20;

pub(super) struct Control {
    input: OwnedFd,
    output: OwnedFd,
    decoder: pipe::Decoder,
    waiting: VecDeque<u8>,
    limits: Limits,
    /// Nobody is at the other end any more.
    closed: bool,
}

impl Control {
    pub(super) fn new(input: OwnedFd, output: OwnedFd) -> Result<Self, SupervisorError> {
        for fd in [&input, &output] {
            rustix::io::ioctl_fionbio(fd, true).map_err(SupervisorError::system("set up its pipes"))?;
        }
        let limits = Limits::default();
        let decoder = pipe::Decoder::new(&limits);
        Ok(Self {
            input,
            output,
            decoder,
            waiting: VecDeque::new(),
            limits,
            closed: false,
        })
    }

    pub(super) fn input(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }

    pub(super) fn output(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    pub(super) fn wants_to_write(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() > FULL
    }

    /// Reads what is there; false at the end of input, which means that the driver is gone.
    pub(super) fn fill(&mut self) -> bool {
        let mut bytes = [0; 16 * 1024];
        match rustix::io::read(&self.input, &mut bytes) {
            Ok(0) => false,
            Ok(length) => {
                self.decoder.push(&bytes[..length]);
                true
            }
            Err(errno) => matches!(errno, Errno::AGAIN | Errno::INTR),
        }
    }

    /// From now on nothing is read, and what is reported is dropped.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.waiting.clear();
        self.decoder = pipe::Decoder::new(&self.limits);
    }

    pub(super) fn next_order(&mut self) -> Result<Option<Order>, SupervisorError> {
        Ok(self.decoder.next()?.map(|frame| frame.read()).transpose()?)
    }

    /// Queues a report and writes what the pipe takes now.
    pub(super) fn report(&mut self, report: &Report) -> Result<(), SupervisorError> {
        if self.closed {
            return Ok(());
        }
        let frame = Frame::message(report)?;
        let mut bytes = Vec::new();
        pipe::write_frame(&mut bytes, &frame, &self.limits)?;
        self.waiting.extend(bytes);
        self.flush();
        Ok(())
    }

    /// The same for what happened to a process.
    pub(super) fn tell(&mut self, event: LaunchEvent) -> Result<(), SupervisorError> {
        self.report(&Report::Event(event))
    }

    /// Writes what the pipe takes. A broken pipe shows as the end of input as well, so it is not told here.
    pub(super) fn flush(&mut self) {
        while !self.waiting.is_empty() {
            let (front, _) = self.waiting.as_slices();
            match rustix::io::write(&self.output, front) {
                Ok(length) => drop(self.waiting.drain(..length)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => return self.waiting.clear(),
            }
        }
    }
}

/// Standard input and output, which from now on lead elsewhere.
pub(super) fn take_stdio() -> Result<(OwnedFd, OwnedFd), SupervisorError> {
    let duplicate = |fd: BorrowedFd<'_>| {
        rustix::io::fcntl_dupfd_cloexec(fd, 10).map_err(SupervisorError::system("take over its pipes"))
    };
    let input = duplicate(rustix::stdio::stdin())?;
    let output = duplicate(rustix::stdio::stdout())?;
    let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    let null = null.map_err(|source| SupervisorError::System {
        what: "open /dev/null",
        source,
    })?;
    rustix::stdio::dup2_stdin(&null).map_err(SupervisorError::system("take over its pipes"))?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())
        .map_err(SupervisorError::system("take over its pipes"))?;
    Ok((input, output))
}
