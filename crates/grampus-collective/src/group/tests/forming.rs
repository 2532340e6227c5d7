//! What comes for groups that do not form, and what a process without descriptors does.

use std::fs::File;
use std::process::{Child, Command};
use std::time::Duration;

use grampus_core::{Address, JoinString};
use grampus_net::{Limits, connect_to};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{formed_by, id, open_lobby, pause, since};
use crate::group::lobby::{hash, runtime};
use crate::group::{Card, Lobby};
use crate::shared::monotonic;
use crate::{CollectiveError, Settings};

const SECOND: Duration = Duration::from_secs(1);
/// Set for processes of the tests below.
const ALONE: &str = "GRAMPUS_TEST_ALONE";

fn forming(within: Duration) -> Settings {
    Settings {
        forming: within,
        deadline: 30 * SECOND,
        ..Settings::default()
    }
}

fn cards(lobbies: &[Lobby]) -> Vec<Card> {
    lobbies.iter().map(|lobby| lobby.card().clone()).collect()
}

/// A process that connects after some seconds and says nothing; it ends at once where it is refused.
fn stranger(host: &str, port: u16, after: u64) -> Child {
    let script = format!("sleep {after}; exec 3<>/dev/tcp/{host}/{port} && exec sleep 30");
    Command::new("bash").args(["-c", &script]).spawn().unwrap()
}

/// Runs an ignored test of this file in a process of its own: descriptors belong to a process.
fn alone(name: &str) {
    let test = format!("group::tests::forming::{name}");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([&test, "--exact", "--ignored", "--nocapture"])
        .env(ALONE, "1")
        .spawn()
        .unwrap();
    for _ in 0..600 {
        if let Some(status) = child.try_wait().unwrap() {
            return assert!(status.success(), "{name}");
        }
        pause(SECOND / 10);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("{name} hangs");
}

fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
#[ignore = "a process of a test below"]
fn groups_that_fail() {
    if !is_alone() {
        return;
    }
    let lobbies = [1, 2, 3].map(open_lobby);
    formed_by(&lobbies, 1, forming(20 * SECOND), |group| {
        group.unwrap().barrier().unwrap()
    });
    let cards = cards(&lobbies);
    let before = open_descriptors();
    for generation in 2..8 {
        // The first rank never asks for those that come to it; or it does, and the last never comes.
        let members = if generation % 2 == 0 { 1..3 } else { 0..2 };
        std::thread::scope(|scope| {
            for rank in members {
                let (lobby, cards) = (&lobbies[rank], &cards);
                scope.spawn(move || {
                    lobby
                        .form(&id(generation), rank, cards, &forming(SECOND / 2))
                        .err()
                        .unwrap()
                });
            }
        });
    }
    for _ in 0..100 {
        if open_descriptors() <= before {
            return;
        }
        pause(SECOND / 10);
    }
    panic!(
        "{before} descriptors were open before, {} are now",
        open_descriptors()
    );
}

#[test]
fn groups_that_never_form_leave_no_descriptors() {
    alone("groups_that_fail");
}

#[test]
#[ignore = "a process of the test below"]
fn out_of_descriptors() {
    if !is_alone() {
        return;
    }
    let lobbies = [1, 2].map(open_lobby);
    let settings = forming(20 * SECOND);
    formed_by(&lobbies, 1, settings, |group| group.unwrap().barrier().unwrap());
    let before = getrlimit(Resource::Nofile);
    let low = Rlimit {
        current: Some(200),
        ..before
    };
    setrlimit(Resource::Nofile, low).unwrap();
    // It comes when the process that is to accept it has no descriptor.
    let mut stranger = stranger("127.0.0.1", lobbies[0].card().port, 1);
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    pause(8 * SECOND);
    drop(files);
    // Also that it had connected by then.
    assert!(stranger.try_wait().unwrap().is_none());
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    setrlimit(Resource::Nofile, before).unwrap();
    formed_by(&lobbies, 2, settings, |group| group.unwrap().barrier().unwrap());
}

#[test]
fn a_process_that_was_out_of_descriptors_forms_groups_again() {
    alone("out_of_descriptors");
}

#[test]
fn who_never_comes_is_named_by_all_of_its_host() {
    let lobbies = [1, 2, 2, 2].map(open_lobby);
    let cards = cards(&lobbies);
    std::thread::scope(|scope| {
        for (rank, lobby) in lobbies.iter().enumerate().take(3) {
            let cards = &cards;
            scope.spawn(move || {
                // The first of the second host is not the first to come.
                pause(SECOND / 2 * u32::from(rank == 1));
                let error = lobby.form(&id(1), rank, cards, &forming(SECOND)).err().unwrap();
                let CollectiveError::Form { why } = &error else {
                    panic!("{error}")
                };
                // Rank 0 only sees that rank 1 does not answer, which waits itself; it gives up after those who know.
                let named = if rank == 0 {
                    "rank 1 on host-2"
                } else {
                    "rank 3 on host-2"
                };
                assert!(why.contains(named), "rank {rank}: {why}");
            });
        }
    });
}

/// Such as a rank whose process started long after the others.
#[test]
fn a_rank_that_comes_late_is_told_that_the_group_was_given_up() {
    // With a rank of another host that never comes, with one of the first rank's host, and with one between.
    for places in [&[1, 2][..], &[1, 1, 2], &[1, 2, 3]] {
        let lobbies: Vec<Lobby> = places.iter().map(|place| open_lobby(*place)).collect();
        let (cards, late) = (cards(&lobbies), places.len() - 1);
        let first = lobbies[0].form(&id(1), 0, &cards, &forming(SECOND / 2));
        assert!(first.is_err(), "{places:?}");
        let began = monotonic();
        let error = lobbies[late].form(&id(1), late, &cards, &forming(30 * SECOND));
        let error = error.err().unwrap().to_string();
        assert!(error.contains("rank 0 on host-1 gave the group up"), "{error}");
        assert!(since(began) < 10 * SECOND, "{:?}", since(began));
    }
}

#[test]
fn a_group_that_was_given_up_can_form_when_asked_for_again() {
    let lobbies = [1, 2].map(open_lobby);
    let cards = cards(&lobbies);
    let first = lobbies[0].form(&id(1), 0, &cards, &forming(SECOND / 2));
    assert!(first.is_err());
    std::thread::scope(|scope| {
        for (rank, lobby) in lobbies.iter().enumerate() {
            let cards = &cards;
            scope.spawn(move || {
                pause(SECOND * rank as u32);
                let group = lobby.form(&id(1), rank, cards, &forming(20 * SECOND));
                group.unwrap().barrier().unwrap();
            });
        }
    });
}

#[test]
fn a_connection_that_stalls_holds_up_no_member_of_the_host() {
    let lobbies = [1, 1].map(open_lobby);
    let cards = cards(&lobbies);
    let (job, key) = lobbies[0].secret();
    let address = Address::Abstract(cards[0].door(hash(&id(1))));
    let join = JoinString { job, key, address };
    let runtime = runtime().unwrap();
    std::thread::scope(|scope| {
        let form = |rank: usize| {
            let (lobby, cards) = (&lobbies[rank], &cards);
            move || {
                let group = lobby.form(&id(1), rank, cards, &forming(30 * SECOND));
                group.unwrap().barrier().unwrap();
            }
        };
        let first = scope.spawn(form(0));
        // It is let in, and never says its rank.
        let stalled = (0..200).find_map(|_| {
            pause(SECOND / 20);
            let connecting = async { connect_to("rank-0", &join, "rank-1", &Limits::default()).await };
            runtime.block_on(connecting).ok()
        });
        assert!(stalled.is_some());
        let began = monotonic();
        scope.spawn(form(1)).join().unwrap();
        first.join().unwrap();
        assert!(since(began) < 10 * SECOND, "{:?}", since(began));
        drop(stalled);
    });
}

/// The address of the card is where the process listens, and nowhere else.
#[test]
fn a_lobby_listens_at_its_address_alone() {
    let lobbies = [1, 2].map(open_lobby);
    formed_by(&lobbies, 1, forming(20 * SECOND), |group| {
        group.unwrap().barrier().unwrap()
    });
    let port = lobbies[0].card().port;
    let is_answered = |host| {
        let mut stranger = stranger(host, port, 0);
        pause(SECOND / 2);
        let stays = stranger.try_wait().unwrap().is_none();
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        stays
    };
    assert!(is_answered("127.0.0.1"));
    assert!(!is_answered("127.0.0.2"));
}

#[test]
fn groups_of_one_process_may_differ_in_security() {
    use grampus_net::Security::{Plain, Tls};
    let lobbies = [1, 2].map(open_lobby);
    for (generation, security) in [Tls, Plain, Tls].into_iter().enumerate() {
        let settings = Settings {
            security,
            ..forming(20 * SECOND)
        };
        formed_by(&lobbies, generation as u64, settings, |group| {
            group.unwrap().barrier().unwrap()
        });
    }
    // Members that differ in it are both told.
    let cards = cards(&lobbies);
    std::thread::scope(|scope| {
        for (rank, security) in [Tls, Plain].into_iter().enumerate() {
            let (lobby, cards) = (&lobbies[rank], &cards);
            scope.spawn(move || {
                let settings = Settings {
                    security,
                    ..forming(5 * SECOND)
                };
                let error = lobby
                    .form(&id(9), rank, cards, &settings)
                    .err()
                    .unwrap()
                    .to_string();
                assert!(error.contains("plain") && error.contains("tls"), "{error}");
            });
        }
    });
}
