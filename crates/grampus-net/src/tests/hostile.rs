//! Strangers, and members that break the rules: `NET-4` and `NET-5`.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytes::Bytes;
use grampus_core::Address;
use rustix::fs::{MemfdFlags, SealFlags};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::{JOB, Over, SHORT, Server, key, run};
use crate::frame::Way;
use crate::handshake::Identity;
use crate::unix::{self, UnixWire};
use crate::{Frame, Limits, Link, Memory, NetError, connect, greeting};

#[test]
fn garbage_is_named_and_the_listener_goes_on() {
    run(async {
        for over in [Over::Unix, Over::Hidden, Over::Tcp] {
            let server = Server::start(over, &SHORT).await;
            for garbage in [
                b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".as_slice(),
                b"\0\x01\x02",
                &[0xff; 5000],
            ] {
                let error = match &server.join.address {
                    Address::Unix(path) => {
                        throw(UnixStream::connect(path).await.unwrap(), garbage, &server).await
                    }
                    Address::Abstract(name) => {
                        let path = crate::hidden::path(name).unwrap();
                        throw(UnixStream::connect(path).await.unwrap(), garbage, &server).await
                    }
                    Address::Tcp { port, .. } => {
                        throw(
                            TcpStream::connect(("127.0.0.1", *port)).await.unwrap(),
                            garbage,
                            &server,
                        )
                        .await
                    }
                };
                let NetError::Garbage { first, .. } = &error else {
                    panic!("{error}")
                };
                assert_eq!(first[..], garbage[..garbage.len().min(8)]);
            }
            let limits = SHORT;
            let (dialer, listener) = tokio::join!(connect(&server.join, "w", &limits), server.answer());
            assert!(dialer.is_ok() && listener.is_ok());
        }
    });
}

/// Sends garbage, sees that the connection is closed, and gives the listener's error.
async fn throw(
    mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    garbage: &[u8],
    server: &Server,
) -> NetError {
    stream.write_all(garbage).await.unwrap();
    let error = server.answer().await.unwrap_err();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty(), "a stranger was told {rest:?}");
    error
}

#[test]
fn garbage_that_begins_like_tls_is_garbage_too() {
    run(async {
        let server = Server::start(Over::Tcp, &SHORT).await;
        let Address::Tcp { port, .. } = server.join.address else {
            unreachable!()
        };
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(&[22, 9, 9, 0, 5, 1, 2, 3, 4, 5]).await.unwrap();
        let error = server.answer().await.unwrap_err();
        assert!(matches!(error, NetError::Garbage { .. }), "{error}");
    });
}

/// A member that has proved the key and now writes what it likes.
async fn rogue() -> (UnixStream, Link) {
    let server = Server::start(Over::Unix, &SHORT).await;
    let Address::Unix(path) = &server.join.address else {
        unreachable!()
    };
    let mut wire = UnixWire::new(UnixStream::connect(path).await.unwrap());
    let identity = Identity::new(JOB, &key()).unwrap();
    let label = "the listener".into();
    let (greeted, link) = tokio::join!(
        greeting::dial(&mut wire, &identity, "rogue", &label),
        server.answer()
    );
    greeted.unwrap();
    (wire.stream, link.unwrap())
}

async fn write(stream: &UnixStream, bytes: &[u8], fd: Option<BorrowedFd<'_>>) {
    unix::send_all(stream, &mut [IoSlice::new(bytes)], fd)
        .await
        .unwrap();
}

fn head(memory: Option<Memory>) -> Vec<u8> {
    Frame {
        memory,
        ..Frame::default()
    }
    .head(Way::Descriptor, &Limits::default())
    .unwrap()
}

#[test]
fn a_frame_without_its_descriptor_is_refused() {
    run(async {
        let (stream, mut link) = rogue().await;
        write(&stream, &head(Some(Memory::create(5).unwrap())), None).await;
        assert!(matches!(
            link.receiver.recv().await,
            Err(NetError::Garbage { .. })
        ));
    });
}

#[test]
fn descriptors_that_no_frame_asked_for_are_closed_and_end_the_link() {
    run(async {
        let (stream, mut link) = rogue().await;
        let (theirs, ours) = std::io::pipe().unwrap();
        write(&stream, &head(None), Some(ours.as_fd())).await;
        drop(ours);
        assert!(link.receiver.recv().await.unwrap().is_some());
        let error = link.receiver.recv().await.unwrap_err();
        assert!(error.to_string().contains("no frame asked for"), "{error}");
        drop(link);
        assert!(is_closed(theirs), "the descriptor is still open");

        let (stream, mut link) = rogue().await;
        let (theirs, ours) = std::io::pipe().unwrap();
        write(&stream, b"gF", Some(ours.as_fd())).await;
        write(&stream, b"\0", Some(ours.as_fd())).await;
        drop(ours);
        assert!(matches!(
            link.receiver.recv().await,
            Err(NetError::Garbage { .. })
        ));
        drop(link);
        assert!(is_closed(theirs), "a descriptor is still open");
    });
}

/// True where no writer is left.
fn is_closed(reader: std::io::PipeReader) -> bool {
    rustix::io::ioctl_fionbio(&reader, true).unwrap();
    matches!(rustix::io::read(&reader, &mut [0; 1]), Ok(0))
}

#[test]
fn several_descriptors_at_once_are_refused() {
    run(async {
        let (stream, mut link) = rogue().await;
        let memory = Memory::create(5).unwrap();
        let bytes = head(Some(memory.clone()));
        let fds = [memory.fd(), memory.fd(), memory.fd()];
        let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut room);
        assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds)));
        rustix::net::sendmsg(
            &stream,
            &[IoSlice::new(&bytes)],
            &mut control,
            rustix::net::SendFlags::empty(),
        )
        .unwrap();
        let error = link.receiver.recv().await.unwrap_err();
        assert!(error.to_string().contains("several descriptors"), "{error}");
    });
}

#[test]
fn memory_that_could_shrink_or_is_none_is_refused() {
    run(async {
        let announce = head(Some(Memory::create(4096).unwrap()));
        let memfd = |len, seals| -> OwnedFd {
            let fd = rustix::fs::memfd_create("rogue", MemfdFlags::ALLOW_SEALING).unwrap();
            rustix::fs::ftruncate(&fd, len).unwrap();
            rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
            fd
        };
        let cases: [OwnedFd; 4] = [
            memfd(4096, SealFlags::GROW),
            memfd(4095, SealFlags::SHRINK),
            tempfile::tempfile().unwrap().into(),
            std::io::pipe().unwrap().0.into(),
        ];
        for fd in cases {
            let (stream, mut link) = rogue().await;
            write(&stream, &announce, Some(fd.as_fd())).await;
            assert!(matches!(link.receiver.recv().await, Err(NetError::Memory(_))));
        }
        let (stream, mut link) = rogue().await;
        write(&stream, &announce, Some(memfd(4096, SealFlags::SHRINK).as_fd())).await;
        assert_eq!(
            link.receiver.recv().await.unwrap().unwrap().memory.unwrap().len(),
            4096
        );
    });
}

#[test]
fn an_end_in_the_middle_of_a_frame_is_not_a_clean_end() {
    run(async {
        let frame = Frame::message(&1u8)
            .unwrap()
            .with_parts(vec![Bytes::from_static(b"12345")]);
        let bytes = crate::pipe::encode_frame(&frame, &Limits::default()).unwrap();
        for cut in 1..bytes.len() {
            let (stream, mut link) = rogue().await;
            write(&stream, &bytes[..cut], None).await;
            drop(stream);
            let error = link.receiver.recv().await.unwrap_err();
            assert!(error.to_string().contains("rogue (unix:"), "{error}");
            assert!(
                matches!(
                    error,
                    NetError::Closed {
                        when: "in the middle of a frame",
                        ..
                    }
                ),
                "{error}"
            );
        }
        let (stream, mut link) = rogue().await;
        write(&stream, &bytes, None).await;
        drop(stream);
        assert!(link.receiver.recv().await.unwrap().is_some());
        assert!(link.receiver.recv().await.unwrap().is_none());
    });
}

#[test]
fn frames_in_the_smallest_pieces_arrive_with_their_memory() {
    run(async {
        let (stream, mut link) = rogue().await;
        let memory = Memory::create(3).unwrap();
        memory.write_at(b"abc", 0).unwrap();
        for _ in 0..3 {
            for (place, byte) in head(Some(memory.clone())).into_iter().enumerate() {
                write(&stream, &[byte], (place == 0).then(|| memory.fd())).await;
                let waiting = tokio::time::timeout(std::time::Duration::from_millis(1), link.receiver.recv());
                if let Ok(got) = waiting.await {
                    let mut bytes = [0; 3];
                    got.unwrap()
                        .unwrap()
                        .memory
                        .unwrap()
                        .read_at(&mut bytes, 0)
                        .unwrap();
                    assert_eq!((&bytes, place), (b"abc", 19));
                }
            }
        }
    });
}
