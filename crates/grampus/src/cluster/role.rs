//! What this process is: the one that a person started, or one of those that it started itself.

use grampus_cluster::supervisor::{self, Program, ROLE, SUPERVISOR};

use super::worker;

const WORKER: &str = "worker";

/// Does what this process was started for, where that is not the user's program, and ends it.
pub(super) fn take_up() {
    let told = std::env::var(ROLE).unwrap_or_default();
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let code = match told.split_once(':') {
        // What others pass on is not meant for this process.
        Some((_, by)) if by != parent.to_string() => return,
        Some((SUPERVISOR, _)) => supervise(),
        Some((WORKER, _)) => worker::serve(),
        _ => return,
    };
    std::process::exit(code);
}

fn supervise() -> i32 {
    let worker = Program {
        program: program(),
        arguments: std::env::args().skip(1).collect(),
        environment: vec![(ROLE.to_owned(), format!("{WORKER}:{}", std::process::id()))],
    };
    match supervisor::supervise(Some(worker)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("grampus: {error}");
            1
        }
    }
}

/// The command that starts this program once more; its arguments are the same, so that all it does before it calls `init`
/// comes to the same.
pub(super) fn command() -> Vec<String> {
    let mut command = vec![program()];
    command.extend(std::env::args().skip(1));
    command
}

/// This program, also where its file was replaced meanwhile.
fn program() -> String {
    let known = std::env::current_exe().ok().filter(|path| path.exists());
    known.map_or("/proc/self/exe".to_owned(), |path| {
        path.to_string_lossy().into_owned()
    })
}
