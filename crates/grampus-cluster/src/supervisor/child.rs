//! One worker process, from its pipes to its end.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, set_parent_process_death_signal, setpgid,
};

use super::SupervisorError;
use super::message::{Launch, Program};

/// What a new worker gets: its standard output and error, and a pipe on which it says that it has ended a
/// task and flushed all that it wrote for it.
pub struct Stdio {
    out: OwnedFd,
    err: OwnedFd,
    notice: OwnedFd,
}

/// The read ends that the supervisor keeps.
pub(super) struct Pipes {
    pub out: OwnedFd,
    pub err: OwnedFd,
    pub notice: OwnedFd,
}

/// Descriptors of a worker that was started as a program.
const SECRET: i32 = 3;
const NOTICE: i32 = 4;

pub(super) fn pipes() -> Result<(Stdio, Pipes), SupervisorError> {
    let make = || pipe_with(PipeFlags::CLOEXEC).map_err(SupervisorError::system("make a pipe"));
    let ((out_read, out), (err_read, err), (notice_read, notice)) = (make()?, make()?, make()?);
    for fd in [&out_read, &err_read, &notice_read] {
        rustix::io::ioctl_fionbio(fd, true).map_err(SupervisorError::system("set up a pipe"))?;
    }
    let pipes = Pipes {
        out: out_read,
        err: err_read,
        notice: notice_read,
    };
    Ok((Stdio { out, err, notice }, pipes))
}

/// What a process does first when it has become a worker by forking.
pub struct Entry {
    stdio: Stdio,
    parent: u32,
    launch: Launch,
}

impl Entry {
    pub(super) fn new(stdio: Stdio, launch: Launch) -> Self {
        Self {
            stdio,
            parent: std::process::id(),
            launch,
        }
    }

    /// Who it is.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Makes the calling process, forked a moment ago, a worker: own process group, own output, and an end
    /// when the supervisor ends. Returns the pipe for its notices.
    pub fn enter(self) -> io::Result<OwnedFd> {
        become_worker(self.parent)?;
        let null = std::fs::File::open("/dev/null")?;
        redirect(null.as_raw_fd(), 0)?;
        redirect(self.stdio.out.as_raw_fd(), 1)?;
        redirect(self.stdio.err.as_raw_fd(), 2)?;
        Ok(self.stdio.notice)
    }
}

/// Only calls that are safe between fork and exec.
fn become_worker(parent: u32) -> io::Result<()> {
    setpgid(None, None)?;
    // The signal follows the thread that forked: the supervisor's loop, whose thread lives as long as the process. The thread that
    // writes log files never forks.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let alive = getppid().is_some_and(|now| now.as_raw_nonzero().get() as u32 == parent);
    if alive {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

fn redirect(from: i32, to: i32) -> io::Result<()> {
    // SAFETY: both are plain descriptor numbers; dup2 touches no memory.
    if unsafe { libc::dup2(from, to) } < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Starts a program as a worker. Where it is to join, the secret and the pipe for its notices are open in it
/// as descriptors 3 and 4.
pub(super) fn spawn(program: &Program, stdio: Stdio, secret: Option<&OwnedFd>) -> io::Result<Pid> {
    // High numbers, so that neither stands where the other is to go.
    let high = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 10);
    let inherited = secret
        .map(|secret| Ok::<_, io::Error>((high(secret)?, high(&stdio.notice)?)))
        .transpose()?;
    let numbers = inherited
        .as_ref()
        .map(|(secret, notice)| (secret.as_raw_fd(), notice.as_raw_fd()));
    let mut command = Command::new(&program.program);
    command
        .args(&program.arguments)
        .envs(program.environment.iter().cloned());
    command
        .stdin(std::process::Stdio::null())
        .stdout(stdio.out)
        .stderr(stdio.err);
    let parent = getpid().as_raw_nonzero().get() as u32;
    // SAFETY: the closure makes system calls only, and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            become_worker(parent)?;
            let Some((secret, notice)) = numbers else {
                return Ok(());
            };
            redirect(secret, SECRET)?;
            redirect(notice, NOTICE)
        });
    }
    let child = command.spawn()?;
    Pid::from_raw(child.id() as i32).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}

/// A descriptor that becomes readable when the process ends.
pub(super) fn watch(pid: Pid) -> Result<OwnedFd, SupervisorError> {
    pidfd_open(pid, PidfdFlags::empty()).map_err(SupervisorError::system(
        "watch a process (Linux 5.3 or newer is needed)",
    ))
}
