//! Where a rank stands, and the environment that existing code expects to tell it so.

use thiserror::Error;

use crate::{Generation, Rank, Task, WorkerId};

/// The place of one rank in the world of one task.
///
/// Ranks on one host are numbered by `local_rank`; hosts are numbered by `group_rank` in the order of their
/// first rank. Both follow torchrun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Position in the world.
    pub rank: u32,
    /// Number of ranks in the world.
    pub world_size: u32,
    /// Position among the ranks of this host.
    pub local_rank: u32,
    /// Number of ranks of this host.
    pub local_world_size: u32,
    /// Position of this host.
    pub group_rank: u32,
    /// Number of hosts.
    pub group_world_size: u32,
    /// `address:port` of every rank, free for it to bind.
    pub endpoints: Vec<(String, u16)>,
}

/// Why a rank has no place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlacementError {
    /// The task runs on fewer ranks.
    #[error("rank {rank} is outside a world of {world}")]
    Outside {
        /// The rank asked for.
        rank: Rank,
        /// Size of the task's world.
        world: u32,
    },
    /// The task wants more ranks, or ports, than the generation has.
    #[error(
        "the task wants {world} ranks with a port each, the generation has {ranks} ranks and {ports} ports"
    )]
    Short {
        /// Size of the task's world.
        world: u32,
        /// Ranks of the generation.
        ranks: u32,
        /// Ports of the task.
        ports: usize,
    },
}

impl Place {
    /// The place of `rank` in `task`, run by `generation`.
    pub fn of(rank: Rank, task: &Task, generation: &Generation) -> Result<Self, PlacementError> {
        let world = task.world;
        if rank.0 >= world {
            return Err(PlacementError::Outside { rank, world });
        }
        let ranks = generation.members.iter().map(|member| member.ranks).sum();
        if ranks < world || task.ports.len() < world as usize {
            return Err(PlacementError::Short {
                world,
                ranks,
                ports: task.ports.len(),
            });
        }
        let places = generation
            .members
            .iter()
            .flat_map(|member| (0..member.ranks).map(move |_| member));
        let (mut endpoints, mut hosts, mut host_of_rank) = (
            Vec::new(),
            Vec::<(&str, &str, Option<WorkerId>)>::new(),
            Vec::new(),
        );
        for (member, port) in places.take(world as usize).zip(task.ports.iter()) {
            endpoints.push((member.address.clone(), *port));
            let host = (
                member.host.as_str(),
                member.address.as_str(),
                member.node.then_some(member.worker),
            );
            let group = hosts.iter().position(|known| *known == host).unwrap_or_else(|| {
                hosts.push(host);
                hosts.len() - 1
            });
            host_of_rank.push(group);
        }
        let group = host_of_rank[rank.0 as usize];
        let before = host_of_rank[..rank.0 as usize]
            .iter()
            .filter(|host| **host == group)
            .count();
        let together = host_of_rank.iter().filter(|host| **host == group).count();
        Ok(Self {
            rank: rank.0,
            world_size: world,
            local_rank: before as u32,
            local_world_size: together as u32,
            group_rank: group as u32,
            group_world_size: hosts.len() as u32,
            endpoints,
        })
    }

    /// torchrun's variables and TensorFlow's `TF_CONFIG`.
    pub fn environment(&self, restarts: u32) -> Vec<(&'static str, String)> {
        let (address, port) = &self.endpoints[0];
        vec![
            ("RANK", self.rank.to_string()),
            ("WORLD_SIZE", self.world_size.to_string()),
            ("LOCAL_RANK", self.local_rank.to_string()),
            ("LOCAL_WORLD_SIZE", self.local_world_size.to_string()),
            ("GROUP_RANK", self.group_rank.to_string()),
            ("GROUP_WORLD_SIZE", self.group_world_size.to_string()),
            ("MASTER_ADDR", address.clone()),
            ("MASTER_PORT", port.to_string()),
            ("TORCHELASTIC_RESTART_COUNT", restarts.to_string()),
            ("TF_CONFIG", self.tf_config()),
        ]
    }

    fn tf_config(&self) -> String {
        let workers: Vec<String> = self
            .endpoints
            .iter()
            .map(|(address, port)| endpoint(address, *port))
            .collect();
        format!(
            r#"{{"cluster": {{"worker": [{}]}}, "task": {{"type": "worker", "index": {}}}}}"#,
            workers.join(", "),
            self.rank
        )
    }
}

/// As a JSON string; an address holds no character that would need escaping.
fn endpoint(address: &str, port: u16) -> String {
    if address.contains(':') {
        format!("\"[{address}]:{port}\"")
    } else {
        format!("\"{address}:{port}\"")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{GenerationId, Member, TaskId};

    fn generation(hosts: &[(&str, u32)]) -> Generation {
        let mut next = 0;
        let members = hosts
            .iter()
            .enumerate()
            .map(|(index, (host, ranks))| {
                let rank = Rank(next);
                next += ranks;
                Member {
                    worker: WorkerId(index as u64),
                    rank,
                    ranks: *ranks,
                    node: false,
                    host: (*host).into(),
                    address: format!("addr-{host}"),
                    card: Vec::new(),
                }
            })
            .collect();
        Generation {
            number: GenerationId(1),
            members,
        }
    }

    fn task(world: u32) -> Task {
        let ports: Arc<[u16]> = (0..world as u16).map(|rank| 5000 + rank).collect();
        Task {
            id: TaskId(1),
            generation: GenerationId(1),
            world,
            restarts: 0,
            ports,
        }
    }

    #[test]
    fn local_ranks_count_within_a_host_even_where_hosts_alternate() {
        let generation = generation(&[("a", 1), ("b", 1), ("a", 1), ("b", 2)]);
        let places: Vec<Place> = (0..5)
            .map(|rank| Place::of(Rank(rank), &task(5), &generation).unwrap())
            .collect();
        let seen: Vec<_> = places
            .iter()
            .map(|p| (p.local_rank, p.local_world_size, p.group_rank))
            .collect();
        assert_eq!(seen, [(0, 2, 0), (0, 3, 1), (1, 2, 0), (1, 3, 1), (2, 3, 1)]);
    }

    #[test]
    fn nodes_on_one_host_are_groups_of_their_own() {
        let mut generation = generation(&[("a", 2), ("a", 1)]);
        generation
            .members
            .iter_mut()
            .for_each(|member| member.node = true);
        let place = Place::of(Rank(2), &task(3), &generation).unwrap();
        assert_eq!(
            (place.local_rank, place.local_world_size, place.group_rank),
            (0, 1, 1)
        );
    }

    #[test]
    fn a_smaller_world_leaves_the_rest_out() {
        let place = Place::of(Rank(0), &task(2), &generation(&[("a", 4)])).unwrap();
        assert_eq!(
            (place.world_size, place.local_world_size, place.endpoints.len()),
            (2, 2, 2)
        );
        assert!(Place::of(Rank(2), &task(2), &generation(&[("a", 4)])).is_err());
        assert!(Place::of(Rank(0), &task(5), &generation(&[("a", 4)])).is_err());
    }

    #[test]
    fn the_environment_is_what_torchrun_and_tensorflow_read() {
        let place = Place::of(Rank(1), &task(2), &generation(&[("a", 1), ("b", 1)])).unwrap();
        let environment = place.environment(3);
        let get = |name| &environment.iter().find(|(key, _)| *key == name).unwrap().1;
        assert_eq!((get("RANK").as_str(), get("WORLD_SIZE").as_str()), ("1", "2"));
        assert_eq!(
            (get("MASTER_ADDR").as_str(), get("MASTER_PORT").as_str()),
            ("addr-a", "5000")
        );
        let config: serde_json::Value = serde_json::from_str(get("TF_CONFIG")).unwrap();
        assert_eq!(config["cluster"]["worker"][1], "addr-b:5001");
        assert_eq!(config["task"]["index"], 1);
    }
}
