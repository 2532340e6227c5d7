//! Sockets' folders, ports, addresses and memory files.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;

use rustix::fs::MemfdFlags;

use grampus_core::{Address, JoinString};

use super::{JOB, Over, SHORT, Server, hidden_name, key, run, socket_path};
use crate::{
    ErrorKind, Listener, Memory, NetError, Reservation, connect, connect::credentials, local_address_towards,
    private_dir,
};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[test]
fn a_private_folder_is_made_and_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine");
    for _ in 0..2 {
        assert_eq!(private_dir(&path).unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700);
    }
}

#[test]
fn a_folder_that_others_can_reach_is_refused() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        for mode in [0o755, 0o770, 0o701, 0o1777] {
            let path = folder.path().join(format!("{mode:o}"));
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = private_dir(&path).unwrap_err();
            assert!(
                error.to_string().contains(&format!("has mode {mode:04o}")),
                "{error}"
            );
            let listener = Listener::unix(&path.join("socket"), JOB, key(), &SHORT).await;
            assert!(matches!(listener.err(), Some(NetError::NotPrivate { .. })));
        }
        let mine = private_dir(&folder.path().join("mine")).unwrap();
        let link = folder.path().join("link");
        symlink(&mine, &link).unwrap();
        assert!(
            private_dir(&link)
                .unwrap_err()
                .to_string()
                .contains("is not a folder")
        );
    });
}

#[test]
fn a_folder_of_another_user_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = private_dir(&folder.path().join("theirs")).unwrap();
    if std::os::unix::fs::chown(&path, Some(12345), None).is_err() {
        eprintln!("skipped: only root can give a folder away");
        return;
    }
    assert!(
        private_dir(&path)
            .unwrap_err()
            .to_string()
            .contains("belongs to user 12345")
    );
}

#[test]
fn a_peer_of_another_user_is_refused() {
    // In a thread of its own: the kernel keeps user ids per thread, and so the rest of this process keeps its own.
    let made = std::thread::spawn(|| {
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(12345)).ok()?;
        std::os::unix::net::UnixStream::pair().ok()
    });
    let Some((ours, _theirs)) = made.join().unwrap() else {
        eprintln!("skipped: only root can become another user");
        return;
    };
    run(async {
        ours.set_nonblocking(true).unwrap();
        let error = credentials(&tokio::net::UnixStream::from_std(ours).unwrap()).unwrap_err();
        assert!(
            matches!(error, NetError::WrongUser { theirs: 12345, .. }),
            "{error}"
        );
    });
}

#[test]
fn a_dialer_of_another_user_is_refused_at_a_hidden_socket() {
    run(async {
        let server = Server::start(Over::Hidden, &SHORT).await;
        let Address::Abstract(name) = &server.join.address else {
            unreachable!()
        };
        let path = crate::hidden::path(name).unwrap();
        let other = std::thread::spawn(move || {
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(12345)).ok()?;
            let name = path.as_os_str().as_encoded_bytes().split_at(1).1;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
            Some(UnixStream::connect_addr(&address).unwrap())
        });
        let Some(_stranger) = other.join().unwrap() else {
            eprintln!("skipped: only root can become another user");
            return;
        };
        let error = server.answer().await.unwrap_err();
        assert!(
            matches!(error, NetError::WrongUser { theirs: 12345, .. }),
            "{error}"
        );
    });
}

#[test]
fn a_hidden_name_is_held_by_one_and_free_when_it_goes() {
    run(async {
        let name = hidden_name();
        let first = Listener::hidden(&name, JOB, key(), &SHORT).await.unwrap();
        assert!(first.path().is_none() && first.local_addr().is_none());
        let second = Listener::hidden(&name, JOB, key(), &SHORT).await;
        let error = second.err().unwrap();
        assert!(
            error.to_string().contains("another process holds this name"),
            "{error}"
        );
        assert_eq!(error.kind(), ErrorKind::Misuse);
        drop(first);
        let join = JoinString {
            job: JOB,
            key: key(),
            address: Address::Abstract(name.clone()),
        };
        let gone = connect(&join, "w", &SHORT).await.unwrap_err();
        assert!(gone.to_string().contains("nothing listens there"), "{gone}");
        assert!(Listener::hidden(&name, JOB, key(), &SHORT).await.is_ok());
        for wrong in ["", "A", "a/b", "a\0", &"a".repeat(101)] {
            let error = Listener::hidden(wrong, JOB, key(), &SHORT).await.err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
        }
    });
}

#[test]
fn a_path_that_does_not_fit_is_said_with_its_length() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let mine = private_dir(&folder.path().join("x".repeat(80))).unwrap();
        let spare = 107 - mine.as_os_str().len() - 1;
        let fits = Listener::unix(&mine.join("s".repeat(spare)), JOB, key(), &SHORT).await;
        assert!(fits.is_ok());
        let error = Listener::unix(&mine.join("s".repeat(spare + 1)), JOB, key(), &SHORT)
            .await
            .err()
            .unwrap();
        assert!(
            error
                .to_string()
                .contains("has 108 bytes and only 107 are possible"),
            "{error}"
        );
    });
}

#[test]
fn a_listener_takes_its_socket_with_it_and_does_not_take_anothers() {
    run(async {
        let (_folder, path) = socket_path();
        let listener = Listener::unix(&path, JOB, key(), &SHORT).await.unwrap();
        assert_eq!(listener.path(), Some(path.as_path()));
        let error = Listener::unix(&path, JOB, key(), &SHORT).await.err().unwrap();
        assert!(
            error.to_string().contains("another job uses this path"),
            "{error}"
        );
        assert!(path.exists());
        drop(listener);
        assert!(!path.exists());

        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let error = Listener::tcp(&address, JOB, key(), &SHORT).await.err().unwrap();
        assert!(error.to_string().contains("use port 0"), "{error}");
    });
}

/// Binds as PyTorch, asyncio and Python's HTTP servers do; std sets `SO_REUSEADDR` on listeners.
fn serve(address: IpAddr, port: u16) -> TcpListener {
    TcpListener::bind(SocketAddr::new(address, port)).unwrap()
}

#[test]
fn a_reserved_port_is_given_to_nobody_but_can_be_served() {
    for address in [HERE, Ipv4Addr::UNSPECIFIED.into()] {
        let reserved: Vec<Reservation> = (0..20).map(|_| Reservation::take(address).unwrap()).collect();
        let ports: HashSet<u16> = reserved.iter().map(Reservation::port).collect();
        assert_eq!(ports.len(), 20);
        let others: Vec<TcpListener> = (0..200).map(|_| serve(HERE, 0)).collect();
        assert!(
            others
                .iter()
                .all(|other| !ports.contains(&other.local_addr().unwrap().port()))
        );
        for reservation in &reserved {
            let server = serve(address, reservation.port());
            let client = TcpStream::connect((HERE, reservation.port())).unwrap();
            let (_, peer) = server.accept().unwrap();
            assert_eq!(client.local_addr().unwrap(), peer);
        }
        // Served once, the port is free again for the next task.
        for reservation in reserved {
            drop(serve(address, reservation.port()));
        }
    }
}

#[test]
fn a_port_reserved_for_all_addresses_can_be_served_over_ipv6() {
    let reservation = Reservation::take(Ipv4Addr::UNSPECIFIED.into()).unwrap();
    let Ok(server) = TcpListener::bind((Ipv6Addr::UNSPECIFIED, reservation.port())) else {
        eprintln!("skipped: this host has no IPv6");
        return;
    };
    TcpStream::connect((HERE, reservation.port())).unwrap();
    server.accept().unwrap();
}

#[test]
fn a_server_that_dies_leaves_its_reserved_port_usable() {
    let reservation = Reservation::take(HERE).unwrap();
    let server = serve(HERE, reservation.port());
    let client = TcpStream::connect((HERE, reservation.port())).unwrap();
    let accepted = server.accept().unwrap();
    // Closed by the server first: its side lingers in TIME-WAIT.
    drop((accepted, server));
    drop(client);
    serve(HERE, reservation.port());
}

#[test]
fn the_way_to_a_peer_is_found_by_name_or_address() {
    assert_eq!(local_address_towards("127.0.0.1").unwrap(), HERE);
    assert_eq!(local_address_towards("127.0.0.1:80").unwrap(), HERE);
    assert!(local_address_towards("localhost").unwrap().is_loopback());
    assert!(local_address_towards("localhost:4000").unwrap().is_loopback());
    let error = local_address_towards("no-such-host.invalid").unwrap_err();
    assert!(error.to_string().contains("no-such-host.invalid"), "{error}");
}

#[test]
fn memory_files_of_others_are_sealed_and_checked() {
    let memfd = |flags| -> OwnedFd {
        let fd = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&fd, 100).unwrap();
        fd
    };
    let memory = Memory::from_fd(memfd(MemfdFlags::ALLOW_SEALING), 100).unwrap();
    assert!(
        rustix::fs::ftruncate(memory.fd(), 50).is_err(),
        "it can still shrink"
    );
    assert!(Memory::from_fd(memfd(MemfdFlags::ALLOW_SEALING), 101).is_err());
    assert!(Memory::from_fd(memfd(MemfdFlags::empty()), 100).is_err());
    assert!(Memory::from_fd(tempfile::tempfile().unwrap().into(), 0).is_err());
}

#[test]
fn memory_that_is_mapped_for_writing_cannot_be_frozen() {
    let memory = Memory::create(4096).unwrap();
    let flags = (rustix::mm::ProtFlags::WRITE, rustix::mm::MapFlags::SHARED);
    // SAFETY: a fresh mapping that nothing refers to; it is unmapped below with the same length.
    let map =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4096, flags.0, flags.1, memory.fd(), 0) }.unwrap();
    assert!(
        memory
            .freeze()
            .unwrap_err()
            .to_string()
            .contains("drop the writable mapping first")
    );
    // SAFETY: see above.
    unsafe { rustix::mm::munmap(map, 4096) }.unwrap();
    memory.freeze().unwrap();
    memory.freeze().unwrap();
    let twin = memory.dup().unwrap();
    drop(memory);
    assert!(Memory::from_fd(twin, 4096).is_ok());
}

#[test]
fn descriptors_are_not_inherited() {
    let reservation = Reservation::take(HERE).unwrap();
    let memory = Memory::create(1).unwrap();
    for fd in [memory.fd(), memory.dup().unwrap().as_fd()] {
        assert!(
            rustix::io::fcntl_getfd(fd)
                .unwrap()
                .contains(rustix::io::FdFlags::CLOEXEC)
        );
    }
    drop(reservation);
}
