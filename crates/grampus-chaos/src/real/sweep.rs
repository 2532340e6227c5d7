//! Removes what dead processes of this program have left: each run does so before it begins, and a process of its own
//! right after one has died, however that was.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use grampus_core::SystemClock;
use rustix::process::Signal;

use super::error::{ChaosError, during};
use super::network::{command, namespaces, processes_in, remove};
use super::owner::Owner;
use super::process::{marked, signal, wait_gone};

/// A killed process is gone within this.
const GONE_WITHIN: Duration = Duration::from_secs(10);
/// A look at whether the process that is waited for still runs.
const LOOK: Duration = Duration::from_secs(3600);

/// Removes what dead ones have left, and says what that was.
pub fn sweep() -> Vec<String> {
    let clock = SystemClock::start();
    let is_dead = |name: &String| Owner::of(name).is_some_and(Owner::is_dead);
    let mut swept = Vec::new();
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| {
        entry
            .file_name()
            .to_str()
            .map(str::to_owned)
            .is_some_and(|name| is_dead(&name))
    });
    for folder in folders.map(|entry| entry.path()) {
        // First the drivers, which would start others.
        end(marked(&folder.display().to_string()), &clock);
        let disk = folder.join("work/saved").display().to_string();
        let _ = command(&["umount", "--lazy", &disk]);
        if fs::remove_dir_all(&folder).is_ok() {
            swept.push(folder.display().to_string());
        }
    }
    for host in namespaces().into_iter().filter(is_dead) {
        end(processes_in(&host), &clock);
        if remove(&host).is_ok() {
            swept.push(format!("namespace {host}"));
        }
    }
    swept
}

fn end(pids: Vec<i32>, clock: &SystemClock) {
    for pid in &pids {
        signal(*pid, Signal::KILL);
    }
    wait_gone(pids, GONE_WITHIN, clock);
}

/// Waits for the end of a process, however long it takes.
pub fn wait_for_end(pid: i32) {
    let clock = SystemClock::start();
    while !wait_gone(vec![pid], LOOK, &clock).is_empty() {}
}

/// A process that sweeps once this one has died; where this one ends as it should, there is nothing to sweep.
pub struct Sweeper(Child);

impl Sweeper {
    /// Starts it.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn start() -> Result<Sweeper, ChaosError> {
        let program = during("cannot find this program", std::env::current_exe())?;
        let mut command = Command::new(program);
        command.arg(format!("--sweep={}", std::process::id()));
        // Neither Ctrl-C, which is for this process, nor its output, which ends with this process.
        command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(Sweeper(during("cannot start the sweeper", command.spawn())?))
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
