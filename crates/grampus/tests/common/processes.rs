//! Processes of a test.

use std::fs;
use std::path::Path;

/// Kills one worker of this process; false where there is none.
pub fn kill_a_worker() -> bool {
    kill_workers(1) == 1
}

/// Kills so many workers of this process; says how many there were.
pub fn kill_workers(most: usize) -> usize {
    let workers = descendants()
        .into_iter()
        .filter(|pid| role(*pid).starts_with("worker:"));
    let killed = workers.take(most).filter(|pid| {
        let pid = rustix::process::Pid::from_raw(*pid as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok()
    });
    killed.count()
}

/// Processes and folders that this process should not have left.
pub fn leftovers() -> Vec<String> {
    let processes = descendants().into_iter().map(|pid| format!("process {pid}"));
    let root = grampus_cluster::jobdir::root();
    let folders = fs::read_dir(root).into_iter().flatten().flatten();
    processes
        .chain(folders.map(|entry| entry.path().display().to_string()))
        .collect()
}

fn role(pid: u32) -> String {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut found = environment
        .split(|byte| *byte == 0)
        .filter_map(|word| word.strip_prefix(b"GRAMPUS_ROLE="));
    found
        .next_back()
        .map_or(String::new(), |role| String::from_utf8_lossy(role).into_owned())
}

/// Children of this process, and theirs, that have not ended.
fn descendants() -> Vec<u32> {
    let all: Vec<(u32, u32, char)> = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| status(&entry.path()))
        .collect();
    let mut found = vec![std::process::id()];
    let mut at = 0;
    while at < found.len() {
        let children = all
            .iter()
            .filter(|(_, parent, state)| *parent == found[at] && *state != 'Z');
        let children: Vec<u32> = children.map(|(pid, ..)| *pid).collect();
        found.extend(children);
        at += 1;
    }
    found.split_off(1)
}

fn status(process: &Path) -> Option<(u32, u32, char)> {
    let pid = process.file_name()?.to_str()?.parse().ok()?;
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?.chars().next()?;
    Some((pid, words.next()?.parse().ok()?, state))
}
