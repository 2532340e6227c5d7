//! Receiving frames from a byte stream: what Unix sockets and TCP have in common.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::{Instant, timeout_at};

use crate::decoder::Decoder;
use crate::frame::Way;
use crate::traffic::LOOK;
use crate::{Frame, Limits, Memory, NetError, tls};

/// Memory is streamed in pieces of this size.
pub(crate) const CHUNK: usize = 256 << 10;

/// The receiving half of a byte stream.
pub(crate) trait Source: Send {
    /// Reads what is there, at least a byte; 0 at the end. Dropping the future loses nothing.
    fn fill(&mut self, space: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;

    /// The kernel may hold back what has come.
    const HOLDS_BACK: bool = false;

    /// Packets with data that came since the last look, also such as cannot be read yet.
    fn held_back(&mut self) -> u32 {
        0
    }

    /// The oldest descriptor that came and was not asked for yet.
    fn descriptor(&mut self) -> Option<OwnedFd>;

    /// How many wait.
    fn descriptors(&self) -> usize;
}

/// Puts frames together. All state is kept here and none in the futures, so that dropping one loses nothing.
pub(crate) struct Inbound<S> {
    source: S,
    decoder: Decoder,
    /// A frame whose memory is still coming, and how much of it has come.
    open: Option<(Frame, Memory, u64)>,
    /// When more of what has begun must have arrived.
    deadline: Option<Instant>,
    /// Bytes that have come.
    received: Arc<AtomicU64>,
}

impl<S: Source> Inbound<S> {
    pub fn new(source: S, limits: &Limits) -> Self {
        Self {
            source,
            decoder: Decoder::with_memory(limits),
            open: None,
            deadline: None,
            received: Arc::default(),
        }
    }

    pub fn received(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.received)
    }

    pub async fn recv(&mut self, label: &Arc<str>, limits: &Limits) -> Result<Option<Frame>, NetError> {
        loop {
            if let Some(frame) = self.assemble()? {
                self.deadline = None;
                return Ok(Some(frame));
            }
            self.check_descriptors()?;
            let begun = self.open.is_some() || !self.decoder.is_empty();
            let room = if self.open.is_some() { CHUNK } else { 0 };
            let reading = self.source.fill(self.decoder.space(room));
            let deadline = begun.then(|| *self.deadline.get_or_insert_with(|| Instant::now() + limits.io));
            let look = S::HOLDS_BACK.then(|| Instant::now() + LOOK);
            let read = match deadline.into_iter().chain(look).min() {
                Some(until) => timeout_at(until, reading).await,
                None => Ok(reading.await),
            };
            let Ok(read) = read else {
                self.look(deadline, label, limits)?;
                continue;
            };
            match read {
                Ok(0) if begun => return Err(closed(label, "in the middle of a frame")),
                Ok(0) => return Ok(None),
                Ok(count) => {
                    self.received.fetch_add(count as u64, Ordering::Relaxed);
                    self.decoder.filled(count);
                    self.deadline = None;
                }
                Err(source) => return Err(link_error(source, "cannot read from", label, limits)),
            }
        }
    }

    /// Nothing could be read for a while: an error where nothing has come at all for too long.
    fn look(&mut self, deadline: Option<Instant>, label: &Arc<str>, limits: &Limits) -> Result<(), NetError> {
        let came = self.source.held_back();
        if came > 0 {
            self.received.fetch_add(u64::from(came), Ordering::Relaxed);
            self.deadline = None;
            return Ok(());
        }
        match deadline {
            Some(deadline) if Instant::now() >= deadline => Err(NetError::Deadline {
                what: format!("the rest of a frame from {label}"),
                after: limits.io,
                hint: "the process there may be stopped or the network cut",
            }),
            _ => Ok(()),
        }
    }

    /// A frame, if all of it has come.
    fn assemble(&mut self) -> Result<Option<Frame>, NetError> {
        if self.open.is_none() {
            let Some((mut frame, memory)) = self.decoder.next_part()? else {
                return Ok(None);
            };
            match memory {
                None => return Ok(Some(frame)),
                Some((Way::Descriptor, length)) => {
                    let fd = self.source.descriptor();
                    let fd =
                        fd.ok_or_else(|| NetError::garbage("a frame came without its descriptor", &[]))?;
                    frame.memory = Some(Memory::received(fd, length)?);
                    return Ok(Some(frame));
                }
                Some((Way::Stream, length)) => {
                    self.open = Some((frame, Memory::create(length)?, 0));
                }
            }
        }
        self.take_memory()
    }

    /// Moves arrived bytes of the open frame's memory into place; the frame, if they were the last.
    fn take_memory(&mut self) -> Result<Option<Frame>, NetError> {
        let Some((frame, memory, filled)) = &mut self.open else {
            return Ok(None);
        };
        let rest = memory.len() - *filled;
        let bytes = self.decoder.raw(rest);
        if bytes.len() < CHUNK && (bytes.len() as u64) < rest {
            return Ok(None);
        }
        memory.write_at(bytes, *filled)?;
        let count = bytes.len();
        *filled += count as u64;
        self.decoder.drop_front(count);
        if *filled < memory.len() {
            return Ok(None);
        }
        memory.freeze()?;
        let (mut frame, memory) = (std::mem::take(frame), memory.clone());
        self.open = None;
        frame.memory = Some(memory);
        Ok(Some(frame))
    }

    /// A descriptor comes with the first byte of its frame. So before a read at most one can be waiting, and none
    /// where no frame has begun; more are a peer's mistake or its attempt to fill this process's table.
    fn check_descriptors(&self) -> Result<(), NetError> {
        let most = usize::from(!self.decoder.is_empty());
        if self.source.descriptors() > most {
            return Err(NetError::garbage(
                "a descriptor came that no frame asked for",
                &[],
            ));
        }
        Ok(())
    }
}

pub(crate) fn closed(label: &Arc<str>, when: &'static str) -> NetError {
    NetError::Closed {
        peer: label.to_string(),
        when,
    }
}

/// What an error on a link that is up means.
pub(crate) fn link_error(source: io::Error, verb: &str, label: &Arc<str>, limits: &Limits) -> NetError {
    let source = match source.downcast::<NetError>() {
        Ok(error) => return error,
        Err(source) => source,
    };
    match source.kind() {
        io::ErrorKind::UnexpectedEof => closed(label, "without a farewell"),
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => closed(label, "abruptly"),
        io::ErrorKind::BrokenPipe => closed(label, "before a frame was sent"),
        io::ErrorKind::TimedOut => NetError::Deadline {
            what: format!("an answer of the network to {label}"),
            after: limits.io,
            hint: "the link is cut or the host is gone",
        },
        io::ErrorKind::InvalidData => tls::explain(source, label),
        _ => NetError::io(
            format!("{verb} {label}"),
            "the process or the network there failed",
        )(source),
    }
}
