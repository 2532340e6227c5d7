//! Hosts of a run: network namespaces, and what can be done to the links between them.

use std::fs;
use std::process::{Command, Stdio};

use super::error::{ChaosError, during};
use super::owner::Owner;
use super::process::command_line;

/// Hosts: network namespaces on one bridge. The first is the driver's.
pub(super) struct Network {
    hosts: Vec<String>,
}

impl Network {
    /// The address of the driver's host, the first.
    pub(super) const DRIVER: &str = "10.78.0.1";

    /// Makes the network of a run: a host for the driver, and others.
    pub(super) fn join(others: usize, run: u64) -> Result<Network, ChaosError> {
        let tag = format!("{}-{run}", Owner::this());
        let mut network = Network { hosts: Vec::new() };
        for number in 0..=others {
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

    /// All of them.
    pub(super) fn hosts(&self) -> &[String] {
        &self.hosts
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

    /// Cuts one way: what a host sends is lost, or what is sent to it.
    pub(super) fn cut_one_way(&self, any: u64) -> Result<(), ChaosError> {
        // Packets are dropped where they arrive: who sends them learns nothing.
        let (host, device) = self.ear(any);
        let rules = format!(
            "table netdev chaos {{ chain in {{ type filter hook ingress device \"{device}\" priority 0; policy drop; }}; }}"
        );
        filter(host, &[&rules])
    }

    /// Ends what `cut_one_way` began.
    pub(super) fn join_one_way(&self, any: u64) -> Result<(), ChaosError> {
        filter(self.ear(any).0, &["delete", "table", "netdev", "chaos"])
    }

    /// Where packets arrive that the host sends, or that are sent to it.
    fn ear(&self, any: u64) -> (&str, String) {
        let number = self.number(any);
        match any / self.workers().len() as u64 % 2 {
            0 => (self.driver(), format!("port{number}")),
            _ => (&self.hosts[number], "up0".to_owned()),
        }
    }

    /// One of the workers' hosts.
    pub(super) fn host(&self, any: u64) -> &str {
        &self.hosts[self.number(any)]
    }

    /// The processes on a host.
    pub(super) fn processes(&self, any: u64) -> Vec<i32> {
        processes_in(self.host(any))
    }

    /// What is left on all hosts: processes, and sockets that have a name.
    pub(super) fn left_behind(&self) -> (Vec<String>, Vec<String>) {
        let all = |look: &dyn Fn(&String) -> Vec<String>| self.hosts.iter().flat_map(look).collect();
        let processes = |host: &String| {
            let found = processes_in(host).into_iter();
            found
                .map(|pid| format!("process {pid} on {host}: {}", command_line(pid)))
                .collect()
        };
        let sockets = |host: &String| {
            let listed = output(&["ip", "netns", "exec", host, "cat", "/proc/net/unix"]).unwrap_or_default();
            let lines = listed.lines().skip(1);
            lines.map(|line| format!("socket on {host}: {line}")).collect()
        };
        (all(&processes), all(&sockets))
    }

    /// Makes what a host sends come late: some 20 ms, or where the kernel has no netem, as much as a slow line takes.
    pub(super) fn delay(&self, any: u64) -> Result<(), ChaosError> {
        let slow = ["tbf", "rate", "200kbit", "burst", "3200", "latency", "1s"];
        self.queue(any, &["netem", "delay", "20ms", "10ms"])
            .or_else(|_| self.queue(any, &slow))
    }

    /// Loses one in twenty of the packets that a host sends; where the kernel has no netem, by a rule of its packet filter.
    pub(super) fn lose_packets(&self, any: u64) -> Result<(), ChaosError> {
        let rules = "table ip chaos { chain out { type filter hook output priority 0; numgen random mod 100 < 5 drop; }; }";
        self.queue(any, &["netem", "loss", "5%"])
            .or_else(|_| filter(self.host(any), &[rules]))
    }

    /// Ends what `delay` and `lose_packets` began.
    pub(super) fn calm(&self, any: u64) -> Result<(), ChaosError> {
        let host = self.host(any);
        command(&["tc", "-n", host, "qdisc", "del", "dev", "up0", "root"])
            .or_else(|_| filter(self.host(any), &["delete", "table", "ip", "chaos"]))
    }

    /// Whether packets can be held for a time of one's choice.
    pub(super) fn has_netem(&self) -> bool {
        output(&["tc", "-n", self.host(0), "qdisc", "show", "dev", "up0"])
            .is_ok_and(|listed| listed.contains("netem"))
    }

    fn queue(&self, any: u64, how: &[&str]) -> Result<(), ChaosError> {
        let host = self.host(any);
        command(&[&["tc", "-n", host, "qdisc", "add", "dev", "up0", "root"], how].concat())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in &self.hosts {
            let _ = remove(host);
        }
    }
}

/// Removes a host.
pub(super) fn remove(host: &str) -> Result<(), ChaosError> {
    command(&["ip", "netns", "del", host])
}

/// The names of all network namespaces of this machine.
pub(super) fn namespaces() -> Vec<String> {
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// The processes in a namespace.
pub(super) fn processes_in(host: &str) -> Vec<i32> {
    let listed = output(&["ip", "netns", "pids", host]).unwrap_or_default();
    listed
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// The ports on which a process, or another in its network, accepts connections.
pub(super) fn listening_ports(pid: i32) -> Vec<u16> {
    const LISTENS: &str = "0A";
    let listed = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let port = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (_, port) = words.get(1)?.split_once(':')?;
        let listens = words.get(3) == Some(&LISTENS);
        listens.then(|| u16::from_str_radix(port, 16).ok()).flatten()
    };
    listed.lines().skip(1).filter_map(port).collect()
}

fn filter(host: &str, how: &[&str]) -> Result<(), ChaosError> {
    command(&[&["ip", "netns", "exec", host, "nft"], how].concat())
}

/// Runs a command, which must succeed.
pub(super) fn command(words: &[&str]) -> Result<(), ChaosError> {
    output(words).map(drop)
}

/// What a command prints, which must succeed.
fn output(words: &[&str]) -> Result<String, ChaosError> {
    let typed = words.join(" ");
    let started = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .output();
    let output = during(format!("cannot start {typed}"), started)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(ChaosError::Command { command: typed, said })
}
