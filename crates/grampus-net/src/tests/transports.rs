//! What every transport must do alike.

use std::sync::Arc;

use bytes::Bytes;

use super::{Over, SHORT, Server, pair, pairs, run};
use crate::{ErrorKind, Frame, Limits, Memory, NetError, TransportKind, connect, connect_to};

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|place| (place.wrapping_mul(31) + (place >> 8) + seed) as u8)
        .collect()
}

fn frame(number: u32, parts: &[usize], memory: Option<usize>) -> Frame {
    let parts = parts.iter().map(|len| Bytes::from(pattern(*len, *len))).collect();
    let frame = Frame::message(&number).unwrap().with_parts(parts);
    let Some(len) = memory else { return frame };
    let memory = Memory::create(len as u64).unwrap();
    memory.write_at(&pattern(len, number as usize), 0).unwrap();
    frame.with_memory(memory)
}

fn assert_same(got: &Frame, sent: &Frame) {
    assert_eq!(got.body, sent.body);
    assert_eq!(got.parts, sent.parts);
    let content = |memory: &Memory| {
        let mut bytes = vec![0; memory.len() as usize];
        memory.read_at(&mut bytes, 0).unwrap();
        bytes
    };
    assert!(
        got.memory.as_ref().map(content) == sent.memory.as_ref().map(content),
        "the memory differs"
    );
}

#[test]
fn frames_with_parts_and_memory_of_any_size_arrive_whole_on_every_transport() {
    run(async {
        let cases = [
            frame(0, &[], None),
            frame(1, &[0, 1, 0], None),
            frame(2, &[64, 1000, 300_000], Some(64)),
            frame(3, &[], Some(0)),
            frame(4, &[5], Some(4097)),
            frame(5, &[1 << 20], Some((256 << 10) + 1)),
            frame(6, &[], Some(64 << 20)),
        ];
        for (mut a, mut b) in pairs(&Limits::default()).await {
            for sent in &cases {
                let (done, got) = tokio::join!(a.sender.send(sent.clone()), b.receiver.recv());
                done.unwrap();
                assert_same(&got.unwrap().unwrap(), sent);
                let (done, got) = tokio::join!(b.sender.send(sent.clone()), a.receiver.recv());
                done.unwrap();
                assert_same(&got.unwrap().unwrap(), sent);
            }
        }
    });
}

#[test]
fn many_frames_of_all_kinds_keep_their_order() {
    run(async {
        for (mut a, mut b) in pairs(&Limits::default()).await {
            let make = |number: u32| {
                let parts = vec![number as usize % 700; number as usize % 4];
                frame(number, &parts, (number % 7 == 3).then_some(number as usize * 11))
            };
            let send = async {
                for number in 0..2000 {
                    a.sender.send(make(number)).await.unwrap();
                }
                a.sender.close().await;
            };
            let receive = async {
                for number in 0..2000 {
                    assert_same(&b.receiver.recv().await.unwrap().unwrap(), &make(number));
                }
                assert!(b.receiver.recv().await.unwrap().is_none());
            };
            tokio::join!(send, receive);
        }
    });
}

#[test]
fn more_parts_than_one_system_call_takes_arrive() {
    run(async {
        let sent = frame(1, &vec![17; 5000], Some(100));
        for (mut a, mut b) in pairs(&Limits::default()).await {
            let (done, got) = tokio::join!(a.sender.send(sent.clone()), b.receiver.recv());
            done.unwrap();
            assert_same(&got.unwrap().unwrap(), &sent);
        }
    });
}

#[test]
fn both_directions_are_independent() {
    run(async {
        for (a, b) in pairs(&Limits::default()).await {
            let pump = |mut link: crate::Link| async move {
                let (sender, receiver) = (&mut link.sender, &mut link.receiver);
                let send = async {
                    for number in 0..200 {
                        sender.send(frame(number, &[50_000], None)).await.unwrap();
                    }
                };
                let receive = async {
                    for number in 0..200u32 {
                        let got = receiver.recv().await.unwrap().unwrap();
                        assert_eq!(got.read::<u32>().unwrap(), number);
                    }
                };
                tokio::join!(send, receive);
                link
            };
            tokio::join!(pump(a), pump(b));
        }
    });
}

#[test]
fn a_frame_over_the_limits_is_refused_and_the_link_goes_on() {
    run(async {
        let limits = Limits {
            body: 10,
            parts: 100,
            memory: 1000,
            ..Limits::default()
        };
        for (mut a, mut b) in pairs(&limits).await {
            let body = Frame {
                body: vec![0; 11],
                ..Frame::default()
            };
            let parts = Frame::default().with_parts(vec![Bytes::from(vec![0; 51]); 2]);
            let memory = Frame::default().with_memory(Memory::create(1001).unwrap());
            for (frame, name, size) in [
                (body, "a body", 11),
                (parts, "the parts", 102),
                (memory, "memory", 1001),
            ] {
                let error = a.sender.send(frame).await.unwrap_err();
                assert!(
                    matches!(error, NetError::TooLarge { what, size: found, .. } if what == name && found == size),
                    "{error}"
                );
                assert_eq!(error.kind(), ErrorKind::Misuse);
            }
            let right = frame(1, &[100], Some(1000));
            a.sender.send(right.clone()).await.unwrap();
            assert_same(&b.receiver.recv().await.unwrap().unwrap(), &right);
        }
    });
}

#[test]
fn a_receiver_refuses_what_is_over_its_own_limits() {
    run(async {
        for over in [Over::Unix, Over::Hidden, Over::Tcp] {
            let small = Limits {
                body: 10,
                memory: 10,
                ..SHORT
            };
            for frame in [
                Frame {
                    body: vec![0; 11],
                    ..Frame::default()
                },
                frame(1, &[], Some(11)),
            ] {
                let server = Server::start(over, &small).await;
                let limits = Limits::default();
                let (dialer, listener) = tokio::join!(connect(&server.join, "w", &limits), server.answer());
                dialer.unwrap().sender.send(frame).await.unwrap();
                let error = listener.unwrap().receiver.recv().await.unwrap_err();
                assert!(
                    matches!(
                        error,
                        NetError::TooLarge {
                            size: 11,
                            limit: 10,
                            ..
                        }
                    ),
                    "{error}"
                );
            }
        }
    });
}

#[test]
fn peers_know_each_other() {
    run(async {
        let (a, b) = pair(Over::Unix, &SHORT).await;
        assert_eq!(
            (a.peer.name.as_str(), b.peer.name.as_str()),
            ("coordinator", "worker-3")
        );
        for peer in [&a.peer, &b.peer] {
            assert_eq!((peer.transport, peer.same_host), (TransportKind::Unix, true));
            assert_eq!(peer.pid, Some(std::process::id()));
            assert_eq!(peer.uid, Some(rustix::process::geteuid().as_raw()));
            assert!(peer.address.ends_with("/private/socket"));
        }
        let (a, b) = pair(Over::Tcp, &SHORT).await;
        assert_eq!(
            (a.peer.name.as_str(), b.peer.name.as_str()),
            ("coordinator", "worker-3")
        );
        for peer in [&a.peer, &b.peer] {
            assert_eq!(
                (peer.transport, peer.same_host, peer.pid),
                (TransportKind::Tcp, false, None)
            );
            assert!(peer.address.starts_with("127.0.0.1:"));
        }
    });
}

#[test]
fn a_listener_can_have_another_name() {
    run(async {
        for over in [Over::Unix, Over::Hidden, Over::Tcp] {
            let mut server = Server::start(over, &SHORT).await;
            server.listener = server.listener.named("worker_9").unwrap();
            let (dialer, listener) = tokio::join!(
                connect_to("worker_9", &server.join, "worker-3", &SHORT),
                server.answer()
            );
            assert_eq!((dialer.unwrap().peer.name.as_str()), "worker_9");
            assert_eq!((listener.unwrap().peer.name.as_str()), "worker-3");
            let (dialer, _) = tokio::join!(connect(&server.join, "worker-3", &SHORT), server.answer());
            assert!(matches!(dialer, Err(NetError::WrongName { .. })), "{dialer:?}");
        }
    });
}

#[test]
fn sending_freezes_memory_unless_it_is_meant_to_be_shared() {
    run(async {
        for (mut a, mut b) in pairs(&Limits::default()).await {
            let memory = Memory::create(8).unwrap();
            a.sender
                .send(Frame::default().with_memory(memory.clone()))
                .await
                .unwrap();
            assert!(memory.write_at(b"x", 0).is_err());
            let got = b.receiver.recv().await.unwrap().unwrap().memory.unwrap();
            assert!(got.write_at(b"x", 0).is_err());

            let shared = Memory::create_shared(8).unwrap();
            a.sender
                .send(Frame::default().with_memory(shared.clone()))
                .await
                .unwrap();
            let got = b.receiver.recv().await.unwrap().unwrap().memory.unwrap();
            if a.peer.same_host {
                got.write_at(b"seen", 0).unwrap();
                let mut bytes = [0; 4];
                shared.read_at(&mut bytes, 0).unwrap();
                assert_eq!(&bytes, b"seen");
            }
        }
    });
}

#[test]
fn a_thousand_dialers_at_once_all_get_in() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    )
    .unwrap();
    // Both ends are in this process, beside what the other tests hold.
    let dialers = maximum.map_or(1000, |most| (most / 4).min(1000));
    run(async move {
        let limits = Limits::default();
        let server = Arc::new(Server::start(Over::Unix, &limits).await);
        let accepting = Arc::clone(&server);
        let accept = tokio::spawn(async move {
            let mut handshakes = tokio::task::JoinSet::new();
            for _ in 0..dialers {
                handshakes.spawn(accepting.listener.accept().await.unwrap().handshake());
            }
            handshakes.join_all().await
        });
        let mut dialing = tokio::task::JoinSet::new();
        for number in 0..dialers {
            let join = server.join.clone();
            dialing.spawn(async move { connect(&join, &format!("worker-{number}"), &limits).await });
        }
        let links = dialing.join_all().await;
        assert!(links.iter().all(Result::is_ok));
        let mut names: Vec<String> = accept
            .await
            .unwrap()
            .into_iter()
            .map(|link| link.unwrap().peer.name)
            .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len() as u64, dialers);
    });
}

#[test]
fn a_link_closed_in_order_delivers_what_was_sent_last() {
    run(async {
        for (mut a, mut b) in pairs(&Limits::default()).await {
            for number in 0..40 {
                b.sender.send(frame(number, &[1000], None)).await.unwrap();
                a.sender.send(frame(number, &[1000], None)).await.unwrap();
            }
            let rest = async {
                let mut count = 0;
                while b.receiver.recv().await.unwrap().is_some() {
                    count += 1;
                }
                b.sender.close().await;
                count
            };
            let ((), count) = tokio::join!(a.close(), rest);
            assert_eq!(count, 40);
        }
    });
}
