//! How much this process may take: files, processes, cores, memory.

use std::fs;

use grampus_cluster::host::{self, Facts};
use grampus_cluster::launch::admit;
use rustix::process::{Resource, geteuid, getrlimit};
use rustix::thread::sched_getaffinity;

use super::check::Check;
use super::folders::gibibytes;

/// All of them.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub files: Files,
    pub processes: Processes,
    pub cores: Cores,
    pub memory: Memory,
}

/// Limits on open files; none means no limit.
#[derive(Clone, Debug)]
pub(super) struct Files {
    soft: Option<u64>,
    hard: Option<u64>,
}

/// Limits on processes and threads, each with how much of it is used; none where there is no limit.
#[derive(Clone, Debug, Default)]
pub(super) struct Processes {
    user: Option<(u64, u64)>,
    group: Option<(u64, u64)>,
}

/// Cores, and what the environment says about threads.
#[derive(Clone, Debug)]
pub(super) struct Cores {
    usable: u32,
    machine: u32,
    /// OMP_NUM_THREADS.
    threads: Option<String>,
}

/// Memory in bytes.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    free: u64,
    machine: Option<u64>,
    /// Processes that the kernel ended for lack of it.
    kills: u64,
}

impl Limits {
    pub(super) fn read() -> Self {
        let facts = Facts::read();
        let files = getrlimit(Resource::Nofile);
        Self {
            files: Files {
                soft: files.current,
                hard: files.maximum,
            },
            processes: Processes {
                user: user_processes(),
                group: group_processes(),
            },
            cores: Cores {
                usable: facts.cores,
                machine: machine_cores(),
                threads: std::env::var("OMP_NUM_THREADS").ok(),
            },
            memory: Memory {
                free: facts.memory,
                machine: machine_memory(),
                kills: host::out_of_memory_kills(),
            },
        }
    }
}

fn machine_cores() -> u32 {
    let online = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let count = online
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count() as u32;
    // Some architectures write it otherwise.
    count.max(sched_getaffinity(None).map_or(1, |set| set.count()))
}

fn machine_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The limit does not hold for the superuser.
fn user_processes() -> Option<(u64, u64)> {
    let user = geteuid();
    if user.is_root() {
        return None;
    }
    let limit = getrlimit(Resource::Nproc).current?;
    let threads = |status: String| {
        let field = |name| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.split_whitespace().next())
        };
        let own = field("Uid:")?.parse::<u32>().ok()? == user.as_raw();
        own.then_some(field("Threads:")?.parse::<u64>().ok()?)
    };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    // Most entries are no processes, and processes end while they are counted.
    let used = all
        .filter_map(|entry| threads(fs::read_to_string(entry.path().join("status")).ok()?))
        .sum();
    Some((limit, used))
}

/// The tightest limit of the control groups of this process.
fn group_processes() -> Option<(u64, u64)> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mut path = own
        .lines()
        .find_map(|line| line.strip_prefix("0::"))?
        .trim_end_matches('/');
    let number = |path: &str, file: &str| {
        let text = fs::read_to_string(format!("/sys/fs/cgroup{path}/{file}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let mut found = Vec::new();
    loop {
        found.extend(number(path, "pids.max").zip(number(path, "pids.current")));
        match path.rfind('/') {
            Some(cut) => path = &path[..cut],
            None => {
                return found
                    .into_iter()
                    .min_by_key(|(limit, used)| limit.saturating_sub(*used));
            }
        }
    }
}

/// The most workers that are let in, by the rule that `gp.init` follows.
fn most_workers(memory: u64, open_files: u64) -> u32 {
    let facts = Facts {
        name: String::new(),
        cores: 1,
        memory,
        open_files,
    };
    let (mut fits, mut too_many) = (0, u32::MAX);
    while too_many - fits > 1 {
        let middle = fits + (too_many - fits) / 2;
        if admit(middle, &facts).is_ok() {
            fits = middle
        } else {
            too_many = middle
        }
    }
    fits
}

pub(super) fn open_files(facts: &Files) -> Check {
    const NAME: &str = "open files";
    const ENOUGH: u64 = 1024;
    const GOOD: u64 = 4096;
    let Some(limit) = facts.soft else {
        return Check::ok(NAME, "no limit");
    };
    let workers = most_workers(u64::MAX, limit);
    let found = match workers {
        0 => format!("the limit is {limit}, not enough for a worker"),
        1 => format!("the limit is {limit}, enough for one worker"),
        // Cores and memory run out long before: a number of workers would read as advice.
        _ if limit >= ENOUGH => format!("the limit is {limit}"),
        workers => format!("the limit is {limit}, enough for {workers} workers"),
    };
    let advice = match facts.hard {
        Some(hard) if hard < ENOUGH => format!(
            "raise the hard limit of {hard}: `nofile` in /etc/security/limits.conf, for a container \
             `--ulimit nofile={GOOD}`"
        ),
        hard => format!("run `ulimit -n {}` before", hard.unwrap_or(GOOD).min(GOOD)),
    };
    match workers {
        0 => Check::fail(NAME, found, advice),
        _ if limit < ENOUGH => Check::warn(NAME, found, advice),
        _ => Check::ok(NAME, found),
    }
}

pub(super) fn processes(facts: &Processes) -> Check {
    const NAME: &str = "processes";
    // A worker that has imported a framework has some tens of threads on a large machine.
    const FEW: u64 = 256;
    const TOO_FEW: u64 = 16;
    let user = facts.user.map(|limit| {
        (
            limit,
            "this user",
            "`ulimit -u`, or `nproc` in /etc/security/limits.conf",
        )
    });
    let group = facts.group.map(|limit| {
        (
            limit,
            "this control group",
            "pids.max, for a container `--pids-limit`",
        )
    });
    let room = |(limit, used): (u64, u64)| limit.saturating_sub(used);
    let tightest = user
        .into_iter()
        .chain(group)
        .min_by_key(|(limit, ..)| room(*limit));
    let Some((limit, whose, how)) = tightest else {
        return Check::ok(NAME, "no limit");
    };
    let found = format!(
        "{whose} may start {} more processes and threads, of {}",
        room(limit),
        limit.0
    );
    let advice = format!(
        "raise the limit with {how}, or end some of the {} that run",
        limit.1
    );
    match room(limit) {
        0..TOO_FEW => Check::fail(NAME, found, advice),
        TOO_FEW..FEW => Check::warn(NAME, found, advice),
        FEW.. => Check::ok(NAME, found),
    }
}

pub(super) fn cores(facts: &Cores) -> Check {
    const NAME: &str = "cores";
    let usable = facts.usable;
    let cores = match usable {
        1 => "1 core".to_owned(),
        usable => format!("{usable} cores"),
    };
    let found = if usable < facts.machine {
        format!(
            "{cores} of the machine's {}, by affinity or control group",
            facts.machine
        )
    } else {
        cores
    };
    let Some(text) = &facts.threads else {
        return Check::ok(NAME, format!("{found}, divided among the workers of a job"));
    };
    // A list means nested parallelism; the first number is the outermost.
    let first = text.split(',').next().unwrap_or_default().trim();
    match first.parse::<u32>() {
        Ok(threads @ 1..) if threads <= usable => Check::ok(
            NAME,
            format!("{found}; OMP_NUM_THREADS gives each worker {threads}"),
        ),
        Ok(threads @ 1..) => Check::warn(
            NAME,
            format!(
                "{found}; OMP_NUM_THREADS gives each worker {threads} threads, more than there are cores"
            ),
            "unset OMP_NUM_THREADS, so that each worker gets its part of the cores",
        ),
        _ => Check::warn(
            NAME,
            format!("{found}; OMP_NUM_THREADS is `{text}`, which is no number of threads"),
            "unset OMP_NUM_THREADS, or set it to a number from 1",
        ),
    }
}

pub(super) fn memory(facts: &Memory) -> Check {
    const NAME: &str = "memory";
    const LITTLE: u64 = 1 << 30;
    let advice = "end what else runs, or raise the memory limit of the container";
    let free = gibibytes(facts.free);
    let mut found = match facts.machine {
        Some(all) => format!("{free} of {} GiB free", gibibytes(all)),
        None => format!("{free} GiB free"),
    };
    if facts.kills > 0 {
        found += &format!(
            "; for lack of it {} processes were killed since the start",
            facts.kills
        );
    }
    match most_workers(facts.free, u64::MAX) {
        0 => Check::fail(NAME, format!("{found}, not enough for a worker"), advice),
        _ if facts.free < LITTLE => Check::warn(
            NAME,
            format!("{found}, a worker that imports a framework needs some 0.5 GiB"),
            advice,
        ),
        _ => Check::ok(NAME, found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Level::{Fail, Ok as Fine, Warn};
    use super::*;

    #[test]
    fn open_files_say_how_many_workers_they_allow() {
        let seen = |soft, hard| open_files(&Files { soft, hard });
        assert_eq!(seen(Some(20_000), None).found, "the limit is 20000");
        assert_eq!(seen(None, None).level, Fine);
        let low = seen(Some(256), Some(20_000));
        assert_eq!(
            (low.level, low.advice.as_str()),
            (Warn, "run `ulimit -n 4096` before")
        );
        assert!(low.found.ends_with("enough for 38 workers"));
        assert!(seen(Some(256), Some(256)).advice.contains("hard limit of 256"));
        assert_eq!(seen(Some(60), Some(60)).level, Fail);
    }

    #[test]
    fn the_tighter_limit_on_processes_counts() {
        let seen = |user, group| processes(&Processes { user, group });
        assert_eq!(seen(None, None).found, "no limit");
        assert_eq!(seen(Some((4000, 100)), None).level, Fine);
        let tight = seen(Some((4000, 100)), Some((100, 60)));
        assert_eq!(tight.level, Warn);
        assert!(
            tight.found.contains("this control group may start 40 more") && tight.advice.contains("pids.max")
        );
        assert_eq!(seen(Some((100, 120)), None).level, Fail);
    }

    #[test]
    fn more_threads_than_cores_are_a_warning() {
        let seen = |usable, machine, threads: Option<&str>| {
            cores(&Cores {
                usable,
                machine,
                threads: threads.map(str::to_owned),
            })
        };
        assert_eq!(
            seen(2, 2, None).found,
            "2 cores, divided among the workers of a job"
        );
        assert!(seen(1, 64, None).found.starts_with("1 core of the machine's 64"));
        assert_eq!(seen(2, 2, Some("2")).level, Fine);
        let over = seen(2, 2, Some("16"));
        assert!(over.level == Warn && over.found.contains("16 threads") && over.advice.starts_with("unset"));
        assert_eq!(seen(2, 2, Some("16,2")).level, Warn);
        assert!(seen(2, 2, Some("many")).found.contains("no number") && seen(2, 2, Some("0")).level == Warn);
    }

    #[test]
    fn memory_is_enough_little_or_none() {
        let seen = |free: u64| {
            memory(&Memory {
                free,
                machine: Some(8 << 30),
                kills: 0,
            })
        };
        assert_eq!(
            (seen(4 << 30).level, seen(4 << 30).found.as_str()),
            (Fine, "4.0 of 8.0 GiB free")
        );
        assert_eq!(seen(600 << 20).level, Warn);
        assert_eq!(seen(1 << 20).level, Fail);
    }

    #[test]
    fn this_machine_can_be_read() {
        let limits = Limits::read();
        assert!(limits.cores.machine >= limits.cores.usable && limits.memory.machine.is_some());
    }
}
