//! What a supervisor does before it serves: the first order, a look at its driver, and what a worker is told.

use std::fs;
use std::io::{Seek, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

use grampus_core::{Clock, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, set_parent_process_death_signal};

use super::control::Control;
use super::message::{Configure, Launch, Order};
use super::{SupervisorError, child};
use crate::jobdir;

/// How long the first order may take; the driver writes it before anything else.
const CONFIGURE_WITHIN: Duration = Duration::from_secs(30);

pub(super) fn first_order(control: &mut Control, clock: &SystemClock) -> Result<Configure, SupervisorError> {
    let end = clock.now() + CONFIGURE_WITHIN;
    while clock.now() < end {
        match control.next_order()? {
            Some(Order::Configure(configure)) => return Ok(*configure),
            Some(_) => {}
            None => {
                let second = Timespec {
                    tv_sec: 1,
                    tv_nsec: 0,
                };
                let mut fds = [PollFd::from_borrowed_fd(control.input(), PollFlags::IN)];
                let _ = poll(&mut fds, Some(&second));
                if !fds[0].revents().is_empty() && !control.fill() {
                    break;
                }
            }
        }
    }
    Err(SupervisorError::NoDriver)
}

pub(super) fn watch_driver(configure: &Configure) -> Result<Option<OwnedFd>, SupervisorError> {
    let Some(driver) = configure.driver else {
        return Ok(None);
    };
    let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get() as u32);
    match Pid::from_raw(driver as i32) {
        Some(pid) if parent == Some(driver) => {
            let watched = child::watch(pid)?;
            set_parent_process_death_signal(Some(Signal::TERM))
                .map_err(SupervisorError::system("ask for a parent-death signal"))?;
            Ok(Some(watched))
        }
        _ => {
            // It was killed before this process could look at it, and nobody else knows of its folder.
            if let Some(folder) = &configure.remove {
                jobdir::remove(folder);
            }
            Err(SupervisorError::NoDriver)
        }
    }
}

/// What a worker that is started as a program needs to know, on a descriptor of its own, so that it stands
/// neither in arguments nor in the environment. In memory, which unlike a pipe takes any length.
pub(super) fn secret(configure: &Configure, launch: &Launch) -> Result<Option<OwnedFd>, SupervisorError> {
    if configure.join.is_empty() {
        return Ok(None);
    }
    let failed = SupervisorError::system("make memory for a secret");
    let memory = rustix::fs::memfd_create("grampus", rustix::fs::MemfdFlags::CLOEXEC).map_err(failed)?;
    let numbers = [launch.worker.0, u64::from(launch.slot)].map(|number| number.to_string());
    let settings =
        [u64::from(configure.threads()), configure.silent_after_ms].map(|number| number.to_string());
    let folder = configure.folder().unwrap_or_default();
    let words = [&configure.join]
        .into_iter()
        .chain(&numbers)
        .chain([&configure.host])
        .chain(&settings)
        .chain([&folder]);
    let text = words
        .chain(&configure.sys_path)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("\0");
    let mut file = fs::File::from(memory);
    file.write_all(text.as_bytes())
        .and_then(|()| file.rewind())
        .map_err(|source| SupervisorError::System {
            what: "write a secret",
            source,
        })?;
    Ok(Some(file.into()))
}
