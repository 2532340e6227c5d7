//! Groups over several hosts: members are threads, hosts are told apart by a number, bytes go over real sockets.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use grampus_core::{JobId, JobKey};
use half::bf16;

mod closing;
mod forming;
mod lanes;
mod slow;
mod threads;

use super::{Card, Group, GroupId, Lobby};
use crate::numerics::Op;
use crate::{CollectiveError, Settings};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PLACES: [&[u64]; 6] = [
    &[1, 2],
    &[1, 1, 2, 2],
    &[1, 2, 3],
    &[1, 2, 1, 2, 3],
    &[1, 1, 1, 2],
    &[7, 7, 8, 8, 8, 9],
];

fn settings() -> Settings {
    Settings {
        forming: Duration::from_secs(20),
        deadline: Duration::from_secs(20),
        silence: Duration::from_secs(5),
        ..Settings::default()
    }
}

fn open_lobby(place: u64) -> Lobby {
    let key = JobKey::from_bytes([3; 32]);
    Lobby::open_at(JobId(5), key, &format!("host-{place}"), LOCALHOST, place).unwrap()
}

fn id(generation: u64) -> GroupId {
    GroupId {
        name: "group".into(),
        generation,
    }
}

/// Runs `work` on every member of a group whose ranks are at `places`; what they return, in order of rank.
fn on_hosts<T: Send>(places: &[u64], settings: Settings, work: impl Fn(Group) -> T + Sync) -> Vec<T> {
    let lobbies: Vec<Lobby> = places.iter().map(|place| open_lobby(*place)).collect();
    formed_by(&lobbies, 1, settings, |formed| work(formed.unwrap()))
}

/// The errors of a call that fails, in order of rank. A member that is slow to form may find the group ended by then.
fn errors_on_hosts(
    places: &[u64],
    call: impl Fn(&Group) -> Result<(), CollectiveError> + Sync,
) -> Vec<Option<CollectiveError>> {
    let lobbies: Vec<Lobby> = places.iter().map(|place| open_lobby(*place)).collect();
    formed_by(&lobbies, 1, settings(), |formed| {
        formed.and_then(|group| call(&group)).err()
    })
}

/// Runs `work` on what each lobby makes of forming a group of all.
fn formed_by<T: Send>(
    lobbies: &[Lobby],
    generation: u64,
    settings: Settings,
    work: impl Fn(Result<Group, CollectiveError>) -> T + Sync,
) -> Vec<T> {
    let cards: Vec<Card> = lobbies.iter().map(|lobby| lobby.card().clone()).collect();
    std::thread::scope(|scope| {
        let members: Vec<_> = lobbies
            .iter()
            .enumerate()
            .map(|(rank, lobby)| {
                let (cards, work) = (&cards, &work);
                scope.spawn(move || work(lobby.form(&id(generation), rank, cards, &settings)))
            })
            .collect();
        members.into_iter().map(|member| member.join().unwrap()).collect()
    })
}

/// A pause: waits on a channel to which nothing is sent.
fn pause(length: Duration) {
    let (_sender, receiver) = std::sync::mpsc::channel::<()>();
    let _ = receiver.recv_timeout(length);
}

/// How long ago a moment of the monotonic clock was.
fn since(began: Duration) -> Duration {
    crate::shared::monotonic() - began
}

/// Where members meet without the group, with a deadline. Beyond it all have formed, and none can end another's forming.
#[derive(Default)]
struct Gate(Mutex<usize>, Condvar);

impl Gate {
    fn pass(&self, members: usize) {
        let mut come = self.0.lock().unwrap();
        *come += 1;
        self.1.notify_all();
        let waited = self
            .1
            .wait_timeout_while(come, Duration::from_secs(60), |come| *come < members);
        assert!(!waited.unwrap().1.timed_out(), "another member did not come");
    }
}

fn value(rank: usize, index: usize) -> f32 {
    ((rank * 31 + index * 7) % 101) as f32 * 0.013 - 0.5
}

#[test]
fn sums_have_the_bits_of_one_host() {
    for count in [1, 100, 20_000, 700_003] {
        for places in PLACES {
            let ranks = places.len();
            let sum = |group: Group| {
                let mut buffer: Vec<f32> = (0..count).map(|index| value(group.rank(), index)).collect();
                group.all_reduce(&mut buffer, Op::Mean).unwrap();
                let mut halves: Vec<bf16> = (0..count)
                    .map(|index| bf16::from_f32(value(group.rank(), index)))
                    .collect();
                group.all_reduce(&mut halves, Op::Sum).unwrap();
                (buffer, halves)
            };
            let one = on_hosts(&vec![1; ranks], settings(), sum);
            let several = on_hosts(places, settings(), sum);
            for (rank, sums) in several.iter().enumerate() {
                assert!(*sums == one[0], "{count} elements at {places:?}, rank {rank}");
            }
        }
    }
}

#[test]
fn lanes_have_the_bits_of_one_member() {
    let count = 100_001;
    let lanes: Vec<Vec<f32>> = (0..8)
        .map(|lane| (0..count).map(|at| value(lane, at)).collect())
        .collect();
    let deal = |members: usize| {
        let lanes = lanes.clone();
        move |group: Group| {
            let mut mine: Vec<(u32, Vec<f32>)> = (0..8)
                .filter(|lane| (lane * 5 + lane / 3) % members == group.rank())
                .map(|lane| (lane as u32, lanes[lane].clone()))
                .collect();
            let mut views: Vec<(u32, &mut [f32])> = mine
                .iter_mut()
                .map(|(lane, buffer)| (*lane, buffer.as_mut_slice()))
                .collect();
            group.all_reduce_lanes(&mut views, Op::Sum).unwrap();
            mine.into_iter().map(|(_, sum)| sum).collect::<Vec<_>>()
        }
    };
    let one = on_hosts(&[1], settings(), deal(1));
    for places in [&[1_u64, 2][..], &[1, 1, 2], &[1, 2, 1, 2], &[1, 2, 3]] {
        for (rank, sums) in on_hosts(places, settings(), deal(places.len()))
            .iter()
            .enumerate()
        {
            for sum in sums {
                assert!(*sum == one[0][0], "{places:?}, rank {rank}");
            }
        }
    }
}

#[test]
fn everything_else_crosses_hosts() {
    for places in PLACES {
        let ranks = places.len();
        on_hosts(places, settings(), |group| {
            let me = group.rank();
            for count in [0_usize, 1, 1000, 300_000] {
                let mut buffer = vec![me as i32; count];
                group.broadcast(&mut buffer, 1).unwrap();
                assert!(buffer.iter().all(|value| *value == 1));
                let mine = vec![me as i64; count + me];
                let mut parts: Vec<Vec<i64>> = (0..ranks).map(|rank| vec![-1; count + rank]).collect();
                let mut views: Vec<&mut [i64]> = parts.iter_mut().map(Vec::as_mut_slice).collect();
                group.all_gather(&mine, &mut views).unwrap();
                for (rank, part) in parts.iter().enumerate() {
                    assert!(part.iter().all(|value| *value == rank as i64));
                }
                let sources: Vec<Vec<u8>> = (0..ranks)
                    .map(|to| vec![(me * 10 + to) as u8; count + to])
                    .collect();
                let mut targets: Vec<Vec<u8>> = (0..ranks).map(|_| vec![0; count + me]).collect();
                let views: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
                let mut into: Vec<&mut [u8]> = targets.iter_mut().map(Vec::as_mut_slice).collect();
                group.all_to_all(&views, &mut into).unwrap();
                for (from, part) in targets.iter().enumerate() {
                    assert!(part.iter().all(|value| *value == (from * 10 + me) as u8));
                }
                let whole: Vec<f64> = (0..ranks * count).map(|index| (me + index) as f64).collect();
                let mut part = vec![0.0; count];
                group.reduce_scatter(&whole, &mut part, Op::Max).unwrap();
                for (at, value) in part.iter().enumerate() {
                    assert_eq!(*value, (ranks - 1 + me * count + at) as f64);
                }
                let parts: Vec<Vec<i32>> = (0..ranks).map(|rank| vec![rank as i32; count]).collect();
                let views: Vec<&[i32]> = parts.iter().map(Vec::as_slice).collect();
                let mut target = vec![-1; count];
                let sources = if me == 1 { &views[..] } else { &[] };
                group.scatter(sources, &mut target, 1).unwrap();
                assert!(target.iter().all(|value| *value == me as i32));
                group.barrier().unwrap();
            }
            let next = (me + 1) % ranks;
            let before = (me + ranks - 1) % ranks;
            let mut letter = [0_u8; 100];
            if me % 2 == 0 {
                group.send(&[me as u8; 100], next, 3).unwrap();
                group.recv(&mut letter, before, 3).unwrap();
            } else {
                group.recv(&mut letter, before, 3).unwrap();
                group.send(&[me as u8; 100], next, 3).unwrap();
            }
            assert_eq!(letter, [before as u8; 100]);
        });
    }
}

#[test]
fn a_difference_is_told_on_all_hosts() {
    for counts in [[1000, 1001], [300_000, 300_001], [10, 400_000]] {
        let errors = errors_on_hosts(&[1, 2, 1, 2], |group| {
            let count = counts[usize::from(group.rank() == 3)];
            group.all_reduce(&mut vec![1.0_f32; count], Op::Sum)
        });
        for error in errors {
            let Some(CollectiveError::Mismatch { first, second }) = &error else {
                panic!("{error:?}")
            };
            assert!(first.rank == 3 || second.rank == 3, "{error:?}");
        }
    }
}

#[test]
fn a_rank_that_leaves_is_named_on_all_hosts() {
    let errors = errors_on_hosts(&[1, 2, 1, 2, 3], |group| {
        if group.rank() == 3 {
            return Ok(());
        }
        group.all_reduce(&mut vec![1.0_f32; 500_000], Op::Sum)
    });
    for (member, error) in errors.iter().enumerate() {
        match error {
            None if member == 3 => {}
            Some(CollectiveError::PeerLost { rank, host, .. }) => {
                assert_eq!((*rank, host.as_str()), (3, "host-2"), "{error:?}");
            }
            _ => panic!("rank {member}: {error:?}"),
        }
    }
}

#[test]
fn a_call_ends_when_it_is_told_that_a_rank_is_lost() {
    let (formed, told) = (Gate::default(), Gate::default());
    let errors = on_hosts(&[1, 2], settings(), |group| {
        formed.pass(2);
        if group.rank() == 1 {
            // It lives, is connected, and never comes.
            told.pass(2);
            return None;
        }
        let notice = group.notice();
        let error = std::thread::scope(|scope| {
            let call = scope.spawn(|| group.all_reduce(&mut [1.0_f32; 4], Op::Sum).unwrap_err());
            assert!(notice.lost(1));
            call.join().unwrap()
        });
        told.pass(2);
        drop(group);
        assert!(!notice.is_open() && !notice.lost(1));
        Some(error)
    });
    let error = errors[0].as_ref().unwrap().to_string();
    assert!(
        error.contains("lost rank 1 on host-2 during training: it was given up"),
        "{error}"
    );
}
