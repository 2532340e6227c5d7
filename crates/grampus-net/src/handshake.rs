//! The messages before the first frame. All have a fixed size, and their layout is the same in every version, so that
//! peers of different versions can still tell each other what is wrong.
//!
//! 1. The dialer says [`Hello`]: version, job and a nonce.
//! 2. The listener says [`Hello`] with its own, or why it refuses.
//! 3. The dialer gives its name and a [`Proof`] that it knows the job key.
//! 4. The listener does the same, or says why it refuses.
//!
//! A proof is an HMAC-SHA256 over the role, both hellos byte for byte, and the name. Roles and fresh nonces make a
//! proof worthless to whoever reflects or replays it. Over a Unix socket each proof comes with a descriptor of memory
//! that holds the other side's nonce: the proof of a shared host. Over TCP all of this runs inside TLS, except
//! for a wire that both sides want [`crate::Security::Plain`].

use grampus_core::{JobId, JobKey, PROTOCOL_VERSION};
use ring::hmac;

use crate::{NetError, secret};

/// Size of a [`Hello`].
pub const HELLO: usize = 53;
/// Size of a [`Proof`].
pub const PROOF: usize = 98;
/// What every [`Hello`] begins with.
pub const MAGIC: [u8; 8] = *b"grampus\n";

const NAME: usize = 64;

/// What a side thinks of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is wrong so far.
    Accepted = 0,
    /// The versions differ.
    Version = 1,
    /// The jobs differ.
    Job = 2,
    /// The proof is wrong.
    Key = 3,
    /// The name cannot be used.
    Name = 4,
    /// The descriptor is missing or wrong.
    Host = 5,
    /// The listener speaks TLS only.
    Security = 6,
}

impl Verdict {
    fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::Accepted,
            Self::Version,
            Self::Job,
            Self::Key,
            Self::Name,
            Self::Host,
            Self::Security,
        ]
        .into_iter()
        .find(|verdict| *verdict as u8 == byte)
    }
}

/// The first message of each side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Protocol version of the sender.
    pub version: u32,
    /// Job of the sender.
    pub job: JobId,
    /// Always accepted from the dialer.
    pub verdict: Verdict,
    /// Fresh random bytes.
    pub nonce: [u8; 32],
}

impl Hello {
    /// A hello of this build with a fresh nonce.
    pub fn new(job: JobId, verdict: Verdict) -> Result<Self, NetError> {
        Ok(Self {
            version: PROTOCOL_VERSION,
            job,
            verdict,
            nonce: secret::random_bytes()?,
        })
    }

    /// As it goes over the wire: magic, version, job, verdict, nonce.
    pub fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.job.0.to_le_bytes());
        bytes[20] = self.verdict as u8;
        bytes[21..].copy_from_slice(&self.nonce);
        bytes
    }
}

/// Reads what [`Hello::encode`] wrote.
pub fn parse_hello(bytes: &[u8]) -> Result<Hello, NetError> {
    let wrong = || NetError::garbage("what came is no greeting of grampus", bytes);
    let rest = bytes.strip_prefix(&MAGIC).ok_or_else(wrong)?;
    let (version, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
    let (job, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
    let (verdict, nonce) = rest.split_first().ok_or_else(wrong)?;
    Ok(Hello {
        version: u32::from_le_bytes(*version),
        job: JobId(u64::from_le_bytes(*job)),
        verdict: Verdict::from_byte(*verdict).ok_or_else(wrong)?,
        nonce: nonce.try_into().map_err(|_| wrong())?,
    })
}

/// The second message of each side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Always accepted from the dialer. The rest means nothing where this is a refusal.
    pub verdict: Verdict,
    /// That the sender knows the key.
    pub mac: [u8; 32],
    /// The sender's name, padded; not to be read before the proof was found right.
    name: [u8; NAME],
    length: u8,
}

/// Which side made a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The side that connected.
    Dialer,
    /// The side that was connected to.
    Listener,
}

impl Proof {
    /// The proof of one side.
    pub fn new(identity: &Identity, role: Role, hellos: [&Hello; 2], name: &str) -> Result<Self, NetError> {
        let mut proof = Self {
            verdict: Verdict::Accepted,
            mac: [0; 32],
            name: [0; NAME],
            length: 0,
        };
        let name = check_name(name)?.as_bytes();
        proof.name[..name.len()].copy_from_slice(name);
        proof.length = name.len() as u8;
        let mac = hmac::sign(&identity.mac, &proof.signed(role, hellos));
        proof.mac.copy_from_slice(mac.as_ref());
        Ok(proof)
    }

    /// A refusal, which proves nothing.
    pub fn refusal(verdict: Verdict) -> Self {
        Self {
            verdict,
            mac: [0; 32],
            name: [0; NAME],
            length: 0,
        }
    }

    /// The name, if the proof is right. Takes the same time wherever it is wrong.
    pub fn verify(&self, identity: &Identity, role: Role, hellos: [&Hello; 2]) -> Result<&str, NetError> {
        hmac::verify(&identity.mac, &self.signed(role, hellos), &self.mac).map_err(|_| NetError::WrongKey)?;
        let name = self.name.get(..usize::from(self.length)).unwrap_or_default();
        check_name(std::str::from_utf8(name).map_err(|_| NetError::BadName(format!("{name:?}")))?)
    }

    fn signed(&self, role: Role, [dialer, listener]: [&Hello; 2]) -> Vec<u8> {
        let role: &[u8; 16] = match role {
            Role::Dialer => b"grampus dialer 1",
            Role::Listener => b"grampus answer 1",
        };
        let parts: [&[u8]; 5] = [
            role,
            &dialer.encode(),
            &listener.encode(),
            &[self.length],
            &self.name,
        ];
        parts.concat()
    }

    /// As it goes over the wire: verdict, proof, length of the name, name.
    pub fn encode(&self) -> [u8; PROOF] {
        let mut bytes = [0; PROOF];
        bytes[0] = self.verdict as u8;
        bytes[1..33].copy_from_slice(&self.mac);
        bytes[33] = self.length;
        bytes[34..].copy_from_slice(&self.name);
        bytes
    }
}

/// Reads what [`Proof::encode`] wrote. The proof itself is still to be verified.
pub fn parse_proof(bytes: &[u8]) -> Result<Proof, NetError> {
    let wrong = || NetError::garbage("what came is no proof of grampus", bytes);
    let (verdict, rest) = bytes.split_first().ok_or_else(wrong)?;
    let (mac, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
    let (length, name) = rest.split_first().ok_or_else(wrong)?;
    Ok(Proof {
        verdict: Verdict::from_byte(*verdict).ok_or_else(wrong)?,
        mac: *mac,
        name: name.try_into().map_err(|_| wrong())?,
        length: *length,
    })
}

/// A job and the key to its proofs.
#[derive(Clone)]
pub struct Identity {
    pub(crate) job: JobId,
    mac: hmac::Key,
}

impl Identity {
    /// The identity of the members of a job.
    pub fn new(job: JobId, key: &JobKey) -> Result<Self, NetError> {
        let mac = hmac::Key::new(hmac::HMAC_SHA256, &secret::derive(key, "grampus handshake v1")?);
        Ok(Self { job, mac })
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity(job {})", self.job)
    }
}

/// A name stands in a certificate as a label of a domain name, which decides what it can be made of.
pub(crate) fn check_name(name: &str) -> Result<&str, NetError> {
    let plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if !plain || !(1..NAME).contains(&name.len()) || name.starts_with('-') || name.ends_with('-') {
        let shown: String = name.chars().take(NAME).flat_map(char::escape_default).collect();
        return Err(NetError::BadName(shown));
    }
    Ok(name)
}
