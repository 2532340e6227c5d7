//! What the kernel offers: descriptors of processes, and memory that processes share.

use std::io;

use grampus_net::Memory;
use rustix::fs::statvfs;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::check::Check;
use super::folders::gibibytes;

/// A container engine's own default is 64 MiB, with which loaders of large batches die.
const LITTLE: u64 = 256 << 20;
const TRIED: usize = 1 << 20;

/// What was tried, and how it went.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    release: String,
    pidfd: Result<(), String>,
    memory: Result<(), String>,
    /// Bytes of /dev/shm, in all and free.
    shm: Option<(u64, u64)>,
}

impl Kernel {
    pub(super) fn read() -> Self {
        let space = statvfs("/dev/shm").ok();
        Self {
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            pidfd: pidfd_open(getpid(), PidfdFlags::empty())
                .map(drop)
                .map_err(|error| error.to_string()),
            memory: try_memory(),
            shm: space.map(|space| (space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize)),
        }
    }
}

/// Writes, seals and maps a piece of memory, as a large argument of a task is.
fn try_memory() -> Result<(), String> {
    let memory = Memory::create(TRIED as u64).map_err(|error| error.to_string())?;
    let written = vec![0xa5; TRIED];
    memory.write_at(&written, 0).map_err(|error| error.to_string())?;
    memory.freeze().map_err(|error| error.to_string())?;
    if mapped_equals(&memory, &written)? {
        Ok(())
    } else {
        Err("mapped memory does not hold what was written".to_owned())
    }
}

fn mapped_equals(memory: &Memory, wanted: &[u8]) -> Result<bool, String> {
    let fail = |error: rustix::io::Errno| format!("cannot map memory: {}", io::Error::from(error));
    // SAFETY: a new private mapping, of a file whose size is sealed; it is read only before it is unmapped.
    unsafe {
        let start = mmap(
            std::ptr::null_mut(),
            wanted.len(),
            ProtFlags::READ,
            MapFlags::PRIVATE,
            memory.fd(),
            0,
        )
        .map_err(fail)?;
        let equal = std::slice::from_raw_parts(start.cast::<u8>(), wanted.len()) == wanted;
        munmap(start, wanted.len()).map_err(fail)?;
        Ok(equal)
    }
}

pub(super) fn kernel(facts: &Kernel) -> Check {
    const NAME: &str = "kernel";
    let release = &facts.release;
    match &facts.pidfd {
        Ok(()) => Check::ok(NAME, format!("Linux {release}, processes can be watched")),
        Err(why) => Check::fail(
            NAME,
            format!("Linux {release}, processes cannot be watched: pidfd_open: {why}"),
            "use Linux 5.4 or newer; in a sandbox, allow the system call pidfd_open",
        ),
    }
}

pub(super) fn shared_memory(facts: &Kernel) -> Check {
    const NAME: &str = "shared memory";
    const ADVICE: &str = "Grampus does not need it, loaders with worker processes do: mount it larger, for a container \
                          with `--shm-size=2g`";
    if let Err(why) = &facts.memory {
        return Check::fail(
            NAME,
            why.as_str(),
            "allow the system call memfd_create with seals, and raise the memory limit if there is one",
        );
    }
    match facts.shm {
        None => Check::warn(NAME, "sealed memory works; there is no /dev/shm", ADVICE),
        Some((_, free)) if free < LITTLE => Check::warn(
            NAME,
            format!("sealed memory works; /dev/shm has {} MiB free", free >> 20),
            ADVICE,
        ),
        Some((all, free)) => {
            let (all, free) = (gibibytes(all), gibibytes(free));
            Check::ok(
                NAME,
                format!("sealed memory works; /dev/shm has {free} of {all} GiB free"),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Level;
    use super::*;

    fn good() -> Kernel {
        Kernel {
            release: "6.1".into(),
            pidfd: Ok(()),
            memory: Ok(()),
            shm: Some((4 << 30, 3 << 30)),
        }
    }

    #[test]
    fn a_kernel_without_process_descriptors_fails() {
        assert_eq!(kernel(&good()).level, Level::Ok);
        let check = kernel(&Kernel {
            pidfd: Err("not implemented".into()),
            ..good()
        });
        assert!(
            check.level == Level::Fail
                && check.found.contains("not implemented")
                && check.advice.contains("5.4")
        );
    }

    #[test]
    fn shared_memory_must_work_and_should_be_large() {
        let seen = shared_memory(&good());
        assert_eq!(
            (seen.level, seen.found.as_str()),
            (Level::Ok, "sealed memory works; /dev/shm has 3.0 of 4.0 GiB free")
        );
        let small = shared_memory(&Kernel {
            shm: Some((64 << 20, 60 << 20)),
            ..good()
        });
        assert!(
            small.level == Level::Warn
                && small.found.contains("60 MiB")
                && small.advice.contains("--shm-size")
        );
        assert_eq!(shared_memory(&Kernel { shm: None, ..good() }).level, Level::Warn);
        let broken = shared_memory(&Kernel {
            memory: Err("no".into()),
            ..good()
        });
        assert_eq!((broken.level, broken.found.as_str()), (Level::Fail, "no"));
    }

    #[test]
    fn this_machine_can_share_memory() {
        assert_eq!(try_memory(), Ok(()));
    }
}
