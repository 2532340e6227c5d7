//! The Unix socket transport: bytes and descriptors.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::frame::Way;
use crate::greeting::Fresh;
use crate::stream::{Source, link_error};
use crate::{Frame, Limits, NetError};

/// The kernel takes no more pieces in one call.
const MOST_SLICES: usize = 1024;

pub(crate) struct UnixOutlet {
    half: OwnedWriteHalf,
}

impl UnixOutlet {
    pub fn new(half: OwnedWriteHalf) -> Self {
        Self { half }
    }

    pub async fn send(&mut self, frame: Frame, label: &Arc<str>, limits: &Limits) -> Result<(), NetError> {
        let head = frame.head(Way::Descriptor, limits)?;
        let mut slices = Vec::with_capacity(2 + frame.parts.len());
        slices.extend([IoSlice::new(&head), IoSlice::new(&frame.body)]);
        slices.extend(frame.parts.iter().map(|part| IoSlice::new(part)));
        let fd = frame.memory.as_ref().map(|memory| memory.fd());
        let sent = send_all(self.half.as_ref(), &mut slices, fd).await;
        sent.map_err(|source| link_error(source, "cannot write to", label, limits))
    }

    pub async fn close(&mut self) {
        let _ = self.half.shutdown().await;
    }
}

/// Writes everything; the descriptor goes with the first byte.
pub(crate) async fn send_all(
    stream: &UnixStream,
    mut slices: &mut [IoSlice<'_>],
    mut fd: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    while !slices.is_empty() {
        let count = stream
            .async_io(Interest::WRITABLE, || send_some(stream, slices, fd))
            .await?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        fd = None;
        IoSlice::advance_slices(&mut slices, count);
    }
    Ok(())
}

fn send_some(stream: &UnixStream, slices: &[IoSlice<'_>], fd: Option<BorrowedFd<'_>>) -> io::Result<usize> {
    let slices = &slices[..slices.len().min(MOST_SLICES)];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let fds = fd.map(|fd| [fd]);
    if let Some(fds) = &fds {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    Ok(rustix::net::sendmsg(
        stream.as_fd(),
        slices,
        &mut control,
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    )?)
}

pub(crate) struct UnixSource {
    half: OwnedReadHalf,
    descriptors: VecDeque<OwnedFd>,
}

impl UnixSource {
    pub fn new(half: OwnedReadHalf) -> Self {
        Self {
            half,
            descriptors: VecDeque::new(),
        }
    }
}

impl Source for UnixSource {
    async fn fill(&mut self, space: &mut [u8]) -> io::Result<usize> {
        recv_some(self.half.as_ref(), space, &mut self.descriptors).await
    }

    fn descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }

    fn descriptors(&self) -> usize {
        self.descriptors.len()
    }
}

/// A fresh connection, before its handshake.
pub(crate) struct UnixWire {
    pub stream: UnixStream,
    descriptors: VecDeque<OwnedFd>,
}

impl UnixWire {
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            descriptors: VecDeque::new(),
        }
    }
}

impl Fresh for UnixWire {
    const LOCAL: bool = true;

    async fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        recv_some(&self.stream, space, &mut self.descriptors).await
    }

    async fn write(&mut self, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        send_all(&self.stream, &mut [IoSlice::new(bytes)], fd).await
    }

    fn descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }
}

/// Reads what is there into `space`, and at most one descriptor with it.
pub(crate) async fn recv_some(
    stream: &UnixStream,
    space: &mut [u8],
    descriptors: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        let mut received = None;
        let tried = stream.try_io(Interest::READABLE, || {
            let room = space.len();
            let (count, came) = recv_now(stream, space)?;
            // A short read without a descriptor emptied the socket (one with a descriptor stops there in any case).
            // Saying so now saves the next wait a call that would only be told to come again.
            let drained = count > 0 && count < room && came.is_none();
            received = Some((count, came));
            if drained {
                Err(io::ErrorKind::WouldBlock.into())
            } else {
                Ok(())
            }
        });
        match (received, tried) {
            (Some((count, came)), _) => {
                descriptors.extend(came);
                return Ok(count);
            }
            (None, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            (None, _) => {}
        }
    }
}

fn recv_now(stream: &UnixStream, space: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let message = rustix::net::recvmsg(stream.as_fd(), &mut [IoSliceMut::new(space)], &mut control, flags)?;
    let mut came = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = part {
            came.extend(fds);
        }
    }
    if came.len() > 1 {
        return Err(io::Error::other(NetError::garbage(
            "several descriptors came at once",
            &[],
        )));
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        // One came and could not be given to this process: its table is full.
        return Err(rustix::io::Errno::MFILE.into());
    }
    Ok((message.bytes, came.pop()))
}
