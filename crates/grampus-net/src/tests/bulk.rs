//! Wires: bulk bytes between two peers, and everything that must end them. `NET-8` is here.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use grampus_core::{Address, Clock, JobKey, JoinString, Random, SystemClock, Time};

use super::{Over, SHORT, Server, key, run};
use crate::{
    Bell, ErrorKind, Limits, NetError, Ready, Security, TransportKind, Wire, connect, connect_wire,
    wait_ready,
};

const BOTH: [Security; 2] = [Security::Tls, Security::Plain];
const WAIT: Duration = Duration::from_secs(10);

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    let byte = |place: usize| (place.wrapping_mul(31) + (place >> 9) * 7 + seed) as u8;
    (0..len).map(byte).collect()
}

async fn meet(join: &JoinString, server: &Server, security: [Security; 2]) -> [Result<Wire, NetError>; 2] {
    let answer = async { server.listener.accept().await?.wire(security[1]).await };
    let dial = connect_wire("coordinator", join, "worker-3", security[0], &SHORT);
    let (dialer, listener) = tokio::join!(dial, answer);
    [dialer, listener]
}

/// (dialer's end, listener's end).
fn wires(security: Security) -> (Wire, Wire) {
    run(async {
        let server = Server::start(Over::Tcp, &SHORT).await;
        let [dialer, listener] = meet(&server.join, &server, [security; 2]).await;
        (dialer.unwrap(), listener.unwrap())
    })
}

/// Sends and receives all of it, at once.
fn exchange(wire: &mut Wire, mut out: &[u8], into: &mut [u8]) -> Result<(), NetError> {
    let mut filled = 0;
    loop {
        let sent = wire.send(out)?;
        out = &out[sent..];
        let received = wire.receive(&mut into[filled..])?;
        filled += received;
        if out.is_empty() && filled == into.len() && wire.flush()? {
            return Ok(());
        }
        if sent + received == 0 {
            let want = Ready {
                read: filled < into.len(),
                write: !out.is_empty(),
            };
            assert!(wait_ready(&[(wire, want)], WAIT)?[0].any(), "the test hangs");
        }
    }
}

/// What comes until the end, and the end.
fn drain(wire: &mut Wire) -> (Vec<u8>, NetError) {
    let mut all = Vec::new();
    let mut some = vec![0; 300_000];
    loop {
        match wire.receive(&mut some) {
            Ok(0) => assert!(wait_ready(&[(wire, Ready::READ)], WAIT).unwrap()[0].read),
            Ok(count) => all.extend_from_slice(&some[..count]),
            Err(error) => return (all, error),
        }
    }
}

#[test]
fn much_more_than_the_buffers_hold_crosses_in_both_directions_at_once() {
    for security in BOTH {
        let (mut a, mut b) = wires(security);
        let (left, right) = (pattern(24 << 20, 1), pattern((24 << 20) + 12_345, 2));
        thread::scope(|scope| {
            let far = scope.spawn(|| {
                let mut got = vec![0; left.len()];
                exchange(&mut b, &right, &mut got).unwrap();
                got
            });
            let mut got = vec![0; right.len()];
            exchange(&mut a, &left, &mut got).unwrap();
            assert!(got == right, "{security}");
            assert!(far.join().unwrap() == left, "{security}");
        });
    }
}

#[test]
fn a_wire_that_is_full_says_so_instead_of_waiting() {
    for security in BOTH {
        let (mut a, mut b) = wires(security);
        let out = pattern(1 << 20, 0);
        let mut taken = [0, 0];
        // Both send and nobody receives.
        for (wire, taken) in [&mut a, &mut b].into_iter().zip(&mut taken) {
            while let count @ 1.. = wire.send(&out[*taken % 4096..]).unwrap() {
                *taken += count;
                assert!(*taken < 1 << 30);
            }
        }
        let ready = wait_ready(
            &[(&a, Ready::WRITE), (&b, Ready::WRITE)],
            Duration::from_millis(30),
        );
        assert_eq!(ready.unwrap(), [Ready::default(); 2]);
        if security == Security::Tls {
            // What was taken and has not left is watched although only reading is wanted.
            let mut some = vec![0; 1 << 20];
            let mut received = 0;
            while received < taken[0] {
                received += b.receive(&mut some).unwrap();
                if wait_ready(&[(&a, Ready::READ)], Duration::ZERO).unwrap()[0].write {
                    a.flush().unwrap();
                }
            }
            assert!(a.flush().unwrap());
        }
    }
}

#[test]
fn pieces_of_any_size_arrive_as_one_stream() {
    for security in BOTH {
        for seed in 0..6u64 {
            let (mut a, mut b) = wires(security);
            let mut source = Random::new(seed);
            let mut random = move |below: u64| source.below(below) as usize;
            // Sizes of all magnitudes, and just around whole records.
            let mut size = move || match random(4) {
                0 => random(40),
                1 => 16_384 * (1 + random(3)) - 1 + random(3),
                2 => random(400_000),
                _ => random(20_000),
            };
            let sent = pattern(6 << 20, seed as usize);
            let (mut out, mut got) = ([0, 0], [Vec::new(), Vec::new()]);
            while got.iter().any(|got| got.len() < sent.len()) {
                step(&mut a, &mut b, &sent, &mut out[0], &mut got[0], &mut size);
                step(&mut b, &mut a, &sent, &mut out[1], &mut got[1], &mut size);
            }
            assert!(got.iter().all(|got| *got == sent), "{security} {seed}");
        }
    }
}

fn step(
    from: &mut Wire,
    to: &mut Wire,
    sent: &[u8],
    out: &mut usize,
    got: &mut Vec<u8>,
    size: &mut impl FnMut() -> usize,
) {
    let end = (*out + size()).min(sent.len());
    *out += from.send(&sent[*out..end]).unwrap();
    from.flush().unwrap();
    let mut space = vec![0; size()];
    let count = to.receive(&mut space).unwrap();
    assert_eq!(space[..count], sent[got.len()..got.len() + count]);
    got.extend_from_slice(&space[..count]);
}

#[test]
fn peers_of_a_wire_know_each_other() {
    for security in BOTH {
        let (a, b) = wires(security);
        assert_eq!(
            (a.peer().name.as_str(), b.peer().name.as_str()),
            ("coordinator", "worker-3")
        );
        for wire in [&a, &b] {
            assert_eq!(wire.security(), security);
            assert_eq!(wire.peer().transport, TransportKind::Tcp);
            assert!(wire.peer().address.starts_with("127.0.0.1:"));
            assert!(format!("{wire:?}").contains(&security.to_string()));
        }
    }
}

#[test]
fn another_key_another_name_and_another_transport_are_refused() {
    run(async {
        for security in BOTH {
            let server = Server::start(Over::Tcp, &SHORT).await;
            let mut join = server.join.clone();
            join.key = JobKey::from_bytes([6; 32]);
            for side in meet(&join, &server, [security; 2]).await {
                assert!(matches!(side, Err(NetError::WrongKey)), "{security}: {side:?}");
            }
            let answer = async { server.listener.accept().await?.wire(security).await };
            let dial = connect_wire("worker-9", &server.join, "worker-3", security, &SHORT);
            let (dialer, listener) = tokio::join!(dial, answer);
            assert!(
                matches!(dialer, Err(NetError::WrongName { .. })),
                "{security}: {dialer:?}"
            );
            assert!(listener.is_err(), "the dialer did not accept it");
            let next = meet(&server.join, &server, [security; 2]).await;
            assert!(next.iter().all(Result::is_ok), "{next:?}");
        }
        let server = Server::start(Over::Hidden, &SHORT).await;
        let answer = async { server.listener.accept().await?.wire(Security::Plain).await };
        let dial = connect_wire("coordinator", &server.join, "w", Security::Plain, &SHORT);
        let (dialer, link) = (dial.await.unwrap_err(), connect(&server.join, "w", &SHORT));
        let (_, listener) = tokio::join!(link, answer);
        for error in [dialer, listener.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
            assert!(error.to_string().contains("listen on TCP for wires"), "{error}");
        }
    });
}

#[test]
fn sides_that_disagree_on_security_are_both_told() {
    run(async {
        let server = Server::start(Over::Tcp, &SHORT).await;
        for security in [[BOTH[0], BOTH[1]], [BOTH[1], BOTH[0]]] {
            let clock = SystemClock::start();
            let sides = meet(&server.join, &server, security).await;
            assert!(clock.now().since(Time::ZERO) < SHORT.handshake, "{security:?}");
            for (side, own) in sides.into_iter().zip(security) {
                let error = side.unwrap_err();
                assert!(
                    matches!(error, NetError::WrongSecurity { ours, theirs } if ours == own && theirs != own),
                    "{own}: {error}"
                );
                assert_eq!(error.kind(), ErrorKind::Refused);
            }
        }
        // A listener of links wants TLS too.
        let dial = connect_wire("coordinator", &server.join, "w", Security::Plain, &SHORT);
        let (dialer, listener) = tokio::join!(dial, server.answer());
        assert!(
            matches!(dialer, Err(NetError::WrongSecurity { .. })),
            "{dialer:?}"
        );
        assert!(
            matches!(listener, Err(NetError::WrongSecurity { .. })),
            "{listener:?}"
        );
    });
}

#[test]
fn a_dialer_that_wants_a_link_is_given_up() {
    run(async {
        let server = Server::start(Over::Tcp, &SHORT).await;
        let answer = async { server.listener.accept().await?.wire(Security::Tls).await };
        let (link, wire) = tokio::join!(connect(&server.join, "w", &SHORT), answer);
        assert!(link.is_ok());
        assert!(matches!(wire, Err(NetError::Deadline { .. })), "{wire:?}");
    });
}

#[test]
fn an_end_in_order_is_told_from_one_without_a_farewell() {
    let sent = pattern(100_000, 3);
    for (security, orderly, when) in [
        (Security::Tls, true, "in order"),
        (Security::Tls, false, "without a farewell"),
        (Security::Plain, true, "without a farewell"),
    ] {
        let (mut a, mut b) = wires(security);
        exchange(&mut a, &sent, &mut []).unwrap();
        if orderly {
            a.close();
        } else {
            drop(a);
        }
        let (got, end) = drain(&mut b);
        assert_eq!(got, sent);
        assert!(
            matches!(&end, NetError::Closed { when: found, .. } if *found == when),
            "{end}"
        );
        assert!(
            end.is_transient() && end.to_string().contains("worker-3"),
            "{end}"
        );
        // It stays so, and is something to read.
        assert!(wait_ready(&[(&b, Ready::READ)], WAIT).unwrap()[0].read);
        assert!(matches!(b.receive(&mut [0; 9]), Err(NetError::Closed { .. })));
        let end = loop {
            if let Err(error) = b.send(&sent) {
                break error;
            }
        };
        assert!(matches!(end, NetError::Closed { .. }), "{end}");
    }
}

/// What the process does that is killed below: sends for ever to the address that it is given.
#[test]
#[ignore = "the other process of the next test"]
fn sender_that_is_killed() {
    let Ok(address) = std::env::var("GRAMPUS_TEST_WIRE") else {
        return;
    };
    let join = JoinString {
        job: super::JOB,
        key: key(),
        address: address.parse().unwrap(),
    };
    let security = if std::env::var_os("GRAMPUS_TEST_PLAIN").is_some() {
        Security::Plain
    } else {
        Security::Tls
    };
    let dial = connect_wire("coordinator", &join, "worker-3", security, &SHORT);
    let mut wire = run(dial).unwrap();
    while exchange(&mut wire, &[1; 50_000], &mut []).is_ok() {}
}

#[test]
fn a_peer_that_is_killed_ends_the_wire() {
    for security in BOTH {
        let mut child = None;
        let mut wire = run(async {
            let limits = Limits::default();
            let server = Server::start(Over::Tcp, &limits).await;
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args(["--ignored", "--exact", "tests::bulk::sender_that_is_killed"])
                .env("GRAMPUS_TEST_WIRE", server.join.address.to_string())
                .stdout(Stdio::null());
            if security == Security::Plain {
                command.env("GRAMPUS_TEST_PLAIN", "1");
            }
            child = Some(command.spawn().unwrap());
            server
                .listener
                .accept()
                .await
                .unwrap()
                .wire(security)
                .await
                .unwrap()
        });
        let mut some = vec![0; 1 << 20];
        let mut received = 0;
        while received < 1 << 20 {
            assert!(wait_ready(&[(&wire, Ready::READ)], WAIT).unwrap()[0].read);
            received += wire.receive(&mut some).unwrap();
        }
        let mut child = child.unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let (rest, end) = drain(&mut wire);
        assert!(rest.iter().all(|byte| *byte == 1));
        assert!(
            matches!(
                end,
                NetError::Closed {
                    when: "without a farewell" | "abruptly",
                    ..
                }
            ),
            "{end}"
        );
    }
}

/// What a proxy does to the bytes from the dialer.
#[derive(Clone, Copy)]
enum Harm {
    /// Flips a bit of the byte at this place.
    Flip(usize),
    /// Ends the stream here.
    Cut(usize),
    /// Leaves out this many bytes at this place.
    Skip(usize, usize),
}

/// Passes bytes on in both directions; harms those that come to it. Returns its port.
fn proxy(to: u16, harm: Harm) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (near, _) = listener.accept().unwrap();
        let far = TcpStream::connect(("127.0.0.1", to)).unwrap();
        let (near_back, far_back) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        thread::spawn(move || pass(far_back, near_back, None));
        pass(near, far, Some(harm));
    });
    port
}

fn pass(mut from: TcpStream, mut to: TcpStream, harm: Option<Harm>) {
    let mut place = 0;
    let mut some = vec![0; 100_000];
    while let Ok(count @ 1..) = from.read(&mut some) {
        let mut bytes = some[..count].to_vec();
        let here = place..place + count;
        place += count;
        match harm {
            Some(Harm::Flip(at)) if here.contains(&at) => bytes[at - here.start] ^= 0x10,
            Some(Harm::Cut(at)) if place > at => {
                bytes.truncate(at.saturating_sub(here.start));
                let _ = to.write_all(&bytes);
                break;
            }
            Some(Harm::Skip(at, length)) if here.contains(&at) => {
                let from = at - here.start;
                bytes.drain(from..(from + length).min(count));
            }
            _ => {}
        }
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// What the listener got and how it ended, where the dialer sent `sent` through a proxy that harms it.
fn harmed(security: Security, sent: &[u8], harm: Harm) -> (Vec<u8>, NetError) {
    let (mut a, mut b) = run(async {
        let server = Server::start(Over::Tcp, &SHORT).await;
        let Address::Tcp { port, .. } = server.join.address else {
            unreachable!()
        };
        let mut join = server.join.clone();
        join.address = Address::Tcp {
            host: "127.0.0.1".into(),
            port: proxy(port, harm),
        };
        let [a, b] = meet(&join, &server, [security; 2]).await;
        (a.unwrap(), b.unwrap())
    });
    let sent = sent.to_vec();
    let sending = thread::spawn(move || {
        let _ = exchange(&mut a, &sent, &mut []);
        a.close();
    });
    let found = drain(&mut b);
    sending.join().unwrap();
    found
}

#[test]
fn bytes_that_were_changed_on_the_way_are_an_error_and_never_data() {
    let sent = pattern(1_000_000, 5);
    // Beyond the handshake, into content, heads and tags alike, in records that come first and later.
    let places = [
        4_000, 4_001, 16_500, 20_405, 20_411, 100_003, 500_000, 777_777, 999_999,
    ];
    for place in places {
        let (got, end) = harmed(Security::Tls, &sent, Harm::Flip(place));
        assert!(got.len() < sent.len() && sent.starts_with(&got), "{place}");
        assert!(
            matches!(end, NetError::Tampered { .. } | NetError::Garbage { .. }),
            "{place}: {end}"
        );
    }
    let record = 16_384 + 21;
    for (place, length) in [(50_000, record), (50_000, 1), (400_000, 3 * record)] {
        let (got, end) = harmed(Security::Tls, &sent, Harm::Skip(place, length));
        assert!(
            got.len() < sent.len() && sent.starts_with(&got),
            "{place} {length}"
        );
        assert!(
            matches!(end, NetError::Tampered { .. } | NetError::Garbage { .. }),
            "{place} {length}: {end}"
        );
    }
}

#[test]
fn a_stream_that_is_cut_is_not_taken_for_its_end() {
    let sent = pattern(1_000_000, 6);
    for security in BOTH {
        let (got, end) = harmed(security, &sent, Harm::Cut(300_000));
        assert!(got.len() < sent.len() && sent.starts_with(&got));
        assert!(
            matches!(
                end,
                NetError::Closed {
                    when: "without a farewell",
                    ..
                }
            ),
            "{end}"
        );
    }
}

/// However long: `SHORT.io` is what the kernel was told once.
#[test]
fn a_wire_whose_peer_lives_and_does_not_read_stays() {
    for security in BOTH {
        let (mut a, mut b) = wires(security);
        let sent = pattern(1 << 20, 0);
        let mut taken = 0;
        while let count @ 1.. = a.send(&sent).unwrap() {
            taken += count;
        }
        // The answers of the peer's kernel are to come meanwhile: its window is closed.
        let nothing = wait_ready(&[(&a, Ready::WRITE)], 10 * SHORT.io).unwrap();
        assert_eq!(nothing, [Ready::default()], "{security}");
        let (mut some, mut received) = (vec![0; 1 << 20], 0);
        while received < taken {
            a.flush().unwrap();
            received += b.receive(&mut some).unwrap();
        }
        assert_eq!(received, taken);
    }
}

#[test]
fn a_bell_ends_a_wait_once() {
    let bell = Bell::new().unwrap();
    let (a, b) = wires(Security::Plain);
    let wanted = [(&a, Ready::READ), (&b, Ready::READ)];
    thread::scope(|scope| {
        scope.spawn(|| bell.ring());
        let clock = SystemClock::start();
        assert_eq!(bell.wait_ready(&wanted, WAIT).unwrap(), [Ready::default(); 2]);
        assert!(clock.now().since(Time::ZERO) < WAIT);
    });
    let clock = SystemClock::start();
    bell.wait_ready(&wanted, SHORT.io).unwrap();
    assert!(clock.now().since(Time::ZERO) >= SHORT.io, "it was rung once");
}

#[test]
fn an_end_shows_behind_bytes_that_were_not_read() {
    for security in BOTH {
        let (mut a, b) = wires(security);
        assert!(!b.is_ended());
        exchange(&mut a, b"unread", &mut []).unwrap();
        assert!(!b.is_ended());
        a.close();
        let end = SystemClock::start();
        while !b.is_ended() {
            assert!(end.now().since(Time::ZERO) < WAIT, "{security}");
            thread::yield_now();
        }
    }
}

#[test]
fn a_listener_of_any_security_takes_what_the_dialer_wants() {
    run(async {
        let server = Server::start(Over::Tcp, &SHORT).await;
        for security in BOTH {
            let answer = async { server.listener.accept().await?.any_wire().await };
            let dial = connect_wire("coordinator", &server.join, "w", security, &SHORT);
            let (dialer, listener) = tokio::join!(dial, answer);
            assert_eq!(dialer.unwrap().security(), security);
            assert_eq!(listener.unwrap().security(), security);
        }
    });
}

#[test]
fn bytes_that_wait_inside_a_wire_count_as_ready() {
    for security in BOTH {
        let (mut a, mut b) = wires(security);
        let nothing = wait_ready(&[(&b, Ready::READ)], Duration::from_millis(10)).unwrap();
        assert_eq!(nothing, [Ready::default()]);
        exchange(&mut a, b"first", &mut []).unwrap();
        exchange(&mut a, b"second", &mut []).unwrap();
        let mut got = Vec::new();
        while got.len() < 11 {
            assert!(wait_ready(&[(&b, Ready::READ)], WAIT).unwrap()[0].read);
            let mut one = [0];
            let count = b.receive(&mut one).unwrap();
            got.extend_from_slice(&one[..count]);
        }
        assert_eq!(got, b"firstsecond");
        assert_eq!(b.receive(&mut []).unwrap(), 0);
        let both = wait_ready(&[(&a, Ready::BOTH), (&b, Ready::READ)], WAIT).unwrap();
        assert_eq!(both, [Ready::WRITE, Ready::default()]);
    }
}
