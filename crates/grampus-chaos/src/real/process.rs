//! Processes as `/proc` shows them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use grampus_core::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Whether a process runs, or would if it were not stopped; a zombie does not.
pub(super) fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it may hold anything, but no later parenthesis.
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !stat.is_empty() && !matches!(state, Some('Z' | 'X') | None)
}

/// When a process was started, in ticks since the machine was; nothing where it is gone.
pub(super) fn started(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, the state is the third value, and this the twenty-second.
    let rest = stat.rsplit(") ").next()?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

/// All processes that were started with a word in their environment, but not this one.
pub(super) fn marked(mark: &str) -> Vec<i32> {
    let own = std::process::id() as i32;
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != own && lives(*pid) && is_marked(*pid, mark))
        .collect()
}

fn is_marked(pid: i32, mark: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment
        .windows(mark.len())
        .any(|window| window == mark.as_bytes())
}

/// What a process was called with.
pub(super) fn command_line(pid: i32) -> String {
    let text = fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .replace('\0', " ")
        .trim()
        .to_owned()
}

/// Sends a signal; whoever is gone already needs none.
pub(super) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Waits until processes have ended; those that have not in time.
pub(super) fn wait_gone(pids: Vec<i32>, within: Duration, clock: &dyn Clock) -> Vec<i32> {
    let deadline = clock.now() + within;
    pids.into_iter()
        .filter(|pid| !ended(*pid, deadline.since(clock.now())))
        .collect()
}

fn ended(pid: i32, within: Duration) -> bool {
    let Some(Ok(watched)) = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty())) else {
        return !lives(pid);
    };
    let timeout = Timespec {
        tv_sec: within.as_secs() as i64,
        tv_nsec: within.subsec_nanos().into(),
    };
    // A signal to this program only makes the answer come early.
    let _ = poll(&mut [PollFd::new(&watched, PollFlags::IN)], Some(&timeout));
    !lives(pid)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use grampus_core::SystemClock;

    use super::*;

    #[test]
    fn a_process_is_found_by_its_mark_and_waited_for() {
        let clock = SystemClock::start();
        let mark = format!("grampus-chaos-test-{}", std::process::id());
        let mut child = Command::new("sleep")
            .arg("60")
            .env("MARK", &mark)
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        let deadline = clock.now() + Duration::from_secs(10);
        // The environment is its own only once it has become the other program.
        while marked(&mark) != [pid] && clock.now() < deadline {}
        assert_eq!(marked(&mark), [pid]);
        assert!(command_line(pid).starts_with("sleep"));
        assert_eq!(wait_gone(vec![pid], Duration::from_millis(1), &clock), [pid]);
        signal(pid, Signal::KILL);
        assert!(wait_gone(vec![pid], Duration::from_secs(10), &clock).is_empty());
        child.wait().unwrap();
        assert!(marked(&mark).is_empty());
    }
}
