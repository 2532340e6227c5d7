//! `NET-2`: nothing waits for ever on a peer that stops.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::{JOB, Over, SHORT, Server, key, pairs, run, socket_path};
use crate::handshake::{Hello, Verdict};
use crate::{Frame, Limits, Memory, NetError, connect};
use grampus_core::{Address, JoinString};

#[expect(clippy::disallowed_methods, reason = "deadlines are measured in real time")]
fn now() -> Instant {
    Instant::now()
}

fn assert_in_time(start: Instant) {
    let took = start.elapsed();
    assert!(
        took >= Duration::from_millis(250) && took < Duration::from_secs(3),
        "took {took:?}"
    );
}

#[test]
fn a_peer_that_stops_reading_ends_a_send() {
    run(async {
        for (mut a, _b) in pairs(&SHORT).await {
            let frame = Frame::default().with_parts(vec![Bytes::from(vec![0; 1 << 20])]);
            let error = loop {
                let start = now();
                if let Err(error) = a.sender.send(frame.clone()).await {
                    assert_in_time(start);
                    break error;
                }
            };
            assert!(matches!(error, NetError::Deadline { .. }), "{error}");
            assert!(error.to_string().contains("coordinator"), "{error}");
            assert!(error.is_transient());
        }
    });
}

#[test]
fn a_peer_that_stops_reading_ends_streamed_memory() {
    run(async {
        let (mut a, _b) = super::pair(Over::Tcp, &SHORT).await;
        let start = now();
        let error = a
            .sender
            .send(Frame::default().with_memory(Memory::create(64 << 20).unwrap()))
            .await
            .unwrap_err();
        assert_in_time(start);
        assert!(matches!(error, NetError::Deadline { .. }), "{error}");
    });
}

#[test]
fn a_frame_that_does_not_go_on_ends_a_receive() {
    run(async {
        for over in [Over::Unix, Over::Tcp] {
            let (mut a, mut b) = super::pair(over, &SHORT).await;
            let large = Frame::default().with_parts(vec![Bytes::from(vec![1; 1 << 20])]);
            while tokio::time::timeout(Duration::from_millis(20), a.sender.send(large.clone()))
                .await
                .is_ok()
            {}
            // The last frame was cut when its sending was dropped; the sender still lives.
            let start = now();
            let error = loop {
                match b.receiver.recv().await {
                    Ok(frame) => assert!(frame.is_some()),
                    Err(error) => break error,
                }
            };
            assert_in_time(start);
            assert!(matches!(error, NetError::Deadline { .. }), "{error}");
            assert!(error.to_string().contains("worker-3"), "{error}");
        }
    });
}

/// A server's join string by way of a relay that passes on so many bytes every ten milliseconds.
async fn slow(server: &Server, bytes: usize) -> JoinString {
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (through, to) = (relay.local_addr().unwrap(), server.listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (near, _) = relay.accept().await.unwrap();
        let far = TcpStream::connect(to).await.unwrap();
        let ((mut up, mut down), (mut back, mut on)) = (near.into_split(), far.into_split());
        let there = async {
            let mut buffer = vec![0; bytes];
            while let Ok(count @ 1..) = up.read(&mut buffer).await {
                tokio::time::sleep(Duration::from_millis(10)).await;
                on.write_all(&buffer[..count]).await.unwrap();
            }
        };
        tokio::join!(there, tokio::io::copy(&mut back, &mut down))
    });
    let address = Address::Tcp {
        host: "127.0.0.1".into(),
        port: through.port(),
    };
    JoinString {
        address,
        ..server.join.clone()
    }
}

#[test]
fn a_frame_takes_as_long_as_it_takes_while_its_bytes_move() {
    let limits = Limits {
        parts: 16 << 20,
        ..SHORT
    };
    run(async {
        let server = Server::start(Over::Tcp, &limits).await;
        let join = slow(&server, 128 << 10).await;
        let (a, b) = tokio::join!(connect(&join, "worker-3", &limits), server.answer());
        let (mut a, mut b) = (a.unwrap(), b.unwrap());
        let frame = Frame::default().with_parts(vec![Bytes::from(vec![7; 16 << 20])]);
        let start = now();
        let (sent, got) = tokio::join!(a.sender.send(frame), b.receiver.recv());
        sent.unwrap();
        assert_eq!(got.unwrap().unwrap().parts[0].len(), 16 << 20);
        assert!(start.elapsed() > 2 * limits.io, "the relay was too fast");
    });
}

#[test]
fn silence_between_frames_has_no_deadline_here() {
    run(async {
        for (mut a, mut b) in pairs(&SHORT).await {
            let wait = tokio::time::sleep(Duration::from_millis(700));
            let send = async {
                wait.await;
                a.sender.send(Frame::message(&1u8).unwrap()).await.unwrap();
            };
            let ((), got) = tokio::join!(send, b.receiver.recv());
            assert_eq!(got.unwrap().unwrap().read::<u8>().unwrap(), 1);
        }
    });
}

#[test]
fn a_dialer_that_says_nothing_is_given_up() {
    run(async {
        for over in [Over::Unix, Over::Hidden, Over::Tcp] {
            let server = Server::start(over, &SHORT).await;
            let (_unix, _tcp) = match &server.join.address {
                Address::Unix(path) => (Some(UnixStream::connect(path).await.unwrap()), None),
                Address::Abstract(name) => {
                    let path = crate::hidden::path(name).unwrap();
                    (Some(UnixStream::connect(path).await.unwrap()), None)
                }
                Address::Tcp { port, .. } => (
                    None,
                    Some(TcpStream::connect(("127.0.0.1", *port)).await.unwrap()),
                ),
            };
            let start = now();
            let error = server.answer().await.unwrap_err();
            assert_in_time(start);
            assert!(matches!(error, NetError::Deadline { .. }), "{error}");
        }
    });
}

#[test]
fn a_dialer_that_drips_is_given_up_and_holds_up_nobody() {
    run(async {
        let server = Server::start(Over::Unix, &SHORT).await;
        let Address::Unix(path) = &server.join.address else {
            unreachable!()
        };
        let mut drip = UnixStream::connect(path).await.unwrap();
        let dripping = tokio::spawn(async move {
            for byte in Hello::new(JOB, Verdict::Accepted).unwrap().encode() {
                tokio::time::sleep(Duration::from_millis(25)).await;
                if drip.write_all(&[byte]).await.is_err() {
                    break;
                }
            }
        });
        let slow = tokio::spawn(server.listener.accept().await.unwrap().handshake());
        let start = now();
        let limits = SHORT;
        let (dialer, listener) = tokio::join!(connect(&server.join, "quick", &limits), server.answer());
        assert!(start.elapsed() < Duration::from_millis(250));
        assert_eq!(
            (dialer.unwrap().peer.name, listener.unwrap().peer.name),
            ("coordinator".into(), "quick".into())
        );
        let error = slow.await.unwrap().unwrap_err();
        assert_in_time(start);
        assert!(matches!(error, NetError::Deadline { .. }), "{error}");
        dripping.abort();
    });
}

#[test]
fn a_listener_that_says_nothing_is_given_up() {
    run(async {
        let (_folder, path) = socket_path();
        let _unix = UnixListener::bind(&path).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = tcp.local_addr().unwrap().port();
        let addresses = [
            Address::Unix(path),
            Address::Tcp {
                host: "127.0.0.1".into(),
                port,
            },
        ];
        for address in addresses {
            let start = now();
            let error = connect(
                &JoinString {
                    job: JOB,
                    key: key(),
                    address,
                },
                "w",
                &SHORT,
            )
            .await
            .unwrap_err();
            assert_in_time(start);
            assert!(matches!(error, NetError::Deadline { .. }), "{error}");
            assert!(
                error.to_string().contains("handshake with coordinator ("),
                "{error}"
            );
        }
    });
}

#[test]
fn nothing_at_the_address_is_said_with_the_address_and_what_to_do() {
    run(async {
        let (_folder, path) = socket_path();
        let port = TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let addresses = [
            Address::Unix(path),
            Address::Tcp {
                host: "127.0.0.1".into(),
                port,
            },
        ];
        for address in addresses {
            let shown = address.to_string();
            let error = connect(
                &JoinString {
                    job: JOB,
                    key: key(),
                    address,
                },
                "w",
                &SHORT,
            )
            .await
            .unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains(&shown) && text.contains("check that the driver still runs"),
                "{text}"
            );
            assert!(error.is_transient());
        }
    });
}
