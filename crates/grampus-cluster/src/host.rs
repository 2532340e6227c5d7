//! What this machine lets us use: cores, memory, processes, open files.

use std::fs;

use rustix::process::{Resource, getrlimit};
use rustix::thread::sched_getaffinity;

/// The limits that decide how many workers and threads make sense here.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Name of the host.
    pub name: String,
    /// Cores that this process may use: its CPU affinity and its control group's quota, at least 1.
    pub cores: u32,
    /// Bytes of memory that can still be taken, by the machine and by the control group.
    pub memory: u64,
    /// Files that this process may hold open.
    pub open_files: u64,
}

impl Facts {
    /// Reads them.
    pub fn read() -> Self {
        Self {
            name: name(),
            cores: cores(),
            memory: available_memory(),
            open_files: open_files(),
        }
    }
}

/// Name of this host.
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Cores that this process may use, at least 1.
pub fn cores() -> u32 {
    let allowed = sched_getaffinity(None).map_or(1, |set| set.count());
    let quota = [cpu_quota_v2(), cpu_quota_v1()]
        .into_iter()
        .flatten()
        .fold(f64::INFINITY, f64::min);
    // Half a core more than a whole number is worth a thread, less is not.
    let quota = if quota.is_finite() {
        quota.round().max(1.0) as u32
    } else {
        u32::MAX
    };
    allowed.min(quota).max(1)
}

fn cpu_quota_v2() -> Option<f64> {
    groups("cpu.max")
        .iter()
        .filter_map(|text| parse_cpu_max(text))
        .reduce(f64::min)
}

fn parse_cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

fn cpu_quota_v1() -> Option<f64> {
    let read = |name| {
        fs::read_to_string(format!("/sys/fs/cgroup/cpu/{name}"))
            .ok()?
            .trim()
            .parse::<f64>()
            .ok()
    };
    let quota = read("cpu.cfs_quota_us").filter(|quota| *quota > 0.0)?;
    Some(quota / read("cpu.cfs_period_us")?)
}

/// One file of the control group of this process and of every group above it.
fn groups(file: &str) -> Vec<String> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = own
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .unwrap_or("/")
        .to_owned();
    let mut found = Vec::new();
    let mut path = path.trim_end_matches('/');
    loop {
        found.extend(fs::read_to_string(format!("/sys/fs/cgroup{path}/{file}")));
        match path.rfind('/') {
            Some(cut) => path = &path[..cut],
            None => return found,
        }
    }
}

/// Bytes of memory that this process may still take, as the machine and its control group have it.
pub fn available_memory() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| meminfo(&text, "MemAvailable:"));
    let limit = groups("memory.max")
        .iter()
        .filter_map(|text| text.trim().parse::<u64>().ok())
        .min();
    let used = groups("memory.current")
        .first()
        .and_then(|text| text.trim().parse::<u64>().ok());
    let group = limit.map(|limit| limit.saturating_sub(used.unwrap_or(0)));
    machine.unwrap_or(u64::MAX).min(group.unwrap_or(u64::MAX))
}

fn meminfo(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

fn open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How often the kernel ended a process of this control group, or of the machine, for lack of memory.
pub fn out_of_memory_kills() -> u64 {
    let in_group = groups("memory.events")
        .iter()
        .filter_map(|text| counter(text, "oom_kill"))
        .max();
    let machine = fs::read_to_string("/proc/vmstat")
        .ok()
        .and_then(|text| counter(&text, "oom_kill"));
    in_group.unwrap_or(0).max(machine.unwrap_or(0))
}

fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// Threads for each of `workers` on a host: its cores divided among them, at least 1.
///
/// ```
/// assert_eq!(grampus_cluster::host::threads_per_worker(16, 4), 4);
/// assert_eq!(grampus_cluster::host::threads_per_worker(2, 3), 1);
/// ```
pub fn threads_per_worker(cores: u32, workers: u32) -> u32 {
    (cores / workers.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_and_counters_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_cpu_max("150000 100000\n"), Some(1.5));
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(
            meminfo("MemTotal: 9 kB\nMemAvailable:   12 kB\n", "MemAvailable:"),
            Some(12 * 1024)
        );
        assert_eq!(counter("oom 1\noom_kill 7\n", "oom_kill"), Some(7));
    }

    #[test]
    fn this_machine_has_something() {
        let facts = Facts::read();
        assert!(facts.cores >= 1 && facts.memory > 0 && facts.open_files > 0 && !facts.name.is_empty());
    }
}
