//! Members that live and are slow: they are waited for, up to the deadline. `CL-9` and `CL-14` are here.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{Gate, formed_by, on_hosts, open_lobby, pause, since};
use crate::group::Group;
use crate::numerics::{DType, Op};
use crate::request::Request;
use crate::shared::monotonic;
use crate::{CollectiveError, Loss, Settings};

const SECOND: Duration = Duration::from_secs(1);
/// Longer than a member may be silent here.
const LONG: Duration = Duration::from_secs(6);

fn impatient() -> Settings {
    Settings {
        silence: 2 * SECOND,
        deadline: 60 * SECOND,
        forming: 60 * SECOND,
        ..Settings::default()
    }
}

#[test]
fn who_waits_for_a_member_of_its_host_is_not_silent() {
    for places in [&[1, 1, 2, 2][..], &[1, 2, 2, 3, 3]] {
        on_hosts(places, impatient(), |group| {
            if group.rank() == places.len() - 1 {
                pause(LONG);
            }
            let mut buffer = vec![1.0_f32; 100_000];
            group.all_reduce(&mut buffer, Op::Sum).unwrap();
            assert!(buffer.iter().all(|value| *value == places.len() as f32));
        });
    }
}

/// Such as one that waits for the interpreter lock, which another thread holds.
#[test]
fn a_member_whose_calling_thread_is_held_up_is_not_silent() {
    on_hosts(&[1, 2], impatient(), |group| {
        let mut buffer = vec![1.0_f32; 100_000];
        if group.rank() == 1 {
            pause(SECOND / 2);
            return group.all_reduce(&mut buffer, Op::Sum).unwrap();
        }
        let request = Request::AllReduce {
            dtype: DType::F32,
            op: Op::Sum,
            buffer: (buffer.as_mut_ptr().cast(), buffer.len()),
        };
        let asked = Cell::new(false);
        let held_up = || {
            if !asked.replace(true) {
                pause(LONG);
            }
            false
        };
        // SAFETY: the buffer outlives the call.
        unsafe { group.call(request, &held_up) }.unwrap();
    });
}

/// The first member of a group whose lobby answers already has its connections long before the others come.
#[test]
fn a_member_that_comes_late_to_a_further_group_is_waited_for() {
    let lobbies = [1, 1, 2, 2].map(open_lobby);
    for generation in 1..3 {
        formed_by(&lobbies, generation, impatient(), |group| {
            let mut group = Some(group.unwrap());
            if let Some(group) = &group {
                group.barrier().unwrap();
            }
            // Rank 0 answers those who dial for the next group while it is elsewhere.
            drop(group.take());
        });
    }
    let cards: Vec<_> = lobbies.iter().map(|lobby| lobby.card().clone()).collect();
    std::thread::scope(|scope| {
        for (rank, lobby) in lobbies.iter().enumerate() {
            let cards = &cards;
            scope.spawn(move || {
                if rank == 0 {
                    pause(LONG);
                }
                let group = lobby.form(&super::id(3), rank, cards, &impatient()).unwrap();
                group.barrier().unwrap();
            });
        }
    });
}

/// Its neighbour has its own connections, and looks for signs of life, long before.
#[test]
fn a_member_whose_connections_take_long_to_make_is_not_silent() {
    let lobbies = [1, 1, 2, 2].map(open_lobby);
    let cards: Vec<_> = lobbies.iter().map(|lobby| lobby.card().clone()).collect();
    // Rank 3 finds no rank 1 there, and both try until their time is over.
    let mut elsewhere = cards.clone();
    elsewhere[1] = cards[1].clone().at("127.0.0.2");
    let settings = Settings {
        forming: LONG,
        ..impatient()
    };
    let began = monotonic();
    std::thread::scope(|scope| {
        for (rank, lobby) in lobbies.iter().enumerate() {
            let cards = if rank == 3 { &elsewhere } else { &cards };
            scope.spawn(move || {
                let formed = lobby.form(&super::id(1), rank, cards, &settings);
                if rank % 2 == 0 {
                    let error = formed.unwrap().barrier().unwrap_err();
                    assert!(since(began) > LONG, "after {:?}: {error}", since(began));
                } else {
                    assert!(formed.is_err());
                }
            });
        }
    });
}

type Work = fn(&Group) -> Result<(), CollectiveError>;

fn sum(group: &Group, count: usize) -> Result<(), CollectiveError> {
    group.all_reduce(&mut vec![1.0_f32; count], Op::Sum)
}

fn gather(group: &Group) -> Result<(), CollectiveError> {
    let mut parts = vec![vec![0_u8; 1000]; group.size()];
    let mut views: Vec<&mut [u8]> = parts.iter_mut().map(Vec::as_mut_slice).collect();
    group.all_gather(&[1; 1000], &mut views)
}

fn exchange(group: &Group) -> Result<(), CollectiveError> {
    let mut parts = vec![vec![0_u8; 1000]; group.size()];
    let mut views: Vec<&mut [u8]> = parts.iter_mut().map(Vec::as_mut_slice).collect();
    group.all_to_all(&vec![&[1; 1000][..]; group.size()], &mut views)
}

fn receive(group: &Group) -> Result<(), CollectiveError> {
    group.recv(&mut [0_u8; 10], group.size() - 1, 0)
}

fn late(error: &CollectiveError) -> Option<u32> {
    match error {
        CollectiveError::PeerLost {
            rank,
            how: Loss::Late,
            ..
        } => Some(*rank),
        // A letter's group of two has not even formed.
        CollectiveError::Form { why } => why.split(' ').nth(1)?.parse().ok(),
        _ => None,
    }
}

/// All call `work` but the last rank, which comes when the others have failed, or much later. `begin` says when.
fn all_name_the_last(places: &[u64], begin: impl Fn(usize) -> Duration + Sync, work: Work) {
    let settings = Settings {
        deadline: 2 * SECOND,
        forming: 60 * SECOND,
        ..Settings::default()
    };
    let (formed, failed) = (Gate::default(), AtomicUsize::new(0));
    let last = places.len() - 1;
    on_hosts(places, settings, |group| {
        formed.pass(places.len());
        if group.rank() == last {
            for _ in 0..150 {
                if failed.load(Ordering::Acquire) == last {
                    return;
                }
                pause(SECOND / 10);
            }
            let _ = work(&group);
            return;
        }
        pause(begin(group.rank()));
        let outcome = work(&group);
        failed.fetch_add(1, Ordering::AcqRel);
        let error = outcome.expect_err("it was waited for beyond the deadline");
        assert_eq!(late(&error), Some(last as u32), "{places:?}: {error}");
    });
}

#[test]
fn a_member_of_another_host_that_is_late_is_named_at_the_deadline() {
    let works: [Work; 7] = [
        |group| sum(group, 100),
        |group| sum(group, 50_000),
        |group| sum(group, 4_000_000),
        |group| group.barrier(),
        |group| group.broadcast(&mut vec![1_u8; 3_000_000], 0),
        gather,
        exchange,
    ];
    for places in [&[1, 2][..], &[1, 2, 3], &[1, 1, 2, 2]] {
        std::thread::scope(|scope| {
            for work in works {
                scope.spawn(move || all_name_the_last(places, |_| Duration::ZERO, work));
            }
        });
    }
}

#[test]
fn a_sender_that_is_late_is_named_at_the_deadline() {
    all_name_the_last(&[1, 2], |_| Duration::ZERO, receive);
}

/// The rank that came first has waited for longest, and for one that waits itself.
#[test]
fn who_waits_itself_is_not_named_as_late() {
    for work in [
        |group: &Group| sum(group, 100_000),
        |group: &Group| group.barrier(),
    ] {
        for places in [&[1, 1, 2, 2][..], &[1, 2, 2, 2]] {
            // Rank 0 gives up when the others have not waited for long yet.
            all_name_the_last(places, |rank| SECOND * u32::from(rank > 0), work);
        }
    }
}
