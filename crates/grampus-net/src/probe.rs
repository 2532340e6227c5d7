//! What `grampus doctor` asks of the network of this machine. Nothing here leaves the machine, except a question to
//! the name service.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use grampus_core::{Clock, SystemClock, Time};

/// What the name service said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The addresses of the name, each once.
    pub addresses: Vec<IpAddr>,
    /// How long it took.
    pub took: Duration,
}

/// Asks the name service for a name; an error of kind `TimedOut` where it does not answer within the time given.
pub fn resolve(name: &str, within: Duration) -> io::Result<Answer> {
    let name = name.to_owned();
    ask(within, move || {
        Ok((name.as_str(), 0)
            .to_socket_addrs()?
            .map(|found| found.ip())
            .collect())
    })
}

fn ask(
    within: Duration,
    look: impl FnOnce() -> io::Result<BTreeSet<IpAddr>> + Send + 'static,
) -> io::Result<Answer> {
    let clock = SystemClock::start();
    let (send, receive) = mpsc::sync_channel(1);
    // The resolver of the C library cannot be called off: a question without an answer stays in a thread of its own,
    // which ends with it or with the process.
    thread::Builder::new()
        .name("grampus-resolve".to_owned())
        .spawn(move || send.send(look()))?;
    let answer = receive.recv_timeout(within).map_err(|_| {
        let why = format!("the name service did not answer within {within:?}");
        io::Error::new(io::ErrorKind::TimedOut, why)
    })?;
    Ok(Answer {
        addresses: answer?.into_iter().collect(),
        took: clock.now().since(Time::ZERO),
    })
}

/// Binds a port of the loopback address and connects to it; returns the port.
pub fn loopback(within: Duration) -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    TcpStream::connect_timeout(&address, within)?;
    Ok(address.port())
}

/// Binds a Unix socket at this path and connects to it; nothing is left of it.
pub fn unix_socket(path: &Path) -> io::Result<()> {
    let listener = UnixListener::bind(path)?;
    let connected = UnixStream::connect(path);
    drop(listener);
    std::fs::remove_file(path)?;
    connected.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_secs(10);

    #[test]
    fn an_address_is_its_own_answer() {
        let answer = resolve("127.0.0.1", WITHIN).unwrap();
        assert_eq!(answer.addresses, [IpAddr::V4(Ipv4Addr::LOCALHOST)]);
        assert!(answer.took < WITHIN);
    }

    #[test]
    fn a_name_service_that_is_silent_is_not_waited_for() {
        let (hold, held) = mpsc::sync_channel::<()>(0);
        let silent = move || {
            let _ = held.recv_timeout(WITHIN);
            Ok(BTreeSet::new())
        };
        let error = ask(Duration::from_millis(20), silent).unwrap_err();
        drop(hold);
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("did not answer within 20ms"));
    }

    #[test]
    fn this_machine_has_a_loopback_and_unix_sockets() {
        assert_ne!(loopback(WITHIN).unwrap(), 0);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        unix_socket(&path).unwrap();
        assert!(!path.exists());
        assert!(unix_socket(&folder.path().join("missing/socket")).is_err());
    }
}
