//! Names and ports.

use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use grampus_cluster::host;
use grampus_net::probe;

use super::check::Check;

const WITHIN: Duration = Duration::from_secs(2);
/// Every worker looks up names when it starts.
const SLOW: Duration = Duration::from_millis(500);

/// What the name service and the loopback device did.
#[derive(Clone, Debug, Default)]
pub(super) struct Network {
    /// Of this host.
    pub name: String,
    pub own: Lookup,
    pub localhost: Lookup,
    pub ports: Ports,
}

/// What became of a name.
#[derive(Clone, Debug, Default)]
pub(super) enum Lookup {
    Found {
        addresses: Vec<IpAddr>,
        took: Duration,
    },
    Unknown(String),
    /// No answer in time.
    #[default]
    Silent,
}

/// The ports of this machine.
#[derive(Clone, Debug)]
pub(super) struct Ports {
    /// A port of the loopback address was bound and connected to.
    loopback: Result<(), String>,
    /// From which ports without a number are taken.
    range: Option<(u16, u16)>,
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            loopback: Err("not tried".to_owned()),
            range: None,
        }
    }
}

impl Network {
    pub(super) fn read() -> Self {
        let name = host::name();
        thread::scope(|scope| {
            let own = scope.spawn(|| look_up(&name));
            let localhost = look_up("localhost");
            let ports = Ports {
                loopback: probe::loopback(WITHIN)
                    .map(drop)
                    .map_err(|error| error.to_string()),
                range: fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
                    .ok()
                    .and_then(|text| port_range(&text)),
            };
            let own = own.join().unwrap_or_default();
            Self {
                name: name.clone(),
                own,
                localhost,
                ports,
            }
        })
    }
}

fn look_up(name: &str) -> Lookup {
    match probe::resolve(name, WITHIN) {
        Ok(answer) => Lookup::Found {
            addresses: answer.addresses,
            took: answer.took,
        },
        Err(error) if error.kind() == ErrorKind::TimedOut => Lookup::Silent,
        Err(error) => Lookup::Unknown(error.to_string()),
    }
}

fn port_range(text: &str) -> Option<(u16, u16)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn list(addresses: &[IpAddr]) -> String {
    addresses
        .iter()
        .map(IpAddr::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

pub(super) fn localhost(lookup: &Lookup) -> Check {
    const NAME: &str = "localhost";
    const ADVICE: &str = "put the line `127.0.0.1 localhost` into /etc/hosts";
    match lookup {
        Lookup::Found { addresses, took } => {
            let found = format!("is {}", list(addresses));
            if !addresses.iter().all(IpAddr::is_loopback) {
                Check::fail(NAME, format!("{found}, which is not this machine alone"), ADVICE)
            } else if *took > SLOW {
                Check::warn(
                    NAME,
                    format!("{found}, after {:.1} s", took.as_secs_f32()),
                    ADVICE,
                )
            } else {
                Check::ok(NAME, found)
            }
        }
        Lookup::Unknown(why) => Check::fail(NAME, format!("is not known: {why}"), ADVICE),
        Lookup::Silent => Check::fail(NAME, format!("no answer within {} s", WITHIN.as_secs()), ADVICE),
    }
}

pub(super) fn host_name(name: &str, lookup: &Lookup) -> Check {
    const NAME: &str = "host name";
    let advice = format!("put a line with this host's address and `{name}` into /etc/hosts");
    match lookup {
        Lookup::Found { addresses, took } if *took > SLOW => Check::warn(
            NAME,
            format!("{name} is {}, after {:.1} s", list(addresses), took.as_secs_f32()),
            format!("check the name servers in /etc/resolv.conf, or {advice}"),
        ),
        Lookup::Found { addresses, .. } if addresses.iter().all(IpAddr::is_loopback) => Check::ok(
            NAME,
            format!("{name} is {}, good on this machine only", list(addresses)),
        ),
        Lookup::Found { addresses, .. } => Check::ok(NAME, format!("{name} is {}", list(addresses))),
        Lookup::Unknown(why) => Check::warn(NAME, format!("{name} is not known: {why}"), advice),
        Lookup::Silent => Check::warn(
            NAME,
            format!("no answer for {name} within {} s", WITHIN.as_secs()),
            format!("check the name servers in /etc/resolv.conf, or {advice}"),
        ),
    }
}

pub(super) fn ports(facts: &Ports) -> Check {
    const NAME: &str = "ports";
    const FEW: u32 = 1024;
    if let Err(why) = &facts.loopback {
        return Check::fail(
            NAME,
            format!("127.0.0.1 cannot be used: {why}"),
            "bring the loopback device up with `ip link set lo up`; in a sandbox, allow TCP on it",
        );
    }
    let Some((first, last)) = facts.range else {
        return Check::ok(NAME, "127.0.0.1 can be used");
    };
    let count = u32::from(last.saturating_sub(first)) + 1;
    let found = format!("127.0.0.1 can be used, with {count} ports to choose from");
    if count < FEW {
        let advice = "widen them with `sysctl net.ipv4.ip_local_port_range=\"32768 60999\"`";
        return Check::warn(NAME, found, advice);
    }
    Check::ok(NAME, found)
}

#[cfg(test)]
mod tests {
    use super::super::check::Level::{Fail, Ok as Fine, Warn};
    use super::*;

    fn found(addresses: &[&str], millis: u64) -> Lookup {
        Lookup::Found {
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            took: Duration::from_millis(millis),
        }
    }

    #[test]
    fn localhost_is_the_loopback() {
        let seen = localhost(&found(&["127.0.0.1", "::1"], 0));
        assert_eq!((seen.level, seen.found.as_str()), (Fine, "is 127.0.0.1, ::1"));
        assert_eq!(localhost(&found(&["127.0.0.1", "10.0.0.7"], 0)).level, Fail);
        assert_eq!(localhost(&found(&["127.0.0.1"], 900)).level, Warn);
        assert_eq!(localhost(&Lookup::Unknown("no".into())).level, Fail);
        assert!(localhost(&Lookup::Silent).found.contains("within 2 s"));
    }

    #[test]
    fn the_name_of_the_host_should_be_known_and_soon() {
        assert_eq!(
            host_name("node1", &found(&["10.0.0.7"], 3)).found,
            "node1 is 10.0.0.7"
        );
        assert!(
            host_name("node1", &found(&["127.0.1.1"], 3))
                .found
                .ends_with("good on this machine only")
        );
        let slow = host_name("node1", &found(&["10.0.0.7"], 1500));
        assert!(
            slow.level == Warn && slow.found.ends_with("after 1.5 s") && slow.advice.contains("resolv.conf")
        );
        let unknown = host_name("node1", &Lookup::Unknown("no such name".into()));
        assert!(unknown.level == Warn && unknown.advice.contains("`node1` into /etc/hosts"));
        assert_eq!(host_name("node1", &Lookup::Silent).level, Warn);
    }

    #[test]
    fn a_port_must_be_usable() {
        let seen = |loopback, range| ports(&Ports { loopback, range });
        assert!(seen(Ok(()), Some((32768, 60999))).found.contains("28232 ports"));
        assert_eq!(seen(Ok(()), None).level, Fine);
        assert_eq!(seen(Ok(()), Some((32768, 32800))).level, Warn);
        let none = seen(Err("refused".into()), None);
        assert!(none.level == Fail && none.found.ends_with("refused") && none.advice.contains("lo up"));
    }

    #[test]
    fn the_range_is_read_as_the_kernel_writes_it() {
        assert_eq!(port_range("32768\t60999\n"), Some((32768, 60999)));
        assert_eq!(port_range("x"), None);
    }
}
