//! Ending whole process trees.

use std::fs;
use std::time::Duration;

use grampus_core::{Clock, SystemClock};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, wait};

/// Ends every process of a group. One that is gone already is no error.
pub fn kill_group(leader: u32) {
    if let Some(group) = pid(leader) {
        // The group may be empty by now, which is what we want.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Asks every process of a group to end.
pub fn terminate_group(leader: u32) {
    if let Some(group) = pid(leader) {
        let _ = kill_process_group(group, Signal::TERM);
    }
}

/// Ends every child of this process, and, as a subreaper inherits them, every child of theirs, until none
/// is left (SU-1) or the time is up.
pub(super) fn kill_descendants(within: Duration) {
    let clock = SystemClock::start();
    let end = clock.now() + within;
    while clock.now() < end {
        for child in children() {
            let _ = kill_process(child, Signal::KILL);
        }
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => pause(),
            Err(_) => return,
        }
    }
}

/// A killed process takes a moment to be gone; there is no descriptor to wait on for an unknown one.
fn pause() {
    let millisecond = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    let _ = rustix::event::poll(&mut [], Some(&millisecond));
}

/// The children of this process, adopted ones included.
pub(super) fn children() -> Vec<Pid> {
    let own = std::process::id();
    let listed = fs::read_to_string(format!("/proc/self/task/{own}/children"));
    match listed {
        Ok(text) => text
            .split_whitespace()
            .filter_map(|word| pid(word.parse().ok()?))
            .collect(),
        // Kernels without that file: look at every process.
        Err(_) => all_processes()
            .filter(|(_, parent)| *parent == own)
            .filter_map(|(child, _)| pid(child))
            .collect(),
    }
}

/// Every process with its parent.
fn all_processes() -> impl Iterator<Item = (u32, u32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let process: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name may hold spaces and brackets; the fields follow its last bracket.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        Some((process, parent))
    })
}

fn pid(raw: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(raw).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_has_its_parent() {
        let own = std::process::id();
        assert!(all_processes().any(|(process, _)| process == own));
    }
}
