//! Where a run takes place: a folder of its own, and where faults need them, a small disk and a network.

use std::fs;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::error::{ChaosError, during};
use super::fault::Kind;

/// Which of these kinds cannot be played here, each with the reason.
pub fn unavailable(kinds: &[Kind]) -> Vec<(Kind, String)> {
    let asked = |kind: &Kind| match kind {
        Kind::DiskFull => Place::new(true, 0).map(drop),
        Kind::Partition => Network::join(1).map(drop),
        Kind::Delay => Network::join(1).and_then(|network| network.delay(0)),
        Kind::PacketLoss => Network::join(1).and_then(|network| network.lose_packets(0)),
        _ => Ok(()),
    };
    let failed = |kind: &Kind| asked(kind).err().map(|error| (*kind, error.to_string()));
    kinds.iter().filter_map(failed).collect()
}

/// The folders of one run. All is removed when it is dropped.
pub(super) struct Place {
    // Before the folder that it is mounted in: fields are dropped in this order.
    disk: Option<Disk>,
    /// Where workers are, if not on this machine itself.
    pub(super) network: Option<Network>,
    folder: TempDir,
}

impl Place {
    /// Makes one; with `hosts` the workers are on so many of their own.
    pub(super) fn new(small_disk: bool, hosts: usize) -> Result<Place, ChaosError> {
        // Short: the path of a socket holds 107 bytes.
        let folder = during(
            "cannot make a folder",
            tempfile::Builder::new().prefix("gc-").tempdir(),
        )?;
        let mut place = Place {
            disk: None,
            network: None,
            folder,
        };
        for path in [place.temporary(), place.work().join("workers"), place.saved()] {
            // Grampus keeps out of folders that others can read.
            let made = fs::DirBuilder::new().mode(0o700).recursive(true).create(&path);
            during(format!("cannot make {}", path.display()), made)?;
        }
        if small_disk {
            place.disk = Some(Disk::mount(&place.saved())?);
        }
        if hosts > 0 {
            place.network = Some(Network::join(hosts)?);
        }
        Ok(place)
    }

    /// Sockets and the like of the job; its name marks all processes of the run.
    pub(super) fn runtime(&self) -> PathBuf {
        self.folder.path().join("runtime")
    }

    /// For temporary files.
    pub(super) fn temporary(&self) -> PathBuf {
        self.runtime().join("tmp")
    }

    /// What the run itself writes.
    pub(super) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    fn saved(&self) -> PathBuf {
        self.work().join("saved")
    }

    /// What stands in the environment of every process of this run, and of no other.
    pub(super) fn mark(&self) -> String {
        self.folder.path().display().to_string()
    }

    /// Leaves no room for checkpoints.
    pub(super) fn fill_disk(&self) -> Result<(), ChaosError> {
        let path = self.filler();
        let mut file = during(format!("cannot open {}", path.display()), fs::File::create(&path))?;
        // Down to single bytes; that nothing more can be written is what is wanted.
        for size in [65_536, 4_096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        Ok(())
    }

    /// Gives the room back.
    pub(super) fn free_disk(&self) {
        let _ = fs::remove_file(self.filler());
    }

    fn filler(&self) -> PathBuf {
        self.saved().join("filler")
    }
}

/// A file system so small that it can be filled.
struct Disk(PathBuf);

impl Disk {
    fn mount(path: &Path) -> Result<Disk, ChaosError> {
        let place = path.display().to_string();
        command(&["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", &place])?;
        Ok(Disk(path.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = command(&["umount", "--lazy", &self.0.display().to_string()]);
    }
}

/// Hosts: network namespaces on one bridge. The first is the driver's.
pub(super) struct Network {
    hosts: Vec<String>,
}

impl Network {
    /// The address of the driver's host, the first.
    pub(super) const DRIVER: &str = "10.78.0.1";

    fn join(workers: usize) -> Result<Network, ChaosError> {
        let tag = format!("gc{}", std::process::id());
        let mut network = Network { hosts: Vec::new() };
        for number in 0..=workers {
            let host = format!("{tag}-{number}");
            command(&["ip", "netns", "add", &host])?;
            network.hosts.push(host);
        }
        let first = &network.hosts[0];
        // The bridge lives in the first namespace, so that nothing changes outside.
        command(&["ip", "-n", first, "link", "add", "up0", "type", "bridge"])?;
        for (number, host) in network.hosts.iter().enumerate() {
            command(&["ip", "-n", host, "link", "set", "lo", "up"])?;
            if number > 0 {
                let port = format!("port{number}");
                let ends = ["type", "veth", "peer", "name", "up0", "netns", host];
                command(&[&["ip", "-n", first, "link", "add", &port], &ends[..]].concat())?;
                command(&["ip", "-n", first, "link", "set", &port, "master", "up0"])?;
                command(&["ip", "-n", first, "link", "set", &port, "up"])?;
            }
            let address = format!("10.78.0.{}/24", number + 1);
            command(&["ip", "-n", host, "addr", "add", &address, "dev", "up0"])?;
            command(&["ip", "-n", host, "link", "set", "up0", "up"])?;
        }
        Ok(network)
    }

    /// Where the driver is.
    pub(super) fn driver(&self) -> &str {
        &self.hosts[0]
    }

    /// Where the workers are.
    pub(super) fn workers(&self) -> &[String] {
        &self.hosts[1..]
    }

    /// One of the workers' hosts, by its number among all hosts.
    fn number(&self, any: u64) -> usize {
        1 + (any % self.workers().len() as u64) as usize
    }

    /// Cuts a host off, or joins it again. The fault is on the way: the host itself sees a network that says nothing.
    pub(super) fn cut(&self, any: u64, off: bool) -> Result<(), ChaosError> {
        let port = format!("port{}", self.number(any));
        let master: &[&str] = if off { &["nomaster"] } else { &["master", "up0"] };
        command(&[&["ip", "-n", self.driver(), "link", "set", &port], master].concat())
    }

    /// Makes what a host sends come late: some 20 ms, or where the kernel has no netem, as much as a slow line takes.
    pub(super) fn delay(&self, any: u64) -> Result<(), ChaosError> {
        let slow = ["tbf", "rate", "200kbit", "burst", "1600", "latency", "1s"];
        self.queue(any, &["netem", "delay", "20ms", "10ms"])
            .or_else(|_| self.queue(any, &slow))
    }

    /// Loses one in twenty of the packets that a host sends; where the kernel has no netem, by a rule of its packet filter.
    pub(super) fn lose_packets(&self, any: u64) -> Result<(), ChaosError> {
        let rules = "table ip chaos { chain out { type filter hook output priority 0; numgen random mod 100 < 5 drop; }; }";
        self.queue(any, &["netem", "loss", "5%"])
            .or_else(|_| self.filter(any, &[rules]))
    }

    /// Ends what `delay` and `lose_packets` began.
    pub(super) fn calm(&self, any: u64) -> Result<(), ChaosError> {
        let host = &self.hosts[self.number(any)];
        command(&["tc", "-n", host, "qdisc", "del", "dev", "up0", "root"])
            .or_else(|_| self.filter(any, &["delete", "table", "ip", "chaos"]))
    }

    fn queue(&self, any: u64, how: &[&str]) -> Result<(), ChaosError> {
        let host = &self.hosts[self.number(any)];
        command(&[&["tc", "-n", host, "qdisc", "add", "dev", "up0", "root"], how].concat())
    }

    fn filter(&self, any: u64, how: &[&str]) -> Result<(), ChaosError> {
        let host = &self.hosts[self.number(any)];
        command(&[&["ip", "netns", "exec", host, "nft"], how].concat())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in &self.hosts {
            let _ = command(&["ip", "netns", "del", host]);
        }
    }
}

fn command(words: &[&str]) -> Result<(), ChaosError> {
    let typed = words.join(" ");
    let started = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .output();
    let output = during(format!("cannot start {typed}"), started)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(ChaosError::Command { command: typed, said })
}
