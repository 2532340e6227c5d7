//! What a run has left behind: nothing, or a broken promise.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use grampus_core::Clock;

use super::place::Place;
use super::process::{command_line, marked, wait_gone};

/// The promise is about what stays, not about the moment in which it goes.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// Named shared memory as it is now.
pub(super) fn shared_memory() -> BTreeSet<PathBuf> {
    listed(Path::new("/dev/shm")).into_iter().collect()
}

/// All that is left of a run, in words; `before` is the shared memory at its beginning.
pub(super) fn left_behind(place: &Place, before: &BTreeSet<PathBuf>, clock: &dyn Clock) -> Vec<String> {
    let mark = place.mark();
    wait_gone(marked(&mark), GONE_WITHIN, clock);
    let processes = marked(&mark)
        .into_iter()
        .map(|pid| format!("process {pid}: {}", command_line(pid)));
    let files = listed(&place.runtime())
        .into_iter()
        .filter(|path| *path != place.temporary());
    let files = files.chain(listed(&place.temporary()));
    let memory = shared_memory().difference(before).cloned().collect();
    let found = files
        .chain(unused(memory))
        .map(|path| format!("file {}", path.display()));
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let sockets = sockets
        .lines()
        .filter(|line| line.contains(&mark))
        .map(|line| format!("socket {line}"));
    processes.chain(found).chain(sockets).collect()
}

/// Those that no process of somebody else on this machine has in use.
fn unused(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    if paths.is_empty() {
        return paths;
    }
    let maps: Vec<String> = listed(Path::new("/proc"))
        .into_iter()
        .filter_map(|process| fs::read_to_string(process.join("maps")).ok())
        .collect();
    let is_unused = |path: &PathBuf| !maps.iter().any(|map| map.contains(&path.display().to_string()));
    paths.into_iter().filter(is_unused).collect()
}

fn listed(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
