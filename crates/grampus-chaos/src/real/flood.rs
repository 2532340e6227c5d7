//! Idle connections, held by a process on one of the hosts.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use super::error::{ChaosError, during};

/// So many: more than a coordinator of a few workers needs, fewer than a process may open.
const CONNECTIONS: usize = 600;
/// All are begun within this, on a busy machine too.
const BEGUN_WITHIN: Duration = Duration::from_secs(30);

/// A flood. It ends when it is dropped, and with this process.
pub(super) struct Flood(Child);

impl Flood {
    /// Floods ports of an address from a host.
    pub(super) fn start(
        python: &std::path::Path,
        host: &str,
        address: &str,
        ports: &[u16],
    ) -> Result<Flood, ChaosError> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", host]).arg(python);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/drivers/flood.py"));
        command.arg(address).arg(CONNECTIONS.to_string());
        command.args(ports.iter().map(u16::to_string));
        // It lives as long as the other end of its input.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut flood = Flood(during("cannot start the flood", command.spawn())?);
        let output = flood.0.stdout.take();
        let (sender, begun) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = output.map(|output| BufReader::new(output).read_line(&mut line));
            let _ = sender.send(matches!(read, Some(Ok(count)) if count > 0));
        });
        match begun.recv_timeout(BEGUN_WITHIN) {
            Ok(true) => Ok(flood),
            _ => Err(ChaosError::Command {
                command: format!("drivers/flood.py on {host}"),
                said: format!("it did not open {CONNECTIONS} connections within {BEGUN_WITHIN:?}"),
            }),
        }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
