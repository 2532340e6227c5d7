//! How many hosts a run has, and workers on each.

use std::fmt;
use std::str::FromStr;

/// Hosts with equally many workers each, written `2x2`.
///
/// ```
/// use grampus_chaos::real::Hosts;
/// let hosts: Hosts = "3x2".parse().unwrap();
/// assert_eq!((hosts.count, hosts.each, hosts.workers()), (3, 2, 6));
/// assert!("3".parse::<Hosts>().is_err());
/// assert!("1x4".parse::<Hosts>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// How many hosts.
    pub count: usize,
    /// How many workers on each.
    pub each: usize,
}

/// What was written is no number of hosts and workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write HOSTSxWORKERS, such as 2x2: 2 to 8 hosts, each with 1 to 8 workers")]
pub struct NoHosts;

impl Hosts {
    /// Workers on all hosts together.
    pub fn workers(self) -> usize {
        self.count * self.each
    }
}

impl FromStr for Hosts {
    type Err = NoHosts;

    fn from_str(text: &str) -> Result<Hosts, NoHosts> {
        let (count, each) = text.split_once('x').ok_or(NoHosts)?;
        match (count.parse(), each.parse()) {
            (Ok(count @ 2..=8), Ok(each @ 1..=8)) => Ok(Hosts { count, each }),
            _ => Err(NoHosts),
        }
    }
}

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.count, self.each)
    }
}
