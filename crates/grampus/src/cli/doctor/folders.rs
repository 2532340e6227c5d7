//! Where jobs keep their sockets and logs, and where others keep temporary files.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use grampus_cluster::jobdir::{self, JobDir};
use grampus_net::{probe, random_job};
use rustix::fs::{Access, access, statvfs};

use super::check::Check;

/// Longest path of a Unix socket: the kernel's field has 108 bytes, the last of which is zero.
const LONGEST: usize = 107;

/// Both of them.
#[derive(Clone, Debug)]
pub(super) struct Folders {
    pub runtime: Runtime,
    pub temporary: Temporary,
}

/// The folder of this user's jobs.
#[derive(Clone, Debug)]
pub(super) struct Runtime {
    path: PathBuf,
    /// Bytes of the path of a job's socket.
    socket: usize,
    /// A job's folder, with a socket in it, was made and removed.
    made: Result<(), String>,
    free: Option<u64>,
    /// What XDG_RUNTIME_DIR names, where that cannot be used.
    refused: Option<PathBuf>,
}

/// The folder for temporary files.
#[derive(Clone, Debug)]
pub(super) struct Temporary {
    path: PathBuf,
    writable: bool,
    free: Option<u64>,
}

impl Folders {
    pub(super) fn read() -> Self {
        let path = jobdir::root();
        let named = std::env::var_os("XDG_RUNTIME_DIR")
            .filter(|name| !name.is_empty())
            .map(PathBuf::from);
        let temporary = std::env::temp_dir();
        Self {
            runtime: Runtime {
                socket: path
                    .join("0123456789abcdef")
                    .join("coordinator")
                    .as_os_str()
                    .as_bytes()
                    .len(),
                made: try_job(),
                // The folder itself is there only while jobs are.
                free: path.parent().and_then(free),
                refused: named.filter(|named| !path.starts_with(named)),
                path,
            },
            temporary: Temporary {
                writable: access(&temporary, Access::WRITE_OK | Access::EXEC_OK).is_ok(),
                free: free(&temporary),
                path: temporary,
            },
        }
    }
}

fn try_job() -> Result<(), String> {
    let job = random_job().map_err(|error| error.to_string())?;
    let folder = JobDir::create(job).map_err(|error| error.to_string())?;
    probe::unix_socket(&folder.socket()).map_err(|error| format!("no socket can be made in it: {error}"))
}

fn free(path: &Path) -> Option<u64> {
    statvfs(path).ok().map(|space| space.f_bavail * space.f_frsize)
}

/// With one digit after the point.
pub(super) fn gibibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 30))
}

pub(super) fn runtime(facts: &Runtime) -> Check {
    const NAME: &str = "runtime folder";
    const LITTLE: u64 = 64 << 20;
    let path = facts.path.display();
    if facts.socket > LONGEST {
        let found = format!(
            "{path}: a socket's path would have {} bytes, {LONGEST} is the most",
            facts.socket
        );
        return Check::fail(NAME, found, "set XDG_RUNTIME_DIR to a shorter path");
    }
    if let Err(why) = &facts.made {
        return Check::fail(
            NAME,
            format!("{path}: {why}"),
            "set XDG_RUNTIME_DIR to a folder of yours with mode 700",
        );
    }
    if let Some(refused) = &facts.refused {
        let refused = refused.display();
        let found =
            format!("{path}, because XDG_RUNTIME_DIR ({refused}) is not a private folder of this user");
        return Check::warn(
            NAME,
            found,
            format!("run `chmod 700 {refused}`, or unset XDG_RUNTIME_DIR"),
        );
    }
    match facts.free {
        Some(free) if free < LITTLE => {
            let found = format!(
                "{path}, {} MiB free, and the ranks' logs are kept there",
                free >> 20
            );
            Check::warn(
                NAME,
                found,
                "free some, or name another folder for logs (--log-dir, log_dir=)",
            )
        }
        Some(free) => Check::ok(NAME, format!("{path}, private, {} GiB free", gibibytes(free))),
        None => Check::ok(NAME, format!("{path}, private")),
    }
}

pub(super) fn temporary(facts: &Temporary) -> Check {
    const NAME: &str = "temporary space";
    const LITTLE: u64 = 1 << 30;
    const ADVICE: &str = "set TMPDIR to a folder with more room";
    let path = facts.path.display();
    match facts.free {
        _ if !facts.writable => Check::fail(
            NAME,
            format!("{path} cannot be written to"),
            "set TMPDIR to a folder that you can write to",
        ),
        Some(free) if free < LITTLE => Check::warn(NAME, format!("{path}, {} MiB free", free >> 20), ADVICE),
        Some(free) => Check::ok(NAME, format!("{path}, {} GiB free", gibibytes(free))),
        None => Check::ok(NAME, path.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Level::{Fail, Ok as Fine, Warn};
    use super::*;

    fn good() -> Runtime {
        Runtime {
            path: "/run/user/7/grampus".into(),
            socket: 50,
            made: Ok(()),
            free: Some(1 << 30),
            refused: None,
        }
    }

    #[test]
    fn a_job_must_get_its_folder_and_socket() {
        assert_eq!(
            runtime(&good()).found,
            "/run/user/7/grampus, private, 1.0 GiB free"
        );
        let long = runtime(&Runtime {
            socket: 108,
            ..good()
        });
        assert!(long.level == Fail && long.found.contains("108 bytes") && long.advice.contains("shorter"));
        assert_eq!(
            runtime(&Runtime {
                socket: 107,
                ..good()
            })
            .level,
            Fine
        );
        let closed = runtime(&Runtime {
            made: Err("read-only file system".into()),
            ..good()
        });
        assert!(closed.level == Fail && closed.found.ends_with("read-only file system"));
    }

    #[test]
    fn a_folder_that_is_open_or_full_is_a_warning() {
        let open = runtime(&Runtime {
            refused: Some("/tmp/mine".into()),
            ..good()
        });
        assert!(open.level == Warn && open.advice.contains("chmod 700 /tmp/mine"));
        let full = runtime(&Runtime {
            free: Some(1 << 20),
            ..good()
        });
        assert!(full.level == Warn && full.advice.contains("--log-dir"));
    }

    #[test]
    fn temporary_files_need_room() {
        let seen = |writable, free| {
            temporary(&Temporary {
                path: "/tmp".into(),
                writable,
                free,
            })
        };
        assert_eq!(seen(true, Some(5 << 30)).found, "/tmp, 5.0 GiB free");
        assert_eq!(seen(true, None).level, Fine);
        assert_eq!(seen(true, Some(5 << 20)).level, Warn);
        assert_eq!(seen(false, Some(5 << 30)).level, Fail);
    }
}
