//! The process that trains, and what it says.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use grampus_core::{Clock, SystemClock, Time};
use serde::Deserialize;

use super::error::{ChaosError, during};
use super::process::wait_gone;

/// What a driver tells.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Event {
    /// The run begins, at a step that was reached before.
    Begin {
        /// Where.
        step: u64,
        /// Workers that are in it.
        workers: u64,
    },
    /// Steps were committed.
    Steps {
        /// The last of them.
        step: u64,
    },
    /// Workers were lost.
    Lost {
        /// How.
        text: String,
    },
    /// The run goes on.
    Recovered {
        /// Steps that are done.
        step: u64,
        /// Workers that are in it.
        workers: u64,
    },
    /// Something the user should know.
    Note {
        /// What.
        text: String,
    },
    /// The run is done.
    End {
        /// Of the weights.
        digest: String,
        /// Losses and metrics, epoch by epoch.
        history: BTreeMap<String, Vec<f64>>,
        /// Rows that were used in each epoch.
        samples: Vec<u64>,
        /// Rows that there are.
        rows: u64,
        /// Parts of a step.
        lanes: u64,
        /// Steps of the whole run.
        steps: u64,
    },
    /// The driver has closed its output.
    #[serde(skip)]
    Gone,
}

/// An event, and when it was heard.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// By the clock of the run.
    pub at: Time,
    /// What was said.
    pub event: Event,
}

/// A driver that runs. It is killed when it is dropped.
pub(super) struct Driver {
    child: Child,
    events: Receiver<Heard>,
}

impl Driver {
    /// Starts a command; what it says on its error output goes to a file.
    pub(super) fn start(
        mut command: Command,
        errors: &Path,
        clock: SystemClock,
    ) -> Result<Driver, ChaosError> {
        let what = format!("cannot start {}", command.get_program().display());
        let log = File::options().create(true).append(true).open(errors);
        let log = during(format!("cannot open {}", errors.display()), log)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = during(what, command.spawn())?;
        let output = child.stdout.take();
        let (sender, events) = channel();
        std::thread::spawn(move || {
            let lines = output
                .into_iter()
                .flat_map(|output| BufReader::new(output).lines());
            // What is no event was printed by a worker.
            let told = lines
                .map_while(Result::ok)
                .filter_map(|line| serde_json::from_str(&line).ok());
            for event in told.chain([Event::Gone]) {
                let heard = Heard {
                    at: clock.now(),
                    event,
                };
                if sender.send(heard).is_err() {
                    return;
                }
            }
        });
        Ok(Driver { child, events })
    }

    pub(super) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The next event, or nothing in that time.
    pub(super) fn hear(&self, within: Duration) -> Option<Heard> {
        self.events.recv_timeout(within).ok()
    }

    /// Waits for a driver that has said all, ends it where it does not, and says how it ended.
    pub(super) fn reap(&mut self, within: Duration, clock: &dyn Clock) -> String {
        let slow = wait_gone(vec![self.pid()], within, clock);
        let _ = self.child.kill();
        match self.child.wait() {
            Ok(_) if !slow.is_empty() => format!("no end within {within:?}"),
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_events_and_other_words_are_passed_over() {
        let clock = SystemClock::start();
        let mut command = Command::new("sh");
        command.args([
            "-c",
            r#"echo hello; echo '{"kind": "recovered", "step": 7, "workers": 3}'; echo oops >&2"#,
        ]);
        let folder = tempfile::tempdir().unwrap();
        let errors = folder.path().join("errors");
        let driver = Driver::start(command, &errors, clock).unwrap();
        let heard: Vec<Event> = std::iter::from_fn(|| driver.hear(Duration::from_secs(10)))
            .map(|heard| heard.event)
            .take(2)
            .collect();
        assert_eq!(heard, [Event::Recovered { step: 7, workers: 3 }, Event::Gone]);
        drop(driver);
        assert_eq!(std::fs::read_to_string(errors).unwrap(), "oops\n");
    }
}
