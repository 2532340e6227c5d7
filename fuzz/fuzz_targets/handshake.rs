//! Any bytes as a message of the handshake: refused, or read as exactly what was sent; and never a right proof.

#![no_main]

use std::sync::OnceLock;

use grampus_core::{JobId, JobKey};
use grampus_net::NetError;
use grampus_net::handshake::{Hello, Identity, Role, Verdict, parse_hello, parse_proof};
use libfuzzer_sys::fuzz_target;

static IDENTITY: OnceLock<(Identity, Hello)> = OnceLock::new();

fuzz_target!(|bytes: &[u8]| {
    let (identity, ours) = IDENTITY.get_or_init(|| {
        let identity = Identity::new(JobId(1), &JobKey::from_bytes([3; 32])).expect("a key can be derived");
        (
            identity,
            Hello {
                version: 1,
                job: JobId(1),
                verdict: Verdict::Accepted,
                nonce: [7; 32],
            },
        )
    });
    let theirs = match parse_hello(bytes) {
        Ok(hello) => {
            assert_eq!(hello.encode(), bytes);
            hello
        }
        Err(_) => ours.clone(),
    };
    let proof = &bytes[bytes.len().saturating_sub(grampus_net::handshake::PROOF)..];
    if let Ok(proof) = parse_proof(proof) {
        assert!(bytes.ends_with(&proof.encode()));
        for role in [Role::Dialer, Role::Listener] {
            assert!(matches!(
                proof.verify(identity, role, [&theirs, ours]),
                Err(NetError::WrongKey)
            ));
        }
    }
});
