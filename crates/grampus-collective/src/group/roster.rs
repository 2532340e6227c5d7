//! Who is in a group, and where.

use crate::across::Topology;

/// The members of a group as one of them sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Roster {
    /// This member's rank.
    pub me: usize,
    /// What every rank is called in errors: its number in the world, where the group is a part of it.
    pub labels: Vec<u32>,
    /// The host's name of every rank.
    pub hosts: Vec<String>,
    /// Who shares a host with whom.
    pub topology: Topology,
}

impl Roster {
    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.hosts.len()
    }

    /// A rank and its host, for people.
    pub fn name(&self, rank: usize) -> String {
        format!("rank {} on {}", self.labels[rank], self.hosts[rank])
    }
}
