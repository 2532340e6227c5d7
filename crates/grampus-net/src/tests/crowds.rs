//! Strangers who connect and say nothing, or little, keep nobody out.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::{JOB, Over, Server, key, run};
use crate::arrivals::Arrivals;
use crate::listen::{Raw, room};
use crate::{Limits, connect, tls};

/// More than the listener keeps.
const CROWD: usize = 600;
/// Workers of one host that come at once.
const PEERS: usize = 300;
/// Far longer than a test may take: nobody is rescued by a deadline.
const LIMITS: Limits = Limits {
    body: 4 << 20,
    parts: 1 << 20,
    memory: 1 << 40,
    io: Duration::from_secs(60),
    handshake: Duration::from_secs(60),
};

/// A peer of ours gets through a crowd that says this.
fn gets_through(word: &'static [u8]) {
    run(async {
        let server = Server::start(Over::Tcp, &LIMITS).await;
        let address = server.listener.local_addr().unwrap();
        let serving = async {
            let mut handshakes = tokio::task::JoinSet::new();
            loop {
                tokio::select! {
                    incoming = server.listener.accept() => drop(handshakes.spawn(incoming.unwrap().handshake())),
                    Some(shaken) = handshakes.join_next() => {
                        if let Ok(Ok(link)) = shaken {
                            return link;
                        }
                    }
                }
            }
        };
        let knocking = async {
            let mut crowd = Vec::new();
            for _ in 0..CROWD {
                let mut stranger = TcpStream::connect(address).await.unwrap();
                stranger.write_all(word).await.unwrap();
                crowd.push(stranger);
            }
            let link = connect(&server.join, "worker-3", &LIMITS).await.unwrap();
            (crowd, link)
        };
        let (link, (_crowd, _other)) = tokio::join!(serving, knocking);
        assert_eq!(link.peer.name, "worker-3");
    });
}

#[test]
fn a_peer_gets_through_a_silent_crowd() {
    gets_through(b"");
}

#[test]
fn a_peer_gets_through_a_crowd_that_says_the_first_byte_and_no_more() {
    gets_through(&[22]);
}

/// A silent connection from one of the addresses of this machine.
async fn stranger(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    socket.connect(to).await.unwrap()
}

#[test]
fn a_crowd_from_one_address_keeps_the_connections_of_others() {
    run(async {
        let server = Server::start(Over::Tcp, &LIMITS).await;
        let address = server.listener.local_addr().unwrap();
        let knocking = async {
            // The oldest of all: where addresses did not count, it would be the first to go.
            let other = stranger(Ipv4Addr::new(127, 0, 0, 3), address).await;
            let mut crowd = Vec::new();
            for _ in 0..CROWD {
                crowd.push(stranger(Ipv4Addr::new(127, 0, 0, 2), address).await);
            }
            let mut byte = [0];
            // With the other one there are more than it keeps.
            let last_closed = CROWD - room(getrlimit(Resource::Nofile).current).0;
            assert_eq!(crowd[last_closed].read(&mut byte).await.unwrap(), 0);
            for open in [&crowd[last_closed + 1], &other] {
                assert_eq!(
                    open.try_read(&mut byte).unwrap_err().kind(),
                    ErrorKind::WouldBlock
                );
            }
        };
        // Those that have to go are accepted, so that their handshakes can say why they failed.
        let serving = async {
            loop {
                drop(server.listener.accept().await.unwrap());
            }
        };
        tokio::select! {
            () = serving => {}
            () = knocking => {}
        }
    });
}

#[test]
fn many_peers_that_come_at_once_are_all_let_in() {
    // Each speaks a moment after it has connected: none of them is taken for silent.
    run(async {
        let server = Server::start(Over::Tcp, &LIMITS).await;
        let serving = async {
            let mut handshakes = tokio::task::JoinSet::new();
            while handshakes.len() < PEERS {
                handshakes.spawn(server.listener.accept().await.unwrap().handshake());
            }
            let links = handshakes.join_all().await;
            links.into_iter().filter(Result::is_ok).count()
        };
        let knocking = async {
            let mut dialing = tokio::task::JoinSet::new();
            for number in 0..PEERS {
                let join = server.join.clone();
                dialing.spawn(async move { connect(&join, &format!("worker-{number}"), &LIMITS).await });
            }
            let links = dialing.join_all().await;
            links.into_iter().filter(Result::is_ok).count()
        };
        assert_eq!(tokio::join!(serving, knocking), (PEERS, PEERS));
    });
}

#[test]
fn strangers_hold_a_quarter_of_the_descriptors_at_most() {
    assert_eq!(room(None), (512, 256));
    assert_eq!(room(Some(1 << 20)), (512, 256));
    for limit in [1024, 256, 64] {
        let (silent, shaking) = room(Some(limit));
        assert!(silent + shaking <= limit as usize / 4, "{limit}");
    }
    assert_eq!(room(Some(0)), (2, 1));
}

#[test]
fn handshakes_go_to_the_address_that_has_the_fewest_and_none_waits_for_ever() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = tls::server_config(JOB, &key(), "coordinator").unwrap();
        let (mut arrivals, mut strangers) = (Arrivals::new(64), Vec::new());
        for (number, host) in [3, 2, 2, 2, 2].into_iter().enumerate() {
            let mut stranger = stranger(Ipv4Addr::new(127, 0, 0, host), address).await;
            stranger.write_all(&[22]).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let raw = Raw::Tcp(stream, number.to_string(), Arc::clone(&config));
            assert!(arrivals.push(raw).is_none());
            strangers.push(stranger);
        }
        let (mut order, mut places) = (String::new(), Vec::new());
        for _ in 0..strangers.len() {
            let raw = poll_fn(|context| arrivals.poll_word(context)).await.raw;
            places.push(arrivals.shake(&raw));
            let Raw::Tcp(_, number, _) = raw else {
                unreachable!()
            };
            order += &number;
        }
        // The newest; the other address; of the first one the newest and the oldest by turns.
        assert_eq!(order, "40312");
    });
}
