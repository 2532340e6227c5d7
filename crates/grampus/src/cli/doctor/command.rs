//! Another program's output, by a deadline.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use grampus_core::{Clock, SystemClock, Time};

use crate::cli::terminal::pause;

/// How the program ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// There is no such program.
    Missing,
    /// It could not be run, or it failed: the last thing it said.
    Failed(String),
    /// What it wrote, to both of its outputs.
    Wrote(String),
}

/// Runs a program; it is killed where it takes too long.
pub(super) fn run(program: &str, arguments: &[&str], within: Duration) -> Ran {
    match attempt(program, arguments, within) {
        Ok(ran) => ran,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ran::Missing,
        Err(error) => Ran::Failed(error.to_string()),
    }
}

fn attempt(program: &str, arguments: &[&str], within: Duration) -> io::Result<Ran> {
    let clock = SystemClock::start();
    let (mut reader, writer) = io::pipe()?;
    // The command holds ends of the pipe: it goes with this statement, or the end of the output would never come.
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()?;
    let (send, receive) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = reader.read_to_end(&mut bytes);
        send.send(read.map(|_| bytes))
    });
    let output = receive.recv_timeout(within);
    let status = loop {
        match child.try_wait()? {
            Some(status) if output.is_ok() => break status,
            _ if output.is_ok() && clock.now() < Time::ZERO + within => pause(Duration::from_millis(2)),
            _ => {
                // It may have ended in this very moment.
                let _ = child.kill();
                child.wait()?;
                return Ok(Ran::Failed(format!(
                    "no answer within {} s",
                    within.as_secs_f32()
                )));
            }
        }
    };
    let bytes = output.map_err(io::Error::other)??;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if status.success() {
        return Ok(Ran::Wrote(text));
    }
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    Ok(Ran::Failed(
        last.map_or_else(|| status.to_string(), str::to_owned),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn shell(script: &str, within: Duration) -> Ran {
        run("/bin/sh", &["-c", script], within)
    }

    #[test]
    fn both_outputs_are_read() {
        assert_eq!(shell("echo a; echo b >&2", LONG), Ran::Wrote("a\nb\n".into()));
    }

    #[test]
    fn a_failure_is_its_last_words() {
        assert_eq!(
            shell("echo first; echo last; echo; exit 3", LONG),
            Ran::Failed("last".into())
        );
        assert!(matches!(shell("exit 3", LONG), Ran::Failed(why) if why.contains('3')));
        assert_eq!(run("no-such-program-here", &[], LONG), Ran::Missing);
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let soon = Duration::from_millis(100);
        let clock = SystemClock::start();
        assert_eq!(
            shell("exec sleep 60", soon),
            Ran::Failed("no answer within 0.1 s".into())
        );
        // Closing its output does not help it.
        assert!(matches!(
            shell("exec sleep 60 > /dev/null 2>&1", soon),
            Ran::Failed(_)
        ));
        assert!(clock.now() < Time::ZERO + LONG);
    }
}
