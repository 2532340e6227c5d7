//! What the kernel knows of the bytes on a TCP connection, and a process does not see: those that came behind a lost packet
//! and are held back until it was sent again, and those that the peer has taken of what was written. Where a slow link loses
//! packets, each can be all that moves for many seconds.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// How often to look where nothing else happens.
pub(crate) const LOOK: Duration = Duration::from_millis(250);

/// Bytes of the kernel's `tcp_info` up to what is read of it, and where that begins.
const INFO: usize = 160;
const BYTES_ACKED: usize = 120;
const DATA_SEGMENTS_IN: usize = 152;

/// What was known at the last look. A kernel that does not tell is one that sees nothing.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    segments: u32,
    acked: u64,
}

impl Traffic {
    /// Packets with data that came since the last look.
    pub fn came(&mut self, socket: impl AsFd) -> u32 {
        let (segments, _) = look(socket.as_fd()).unwrap_or((self.segments, 0));
        segments.wrapping_sub(std::mem::replace(&mut self.segments, segments))
    }

    /// Whether the peer has taken bytes since the last look.
    pub fn went(&mut self, socket: impl AsFd) -> bool {
        let (_, acked) = look(socket.as_fd()).unwrap_or((0, self.acked));
        std::mem::replace(&mut self.acked, acked) != acked
    }
}

fn look(socket: BorrowedFd<'_>) -> io::Result<(u32, u64)> {
    let mut info = [0_u8; INFO];
    let mut length = INFO as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel writes at most `length` bytes.
    let told = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if told != 0 {
        return Err(io::Error::last_os_error());
    }
    // What an old kernel does not write stays 0.
    let segments = info[DATA_SEGMENTS_IN..]
        .first_chunk()
        .copied()
        .unwrap_or_default();
    let acked = info[BYTES_ACKED..].first_chunk().copied().unwrap_or_default();
    Ok((u32::from_ne_bytes(segments), u64::from_ne_bytes(acked)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn data_that_comes_and_data_that_is_taken_are_seen_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        let (mut here, mut there) = (Traffic::default(), Traffic::default());
        assert!(here.came(&other) == 0);
        there.went(&one);
        one.write_all(&[1; 5000]).unwrap();
        other.read_exact(&mut [0; 5000]).unwrap();
        assert!(here.came(&other) > 0 && here.came(&other) == 0);
        assert!(there.went(&one) && !there.went(&one));
    }
}
