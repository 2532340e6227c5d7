//! Random bits for keys, jobs and nonces, and what is derived from a job's key.

use grampus_core::{JobId, JobKey};
use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};

use crate::NetError;

/// A new key for a new job.
pub fn random_key() -> Result<JobKey, NetError> {
    Ok(JobKey::from_bytes(random_bytes()?))
}

/// A new id for a new job.
pub fn random_job() -> Result<JobId, NetError> {
    Ok(JobId(u64::from_le_bytes(random_bytes()?)))
}

pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], NetError> {
    let mut bytes = [0; N];
    let source = std::io::Error::other;
    SystemRandom::new().fill(&mut bytes).map_err(|_| {
        NetError::io("cannot get random bits", "check that getrandom(2) is allowed")(source("no bits"))
    })?;
    Ok(bytes)
}

/// 32 bytes for one purpose. Purposes cannot be told from each other's bytes, nor the key from any of them.
pub(crate) fn derive(key: &JobKey, purpose: &'static str) -> Result<[u8; 32], NetError> {
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"grampus");
    let mut bytes = [0; 32];
    // The length is the digest's own, which HKDF always accepts; the error type exists for longer ones.
    salt.extract(key.as_bytes())
        .expand(&[purpose.as_bytes()], hkdf::HKDF_SHA256)
        .and_then(|material| material.fill(&mut bytes))
        .map_err(|_| NetError::WrongKey)?;
    Ok(bytes)
}
