//! Addresses and ports for what users run on top.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::OwnedFd;

use grampus_core::Address;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};

use crate::NetError;

const PORTS: &str = "free a port, or widen net.ipv4.ip_local_port_range";

/// A TCP port that is kept free for a server that starts later, in this process or another.
///
/// The port is bound but not listened on, with `SO_REUSEADDR`. The kernel gives it to nobody who asks for any port,
/// while a server that names it and also sets `SO_REUSEADDR`, as PyTorch's store, asyncio and Python's HTTP servers do,
/// can bind and listen while the reservation is still held.
#[derive(Debug)]
pub struct Reservation {
    _socket: OwnedFd,
    port: u16,
}

impl Reservation {
    /// Reserves any port of `address`; the unspecified address reserves it on all.
    pub fn take(address: IpAddr) -> Result<Self, NetError> {
        let reserve = || -> rustix::io::Result<(OwnedFd, u16)> {
            let family = if address.is_ipv4() {
                AddressFamily::INET
            } else {
                AddressFamily::INET6
            };
            let flags = SocketFlags::CLOEXEC;
            let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
            rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
            rustix::net::bind(&socket, &SocketAddr::new(address, 0))?;
            let bound = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
            Ok((socket, bound.port()))
        };
        let (socket, port) = reserve().map_err(|errno| {
            NetError::io(format!("cannot reserve a port of {address}"), PORTS)(errno.into())
        })?;
        Ok(Self {
            _socket: socket,
            port,
        })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// The address of this host that `peer` (a name or an address, with or without a port) would see. Asks the routing
/// table; nothing is sent. Resolving a name may wait for the name service.
pub fn local_address_towards(peer: &str) -> Result<IpAddr, NetError> {
    let fail = NetError::io(
        format!("cannot find the way to {peer}"),
        "check the name and this host's routes",
    );
    let look = || {
        let target = resolve(peer)?;
        let any: IpAddr = if target.is_ipv4() {
            [0; 4].into()
        } else {
            [0; 16].into()
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(target)?;
        Ok(socket.local_addr()?.ip())
    };
    look().map_err(fail)
}

/// The address of this host under which other members of a job reach it, where the job's coordinator is at `place`: the
/// loopback address where that is a Unix socket.
pub fn local_address_for(place: &Address) -> Result<IpAddr, NetError> {
    match place {
        Address::Unix(_) | Address::Abstract(_) => Ok(Ipv4Addr::LOCALHOST.into()),
        Address::Tcp { host, .. } => local_address_towards(host),
    }
}

fn resolve(peer: &str) -> std::io::Result<SocketAddr> {
    // Any port will do: the way does not depend on it.
    const PORT: u16 = 9;
    if let Ok(address) = peer.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, PORT));
    }
    let named = |found: Option<SocketAddr>| found.ok_or_else(|| std::io::ErrorKind::NotFound.into());
    match peer.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => named(peer.to_socket_addrs()?.next()),
        _ => named((peer, PORT).to_socket_addrs()?.next()),
    }
}
