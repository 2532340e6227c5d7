//! Which ranks share a host, and who stands in on a host for a rank of another.

/// The hosts of a group. On every host one member stands in for each rank of the others: it sends what its host has
/// for that rank and receives what the rank has for its host. So bytes cross between two hosts once, over as many
/// connections as there are members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topology {
    /// Ranks of every host, in order.
    hosts: Vec<Vec<usize>>,
    /// Host and position on it, of every rank.
    seats: Vec<(usize, usize)>,
    me: usize,
}

impl Topology {
    /// `places` are equal for ranks that share a host.
    pub fn new(places: &[u64], me: usize) -> Self {
        let mut hosts: Vec<(u64, Vec<usize>)> = Vec::new();
        let mut seats = Vec::new();
        for (rank, place) in places.iter().enumerate() {
            let host = match hosts.iter().position(|(known, _)| known == place) {
                Some(host) => host,
                None => {
                    hosts.push((*place, Vec::new()));
                    hosts.len() - 1
                }
            };
            seats.push((host, hosts[host].1.len()));
            hosts[host].1.push(rank);
        }
        Self {
            hosts: hosts.into_iter().map(|(_, ranks)| ranks).collect(),
            seats,
            me,
        }
    }

    /// All ranks share one host.
    pub fn is_one_host(&self) -> bool {
        self.hosts.len() == 1
    }

    /// Every rank has a host of its own.
    pub fn is_one_each(&self) -> bool {
        self.hosts.iter().all(|ranks| ranks.len() == 1)
    }

    /// This member's host.
    pub fn here(&self) -> usize {
        self.seats[self.me].0
    }

    /// Ranks on this member's host.
    pub fn locals(&self) -> &[usize] {
        &self.hosts[self.here()]
    }

    /// Position of a rank on its host.
    pub fn seat(&self, rank: usize) -> usize {
        self.seats[rank].1
    }

    /// Ranks of a host.
    pub fn ranks(&self, host: usize) -> &[usize] {
        &self.hosts[host]
    }

    /// Hosts other than this member's.
    pub fn others(&self) -> impl Iterator<Item = usize> {
        (0..self.hosts.len()).filter(|host| *host != self.here())
    }

    /// Who acts on `host` for `rank`: itself, where it is there.
    pub fn stand_in(&self, rank: usize, host: usize) -> usize {
        let (home, seat) = self.seats[rank];
        if home == host {
            return rank;
        }
        let ranks = &self.hosts[host];
        ranks[seat % ranks.len()]
    }

    /// The remote ranks that this member stands in for on its host.
    pub fn wards(&self) -> impl Iterator<Item = usize> {
        (0..self.seats.len())
            .filter(|rank| self.seats[*rank].0 != self.here() && self.stand_in(*rank, self.here()) == self.me)
    }

    /// The remote ranks that this member has connections with.
    pub fn peers(&self) -> Vec<usize> {
        let mut peers: Vec<usize> = self
            .others()
            .map(|host| self.stand_in(self.me, host))
            .chain(self.wards())
            .collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_mutual_and_every_rank_is_stood_in_for() {
        for places in [
            vec![1, 1],
            vec![1, 2],
            vec![1, 1, 2, 2],
            vec![1, 2, 1, 2, 3],
            vec![5, 5, 5, 7, 9, 9],
        ] {
            let all: Vec<Topology> = (0..places.len()).map(|me| Topology::new(&places, me)).collect();
            for (me, topology) in all.iter().enumerate() {
                for peer in topology.peers() {
                    assert!(all[peer].peers().contains(&me), "{places:?} {me} {peer}");
                    assert_ne!(places[peer], places[me]);
                }
                for ward in topology.wards() {
                    assert!(topology.peers().contains(&ward));
                    assert_eq!(all[ward].stand_in(ward, topology.here()), me);
                }
                assert_eq!(topology.locals()[topology.seat(me)], me);
            }
        }
    }
}
