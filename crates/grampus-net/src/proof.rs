//! The proof that two peers share a host: memory that one filled and the other can read.

use std::os::fd::OwnedFd;

use rustix::fs::SealFlags;

use crate::{Memory, NetError};

/// Memory that shows `nonce`.
pub(crate) fn witness(nonce: &[u8; 32]) -> Result<Memory, NetError> {
    let memory = Memory::create(32)?;
    memory.write_at(nonce, 0)?;
    memory.freeze()?;
    Ok(memory)
}

/// True where a descriptor came, and it is of final memory that shows `nonce`.
pub(crate) fn holds(fd: Option<OwnedFd>, nonce: &[u8; 32]) -> bool {
    let Some(memory) = fd.and_then(|fd| Memory::received(fd, 32).ok()) else {
        return false;
    };
    let sealed = rustix::fs::fcntl_get_seals(memory.fd()).is_ok_and(|seals| seals.contains(SealFlags::WRITE));
    let mut shown = [0; 32];
    sealed && memory.read_at(&mut shown, 0).is_ok() && shown == *nonce
}
