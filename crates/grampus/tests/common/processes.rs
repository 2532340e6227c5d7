//! Processes that a program has started.

use std::fs;
use std::path::Path;

/// The workers of a process.
pub fn workers(of: u32) -> Vec<u32> {
    let all = descendants(of).into_iter();
    all.filter(|pid| role(*pid).starts_with("worker:")).collect()
}

/// Children of a process, and theirs, that have not ended.
pub fn descendants(of: u32) -> Vec<u32> {
    let all: Vec<(u32, u32, char)> = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| status(&entry.path()))
        .collect();
    let mut found = vec![of];
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

/// Whether a process has not ended.
pub fn lives(pid: u32) -> bool {
    let found = status(Path::new(&format!("/proc/{pid}")));
    found.is_some_and(|(_, _, state)| state != 'Z')
}

/// What it was started as.
fn role(pid: u32) -> String {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut found = environment
        .split(|byte| *byte == 0)
        .filter_map(|word| word.strip_prefix(b"GRAMPUS_ROLE="));
    found
        .next_back()
        .map_or(String::new(), |role| String::from_utf8_lossy(role).into_owned())
}

fn status(process: &Path) -> Option<(u32, u32, char)> {
    let pid = process.file_name()?.to_str()?.parse().ok()?;
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?.chars().next()?;
    Some((pid, words.next()?.parse().ok()?, state))
}
