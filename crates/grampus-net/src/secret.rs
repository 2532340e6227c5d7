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

/// The id and key of one job among several that share a key, for example all jobs of a user.
pub fn derive_job(shared: &JobKey, name: &str) -> Result<(JobId, JobKey), NetError> {
    let key = expand(shared, &[b"job key ", name.as_bytes()])?;
    let id = expand(shared, &[b"job id ", name.as_bytes()])?;
    let (id, _) = id.split_at(8);
    Ok((
        JobId(id.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))),
        JobKey::from_bytes(key),
    ))
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
    expand(key, &[purpose.as_bytes()])
}

fn expand(key: &JobKey, purpose: &[&[u8]]) -> Result<[u8; 32], NetError> {
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"grampus");
    let mut bytes = [0; 32];
    // The length is the digest's own, which HKDF always accepts; the error type exists for longer ones.
    salt.extract(key.as_bytes())
        .expand(purpose, hkdf::HKDF_SHA256)
        .and_then(|material| material.fill(&mut bytes))
        .map_err(|_| NetError::WrongKey)?;
    Ok(bytes)
}
