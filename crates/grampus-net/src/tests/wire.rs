//! `NET-6`: what others on the network see, and what they can do.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use grampus_core::{Address, JobKey, JoinString};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{JOB, Over, SHORT, Server, key, run};
use crate::tls::{self, Authority};
use crate::{Frame, Limits, Memory, NetError, connect};

const SECRET: &[u8] = b"the quick brown fox jumps over the lazy dog";

fn holds(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// Passes bytes on and keeps a copy.
async fn tap(
    mut from: impl tokio::io::AsyncRead + Unpin,
    mut to: impl tokio::io::AsyncWrite + Unpin,
    copy: &Mutex<Vec<u8>>,
) {
    let mut buffer = vec![0; 65536];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        copy.lock().unwrap().extend_from_slice(&buffer[..count]);
        if to.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

#[test]
fn nothing_that_is_said_can_be_read_on_the_wire() {
    run(async {
        let limits = Limits::default();
        let server = Server::start(Over::Tcp, &limits).await;
        let Address::Tcp { port, .. } = server.join.address else {
            unreachable!()
        };
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let through = proxy.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let copy = Arc::clone(&seen);
        tokio::spawn(async move {
            let (near, _) = proxy.accept().await.unwrap();
            let far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            tokio::join!(tap(near_in, far_out, &copy), tap(far_in, near_out, &copy));
        });
        let address = Address::Tcp {
            host: "127.0.0.1".into(),
            port: through,
        };
        let join = JoinString {
            address,
            ..server.join.clone()
        };
        let (dialer, listener) = tokio::join!(connect(&join, "worker-3", &limits), server.answer());
        let (mut dialer, mut listener) = (dialer.unwrap(), listener.unwrap());

        let memory = Memory::create(1000).unwrap();
        memory.write_at(SECRET, 500).unwrap();
        let frame = Frame {
            body: SECRET.to_vec(),
            parts: vec![Bytes::from_static(SECRET)],
            memory: Some(memory),
        };
        for (sender, receiver) in [
            (&mut dialer.sender, &mut listener.receiver),
            (&mut listener.sender, &mut dialer.receiver),
        ] {
            sender.send(frame.clone()).await.unwrap();
            let got = receiver.recv().await.unwrap().unwrap();
            assert_eq!((got.body.as_slice(), &got.parts[0][..]), (SECRET, SECRET));
        }
        let seen = seen.lock().unwrap();
        assert_eq!(seen[..2], [22, 3], "not TLS from the first byte");
        assert!(seen.len() > 2 * 1000);
        for words in [
            SECRET,
            &SECRET[10..20],
            b"worker-3",
            b"grampus\n",
            key().as_bytes(),
        ] {
            assert!(!holds(&seen, words), "{words:?} can be read");
        }
    });
}

#[test]
fn every_member_derives_the_same_authority() {
    let first = Authority::derive(&key()).unwrap().certificate;
    assert_eq!(first, Authority::derive(&key()).unwrap().certificate);
    assert_ne!(
        first,
        Authority::derive(&JobKey::from_bytes([1; 32]))
            .unwrap()
            .certificate
    );
    // Another build, compiler or machine must come to the same bytes.
    let digest = ring::digest::digest(&ring::digest::SHA256, &first);
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        "cf3debfa778607069a36f37c1ec8ae13930663b3aa601b23f7bb59f33219da6a"
    );
    assert!(!holds(&first, key().as_bytes()));
}

/// Accepts any certificate, as an attacker would.
#[derive(Debug)]
struct Gullible;

impl ServerCertVerifier for Gullible {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

#[test]
fn a_client_that_trusts_anyone_is_still_refused() {
    run(async {
        let server = Server::start(Over::Tcp, &SHORT).await;
        let Address::Tcp { port, .. } = server.join.address else {
            unreachable!()
        };
        let attack = |config: ClientConfig| async move {
            let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let name = tls::server_name(JOB, "coordinator").unwrap();
            let mut stream = tokio_rustls::TlsConnector::from(Arc::new(config))
                .connect(name, stream)
                .await
                .unwrap();
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
            assert!(rest.is_empty());
        };
        let other = tls::client_config(JOB, &JobKey::from_bytes([9; 32]), "worker-3").unwrap();
        let mut with_other_key = ClientConfig::clone(&other);
        with_other_key
            .dangerous()
            .set_certificate_verifier(Arc::new(Gullible));
        let ((), listener) = tokio::join!(attack(with_other_key), server.answer());
        assert!(matches!(listener, Err(NetError::WrongKey)), "{listener:?}");

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let without = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Gullible))
            .with_no_client_auth();
        let ((), listener) = tokio::join!(attack(without), server.answer());
        assert!(matches!(listener, Err(NetError::Garbage { .. })), "{listener:?}");
    });
}

#[test]
fn plain_bytes_on_a_tls_port_and_tls_on_a_plain_port_are_told_apart() {
    run(async {
        let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = plain.local_addr().unwrap().port();
        let web = async {
            let (mut stream, _) = plain.accept().await.unwrap();
            stream
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                .await
                .unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
        };
        let address = Address::Tcp {
            host: "127.0.0.1".into(),
            port,
        };
        let join = JoinString {
            job: JOB,
            key: key(),
            address,
        };
        let ((), dialer) = tokio::join!(web, connect(&join, "w", &SHORT));
        let error = dialer.unwrap_err();
        assert!(matches!(error, NetError::Garbage { .. }), "{error}");
        assert!(
            error
                .to_string()
                .contains("check that the address belongs to a grampus job"),
            "{error}"
        );
    });
}
