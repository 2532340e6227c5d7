//! The TCP transport: bytes under TLS.

use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use crate::frame::Way;
use crate::greeting::Wire;
use crate::link::in_time;
use crate::stream::{CHUNK, Source, link_error};
use crate::{Frame, Limits, Memory, NetError};

pub(crate) type Stream = TlsStream<TcpStream>;

/// Small frames leave at once, and a peer that is gone is noticed by the deadline even where nothing is written.
pub(crate) fn tune(stream: &TcpStream, limits: &Limits) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let second = Duration::from_secs(1);
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, (limits.io / 2).max(second))?;
    sockopt::set_tcp_keepintvl(stream, (limits.io / 4).max(second))?;
    let millis = u32::try_from(limits.io.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, millis.max(1))?;
    Ok(())
}

pub(crate) struct TcpOutlet {
    half: WriteHalf<Stream>,
}

impl TcpOutlet {
    pub fn new(half: WriteHalf<Stream>) -> Self {
        Self { half }
    }

    pub async fn send(&mut self, frame: Frame, label: &Arc<str>, limits: &Limits) -> Result<(), NetError> {
        let head = frame.head(Way::Stream, limits)?;
        let mut slices = Vec::with_capacity(2 + frame.parts.len());
        slices.extend([IoSlice::new(&head), IoSlice::new(&frame.body)]);
        slices.extend(frame.parts.iter().map(|part| IoSlice::new(part)));
        self.write(&mut slices, label, limits).await?;
        match &frame.memory {
            Some(memory) => self.stream(memory, label, limits).await,
            None => Ok(()),
        }
    }

    async fn stream(&mut self, memory: &Memory, label: &Arc<str>, limits: &Limits) -> Result<(), NetError> {
        let mut buffer = vec![0; CHUNK.min(usize::try_from(memory.len()).unwrap_or(CHUNK))];
        let mut offset = 0;
        while offset < memory.len() {
            let count = (memory.len() - offset).min(CHUNK as u64);
            let chunk = &mut buffer[..count as usize];
            memory.read_at(chunk, offset)?;
            self.write(&mut [IoSlice::new(chunk)], label, limits).await?;
            offset += count;
        }
        Ok(())
    }

    async fn write(
        &mut self,
        slices: &mut [IoSlice<'_>],
        label: &Arc<str>,
        limits: &Limits,
    ) -> Result<(), NetError> {
        let half = &mut self.half;
        let writing = async {
            write_all(half, slices)
                .await
                .map_err(|source| link_error(source, "cannot write to", label, limits))
        };
        in_time(writing, label, limits).await
    }

    pub async fn close(&mut self) {
        let _ = self.half.shutdown().await;
    }
}

async fn write_all(half: &mut (impl AsyncWrite + Unpin), mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    // Empty pieces at the front would make a write of nothing look like the end.
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match half.write_vectored(slices).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => IoSlice::advance_slices(&mut slices, count),
        }
    }
    half.flush().await
}

pub(crate) struct TcpSource {
    half: ReadHalf<Stream>,
}

impl TcpSource {
    pub fn new(half: ReadHalf<Stream>) -> Self {
        Self { half }
    }
}

impl Source for TcpSource {
    async fn fill(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.half.read(space).await
    }

    fn descriptor(&mut self) -> Option<OwnedFd> {
        None
    }

    fn descriptors(&self) -> usize {
        0
    }
}

impl Wire for Stream {
    const LOCAL: bool = false;

    async fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        AsyncReadExt::read(self, space).await
    }

    async fn write(&mut self, bytes: &[u8], _fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        write_all(self, &mut [IoSlice::new(bytes)]).await
    }

    fn descriptor(&mut self) -> Option<OwnedFd> {
        None
    }
}
