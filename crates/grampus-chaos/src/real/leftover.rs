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

/// What was left behind, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Processes that still run, or are stopped.
    pub processes: Vec<String>,
    /// Sockets with a name.
    pub sockets: Vec<String>,
    /// Files and folders of the job, and temporary ones.
    pub files: Vec<String>,
    /// Named shared memory.
    pub memory: Vec<String>,
    /// Hosts that could not be removed.
    pub namespaces: Vec<String>,
}

impl Leftovers {
    /// All of it.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        let kinds = [
            &self.processes,
            &self.sockets,
            &self.files,
            &self.memory,
            &self.namespaces,
        ];
        kinds.into_iter().flatten()
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: Leftovers) {
        self.processes.extend(other.processes);
        self.sockets.extend(other.sockets);
        self.files.extend(other.files);
        self.memory.extend(other.memory);
        self.namespaces.extend(other.namespaces);
    }
}

/// Named shared memory as it is now.
pub(super) fn shared_memory() -> BTreeSet<PathBuf> {
    listed(Path::new("/dev/shm")).into_iter().collect()
}

/// All that is left of a run; `before` is the shared memory at its beginning.
pub(super) fn left_behind(place: &Place, before: &BTreeSet<PathBuf>, clock: &dyn Clock) -> Leftovers {
    let mark = place.mark();
    wait_gone(marked(&mark), GONE_WITHIN, clock);
    let (on_hosts, sockets_of_hosts) = match &place.network {
        Some(network) => network.left_behind(),
        None => Default::default(),
    };
    let processes = marked(&mark)
        .into_iter()
        .map(|pid| format!("process {pid}: {}", command_line(pid)));
    let files = listed(&place.runtime())
        .into_iter()
        .filter(|path| *path != place.temporary());
    let files = files.chain(listed(&place.temporary()));
    let memory = shared_memory().difference(before).cloned().collect();
    let named = |path: PathBuf| format!("file {}", path.display());
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let sockets = sockets
        .lines()
        .filter(|line| line.contains(&mark))
        .map(|line| format!("socket {line}"));
    Leftovers {
        processes: processes.chain(on_hosts).collect(),
        sockets: sockets.chain(sockets_of_hosts).collect(),
        files: files.map(named).collect(),
        memory: unused(memory).into_iter().map(named).collect(),
        namespaces: Vec::new(),
    }
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
