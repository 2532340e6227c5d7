//! Peers that are not who they should be: both sides must say why. `NET-1` and `NET-7` are here.

use grampus_core::{Address, JobId, JobKey, JoinString, PROTOCOL_VERSION};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::{JOB, Over, SHORT, Server, key, run, socket_path};
use crate::handshake::{
    HELLO, Hello, Identity, PROOF, Proof, Role, Verdict, check_name, parse_hello, parse_proof,
};
use crate::{ErrorKind, Link, NetError, connect, greeting};

async fn meet(over: Over, join: impl FnOnce(&mut JoinString)) -> [Result<Link, NetError>; 2] {
    let server = Server::start(over, &SHORT).await;
    let mut other = server.join.clone();
    join(&mut other);
    let (dialer, listener) = tokio::join!(connect(&other, "worker-3", &SHORT), server.answer());
    // The refusal of one must not keep out the next.
    let (next, answer) = tokio::join!(connect(&server.join, "worker-4", &SHORT), server.answer());
    assert!(next.is_ok() && answer.is_ok());
    [dialer, listener]
}

#[test]
fn another_key_is_said_on_both_sides() {
    run(async {
        for over in [Over::Unix, Over::Hidden, Over::Tcp] {
            for side in meet(over, |join| join.key = JobKey::from_bytes([6; 32])).await {
                let error = side.unwrap_err();
                assert!(matches!(error, NetError::WrongKey), "{over:?}: {error}");
                assert!(error.to_string().starts_with("the job key does not match"));
                assert_eq!(error.kind(), ErrorKind::Refused);
            }
        }
    });
}

#[test]
fn another_job_is_named() {
    run(async {
        for side in meet(Over::Unix, |join| join.job = JobId(8)).await {
            assert!(matches!(side, Err(NetError::WrongJob { .. })), "{side:?}");
        }
        // Under TLS the dialer reads the job in the certificate and goes; all that the listener learns is that it did.
        let [dialer, listener] = meet(Over::Tcp, |join| join.job = JobId(8)).await;
        let text = dialer.unwrap_err().to_string();
        assert!(
            text.contains("job 0000000000000008 and the other to job 0000000000000007"),
            "{text}"
        );
        assert!(matches!(listener, Err(NetError::Unwanted { .. })), "{listener:?}");
    });
}

#[test]
fn another_version_is_said_with_both_numbers_on_both_sides() {
    run(async {
        let server = Server::start(Over::Unix, &SHORT).await;
        let Address::Unix(path) = &server.join.address else {
            unreachable!()
        };
        let mut stream = UnixStream::connect(path).await.unwrap();
        let hello = Hello {
            version: 99,
            ..Hello::new(JOB, Verdict::Accepted).unwrap()
        };
        stream.write_all(&hello.encode()).await.unwrap();
        let error = server.answer().await.unwrap_err();
        assert!(
            matches!(
                error,
                NetError::Version {
                    ours: PROTOCOL_VERSION,
                    theirs: 99
                }
            ),
            "{error}"
        );
        let mut bytes = [0; HELLO];
        stream.read_exact(&mut bytes).await.unwrap();
        let answer = parse_hello(&bytes).unwrap();
        assert_eq!(
            (answer.verdict, answer.version),
            (Verdict::Version, PROTOCOL_VERSION)
        );

        let (_folder, path) = socket_path();
        let listener = UnixListener::bind(&path).unwrap();
        let other = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = [0; HELLO];
            stream.read_exact(&mut bytes).await.unwrap();
            let hello = Hello {
                version: 99,
                ..Hello::new(JOB, Verdict::Version).unwrap()
            };
            stream.write_all(&hello.encode()).await.unwrap();
        };
        let join = JoinString {
            job: JOB,
            key: key(),
            address: Address::Unix(path),
        };
        let ((), dialer) = tokio::join!(other, connect(&join, "w", &SHORT));
        let text = dialer.unwrap_err().to_string();
        assert!(
            text.contains(&format!("version {PROTOCOL_VERSION} and the other 99")),
            "{text}"
        );
    });
}

#[test]
fn a_listener_without_the_key_cannot_pose_as_one_with_it() {
    run(async {
        let (_folder, path) = socket_path();
        let listener = UnixListener::bind(&path).unwrap();
        let impostor = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = [0; HELLO];
            stream.read_exact(&mut bytes).await.unwrap();
            stream
                .write_all(&Hello::new(JOB, Verdict::Accepted).unwrap().encode())
                .await
                .unwrap();
            let mut bytes = [0; PROOF];
            stream.read_exact(&mut bytes).await.unwrap();
            // The only right proof that it knows is the one it was just given.
            stream.write_all(&bytes).await.unwrap();
        };
        let join = JoinString {
            job: JOB,
            key: key(),
            address: Address::Unix(path),
        };
        let ((), dialer) = tokio::join!(impostor, connect(&join, "w", &SHORT));
        assert!(matches!(dialer, Err(NetError::WrongKey)), "{dialer:?}");
    });
}

#[test]
fn a_socket_that_passes_no_descriptor_is_of_another_host() {
    run(async {
        let server = Server::start(Over::Unix, &SHORT).await;
        let Address::Unix(path) = &server.join.address else {
            unreachable!()
        };
        // What `ssh -L` does: bytes go through, descriptors do not.
        let (_folder, forwarded) = socket_path();
        let forwarder = UnixListener::bind(&forwarded).unwrap();
        let forward = async {
            let (mut near, _) = forwarder.accept().await.unwrap();
            let mut far = UnixStream::connect(path).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        };
        let join = JoinString {
            address: Address::Unix(forwarded),
            ..server.join.clone()
        };
        let ((), dialer, listener) = tokio::join!(forward, connect(&join, "w", &SHORT), server.answer());
        for side in [dialer, listener] {
            assert!(matches!(side, Err(NetError::OtherHost)), "{side:?}");
        }
    });
}

#[test]
fn a_proof_is_worth_nothing_in_another_place() {
    let ours = Identity::new(JOB, &key()).unwrap();
    let (a, b) = (
        Hello::new(JOB, Verdict::Accepted).unwrap(),
        Hello::new(JOB, Verdict::Accepted).unwrap(),
    );
    let proof = Proof::new(&ours, Role::Dialer, [&a, &b], "worker-3").unwrap();
    assert_eq!(proof.verify(&ours, Role::Dialer, [&a, &b]).unwrap(), "worker-3");
    let wrong = |found: Result<&str, NetError>| assert!(matches!(found, Err(NetError::WrongKey)));
    wrong(proof.verify(&ours, Role::Listener, [&a, &b]));
    wrong(proof.verify(&ours, Role::Dialer, [&b, &a]));
    let fresh = Hello::new(JOB, Verdict::Accepted).unwrap();
    wrong(proof.verify(&ours, Role::Dialer, [&a, &fresh]));
    wrong(proof.verify(&ours, Role::Dialer, [&fresh, &b]));
    wrong(proof.verify(
        &Identity::new(JOB, &JobKey::from_bytes([0; 32])).unwrap(),
        Role::Dialer,
        [&a, &b],
    ));
    for place in 1..PROOF {
        let mut bytes = proof.encode();
        bytes[place] ^= 1;
        wrong(parse_proof(&bytes).unwrap().verify(&ours, Role::Dialer, [&a, &b]));
    }
}

#[test]
fn names_are_what_a_certificate_can_hold() {
    for name in ["worker-3", "a", "W_0", &"x".repeat(63)] {
        assert_eq!(check_name(name).unwrap(), name);
    }
    for name in ["", "-a", "a-", "a b", "a.b", "naïve", "a\n", "*", &"x".repeat(64)] {
        assert!(matches!(check_name(name), Err(NetError::BadName(_))), "{name}");
    }
    run(async {
        let server = Server::start(Over::Unix, &SHORT).await;
        assert!(matches!(
            connect(&server.join, "not a name", &SHORT).await,
            Err(NetError::BadName(_))
        ));
    });
}

#[test]
fn a_name_that_its_certificate_does_not_hold_is_refused() {
    run(async {
        let server = Server::start(Over::Tcp, &SHORT).await;
        let Address::Tcp { port, .. } = server.join.address else {
            unreachable!()
        };
        let liar = async {
            let config = crate::tls::client_config(JOB, &key(), "worker-3").unwrap();
            let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let name = crate::tls::server_name(JOB, "coordinator").unwrap();
            let stream = tokio_rustls::TlsConnector::from(config)
                .connect(name, stream)
                .await
                .unwrap();
            let identity = Identity::new(JOB, &key()).unwrap();
            let mut stream: crate::tcp::Stream = stream.into();
            greeting::dial(&mut stream, &identity, "worker-4", &"x".into()).await
        };
        let (_, listener) = tokio::join!(liar, server.answer());
        let text = listener.unwrap_err().to_string();
        assert!(
            text.contains("not `worker-4.0000000000000007.grampus` but `worker-3.0000000000000007.grampus`"),
            "{text}"
        );
    });
}
