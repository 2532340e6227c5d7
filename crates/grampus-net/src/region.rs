//! Large values: anonymous memory files whose size cannot change.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{FileType, MemfdFlags, SealFlags};

use crate::NetError;

const NO_MEMORY: &str = "free memory on this host, or send less at a time";

/// A sealed anonymous memory file.
///
/// Over Unix sockets and memory links the descriptor itself travels; over TCP the bytes are streamed into a new one on
/// the other side. The size is sealed from the start, so that a mapping of [`Memory::len`] bytes can never fault.
/// Clones share the file.
#[derive(Clone, Debug)]
pub struct Memory {
    file: Arc<File>,
    len: u64,
}

impl Memory {
    /// New zeroed memory of `len` bytes. Write through a mapping of [`Memory::fd`] or [`Memory::write_at`]; sending
    /// it freezes the content, for which every shared writable mapping must have been dropped.
    pub fn create(len: u64) -> Result<Self, NetError> {
        Self::with_seals(len, SealFlags::SHRINK | SealFlags::GROW)
    }

    /// Like [`Memory::create`], but for memory that several processes keep writing: sending does not freeze it.
    pub fn create_shared(len: u64) -> Result<Self, NetError> {
        Self::with_seals(len, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
    }

    fn with_seals(len: u64, seals: SealFlags) -> Result<Self, NetError> {
        let make = || -> rustix::io::Result<OwnedFd> {
            let fd = rustix::fs::memfd_create("grampus", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            rustix::fs::ftruncate(&fd, len)?;
            rustix::fs::fcntl_add_seals(&fd, seals)?;
            Ok(fd)
        };
        let fd = make().map_err(|errno| {
            NetError::io(format!("cannot make {len} bytes of shared memory"), NO_MEMORY)(errno.into())
        })?;
        Ok(Self {
            file: Arc::new(fd.into()),
            len,
        })
    }

    /// Takes over a memory file that was made elsewhere, such as with Python's `os.memfd_create`, and seals its size.
    pub fn from_fd(fd: OwnedFd, len: u64) -> Result<Self, NetError> {
        let seals = check(&fd, len)?;
        let wanted = SealFlags::SHRINK | SealFlags::GROW;
        if !seals.contains(wanted) {
            rustix::fs::fcntl_add_seals(&fd, wanted).map_err(|_| {
                NetError::Memory("the memory file cannot be sealed: make it with MFD_ALLOW_SEALING")
            })?;
        }
        Ok(Self {
            file: Arc::new(fd.into()),
            len,
        })
    }

    /// What a peer passed. Its size must be sealed already: a peer that keeps the right to shrink it could make
    /// every mapping on this side fault.
    pub(crate) fn received(fd: OwnedFd, len: u64) -> Result<Self, NetError> {
        if !check(&fd, len)?.contains(SealFlags::SHRINK) {
            return Err(NetError::Memory(
                "the peer passed memory without a sealed size: make it with Memory::create",
            ));
        }
        Ok(Self {
            file: Arc::new(fd.into()),
            len,
        })
    }

    /// Makes the content final. Private (copy-on-write) mappings stay possible. Does nothing for memory made with
    /// [`Memory::create_shared`] or already frozen.
    pub fn freeze(&self) -> Result<(), NetError> {
        let seals = seals(&self.file)?;
        if seals.intersects(SealFlags::WRITE | SealFlags::SEAL) {
            return Ok(());
        }
        rustix::fs::fcntl_add_seals(&self.file, SealFlags::WRITE).map_err(|_| {
            NetError::Memory(
                "memory cannot be sent while it is mapped for writing: drop the writable mapping first",
            )
        })
    }

    /// The descriptor, for mapping.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A descriptor of its own, for code that closes what it is given.
    pub fn dup(&self) -> Result<OwnedFd, NetError> {
        let twin = self.file.try_clone().map_err(too_many_files)?;
        Ok(twin.into())
    }

    /// Size in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True where there is nothing in it; such memory cannot be mapped.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `bytes` to `offset`.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), NetError> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(NetError::io("cannot write to shared memory", NO_MEMORY))
    }

    /// Fills `bytes` from `offset`.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), NetError> {
        self.file.read_exact_at(bytes, offset).map_err(NetError::io(
            "cannot read shared memory",
            "stay within its length",
        ))
    }
}

/// That it is a memory file of at least `len` bytes. Only memory files know seals, so this also keeps out descriptors
/// whose reads could block.
fn check(fd: &OwnedFd, len: u64) -> Result<SealFlags, NetError> {
    let seals = seals(fd)?;
    let stat = rustix::fs::fstat(fd).map_err(|errno| {
        NetError::io(
            "cannot look at shared memory",
            "pass an open descriptor of a memory file",
        )(errno.into())
    })?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || (stat.st_size as u64) < len {
        return Err(NetError::Memory(
            "a memory file is shorter than announced: pass its real length",
        ));
    }
    Ok(seals)
}

fn seals(fd: &impl AsFd) -> Result<SealFlags, NetError> {
    rustix::fs::fcntl_get_seals(fd)
        .map_err(|_| NetError::Memory("the descriptor is not a memory file: make it with memfd_create"))
}

fn too_many_files(source: io::Error) -> NetError {
    NetError::io(
        "cannot copy a descriptor",
        "raise the limit of open files with `ulimit -n`",
    )(source)
}
