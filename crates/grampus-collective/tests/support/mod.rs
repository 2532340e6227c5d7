//! Members as threads of one process, with a limit on the time that all of them may take.

pub mod sample;

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use grampus_collective::{Card, CollectiveError, Group, GroupId, Lobby, Settings};
use grampus_core::{JobId, JobKey};

/// Runs a test, and fails it when it takes longer than `seconds`.
pub fn within<R: Send + 'static>(seconds: u64, work: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = channel();
    let worker = thread::spawn(move || sender.send(work()).unwrap());
    match receiver.recv_timeout(Duration::from_secs(seconds)) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("not through after {seconds} s: somebody hangs"),
        Err(RecvTimeoutError::Disconnected) => match worker.join() {
            Ok(()) => panic!("no result"),
            Err(panic) => std::panic::resume_unwind(panic),
        },
    }
}

/// A pause: what waits is a channel that nobody sends to.
pub fn pause(length: Duration) {
    let (_sender, receiver) = channel::<()>();
    let _ = receiver.recv_timeout(length);
}

/// Many turns for little data.
pub fn small() -> Settings {
    Settings {
        slot: 4096,
        flat: 512,
        ..Settings::default()
    }
}

pub fn lobbies(size: usize) -> (Vec<Lobby>, Vec<Card>) {
    let open = |_| {
        Lobby::open(
            JobId(7),
            JobKey::from_bytes([7; 32]),
            "here",
            std::net::Ipv4Addr::LOCALHOST.into(),
        )
        .unwrap()
    };
    let lobbies: Vec<Lobby> = (0..size).map(open).collect();
    let cards = lobbies.iter().map(|lobby| lobby.card().clone()).collect();
    (lobbies, cards)
}

pub fn id(generation: u64) -> GroupId {
    GroupId {
        name: "world".into(),
        generation,
    }
}

/// Forms a group in one generation of the lobbies; what each member made of it.
pub fn attempt<R: Send>(
    (lobbies, cards): &(Vec<Lobby>, Vec<Card>),
    generation: u64,
    settings: Settings,
    work: impl Fn(Result<Group, CollectiveError>) -> R + Sync,
) -> Vec<R> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = lobbies
            .iter()
            .enumerate()
            .map(|(rank, lobby)| {
                scope.spawn(move || work(lobby.form(&id(generation), rank, cards, &settings)))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    })
}

/// Runs `work` on every member of a new group.
pub fn members<R: Send>(size: usize, settings: Settings, work: impl Fn(&Group) -> R + Sync) -> Vec<R> {
    attempt(&lobbies(size), 1, settings, |group| work(&group.unwrap()))
}

/// Random numbers that depend on nothing but where they are drawn.
pub fn random(seed: u64, index: u64) -> u64 {
    let mut mixed = seed
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(index.wrapping_mul(0xd1b5_4a32_d192_ed03));
    for shift in [30, 27, 31] {
        mixed = (mixed ^ (mixed >> shift)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    mixed ^ (mixed >> 32)
}
