//! Frames out of bytes that arrive in any pieces. The one decoder of all transports.

use bytes::Bytes;

use crate::frame::{self, HEADER, Head, MAGIC, Way};
use crate::{Frame, Limits, NetError};

/// Room that a read finds at least.
const READ: usize = 16 << 10;
/// A buffer that grew beyond this for one frame is given back once it is empty.
const KEEP: usize = 1 << 20;

/// A frame without its memory, and how that travels.
pub(crate) type Decoded = (Frame, Option<(Way, u64)>);

/// Takes bytes as they come and gives whole frames.
///
/// ```
/// use grampus_net::{Frame, Limits, pipe};
/// let mut wire = Vec::new();
/// pipe::write_frame(&mut wire, &Frame::message(&7u32)?, &Limits::default())?;
/// let mut decoder = pipe::Decoder::new(&Limits::default());
/// decoder.push(&wire[..5]);
/// assert!(decoder.next()?.is_none());
/// decoder.push(&wire[5..]);
/// assert_eq!(decoder.next()?.map(|frame| frame.read::<u32>()).transpose()?, Some(7));
/// # Ok::<(), grampus_net::NetError>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    /// Whether memory can travel here at all.
    memory: bool,
    /// All initialised, so that reads can go into it without unsafe code; what was received is `start..end`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes without which the frame at `start` cannot be judged any further; spares looking at it again.
    need: usize,
}

impl Decoder {
    /// A decoder that refuses frames over these limits.
    pub fn new(limits: &Limits) -> Self {
        Self {
            limits: *limits,
            memory: false,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            need: 1,
        }
    }

    pub(crate) fn with_memory(limits: &Limits) -> Self {
        Self {
            memory: true,
            ..Self::new(limits)
        }
    }

    /// Takes bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.space(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.filled(bytes.len());
    }

    /// The next whole frame, if it has arrived. After an error the stream cannot be read any further: every later
    /// call gives the same error.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator's end is final, this `None` is not"
    )]
    pub fn next(&mut self) -> Result<Option<Frame>, NetError> {
        Ok(self.next_part()?.map(|(frame, _)| frame))
    }

    /// True where no frame has begun.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// How many bytes to wait for before asking again; never more than the frame in progress has.
    pub(crate) fn missing(&self) -> usize {
        self.need.max(HEADER).saturating_sub(self.end - self.start).max(1)
    }

    pub(crate) fn next_part(&mut self) -> Result<Option<Decoded>, NetError> {
        let seen = &self.buffer[self.start..self.end];
        if seen.len() < self.need {
            return Ok(None);
        }
        let Some(header) = seen.first_chunk::<HEADER>() else {
            let known = seen.len().min(MAGIC.len());
            if seen[..known] != MAGIC[..known] {
                return Err(frame::not_a_frame(seen));
            }
            self.need = if known < MAGIC.len() { MAGIC.len() } else { HEADER };
            return Ok(None);
        };
        let head = Head::decode(header, &self.limits)?;
        if head.memory.is_some() && !self.memory {
            return Err(NetError::garbage("memory came where only bytes can travel", seen));
        }
        let body = HEADER + 4 * head.parts;
        if seen.len() < body {
            self.need = body;
            return Ok(None);
        }
        let lengths: Vec<usize> = part_lengths(&seen[HEADER..body]).collect();
        // At most PART_COUNT numbers of 32 bits each: the sum cannot overflow.
        let size = lengths.iter().sum();
        frame::check_parts(size, &self.limits)?;
        let parts = body + head.body;
        if seen.len() < parts + size {
            self.need = parts + size;
            return Ok(None);
        }
        let frame = Frame {
            body: seen[body..parts].to_vec(),
            parts: cut(&seen[parts..parts + size], &lengths),
            memory: None,
        };
        self.drop_front(parts + size);
        Ok(Some((frame, head.memory)))
    }

    /// Room for at least `least` bytes, and for all that the frame in progress still needs.
    pub(crate) fn space(&mut self, least: usize) -> &mut [u8] {
        let held = self.end - self.start;
        let least = least.max(READ).max(self.need.saturating_sub(held));
        if self.buffer.len() - self.end < least {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, held);
            if self.buffer.len() < held + least {
                self.buffer.resize((held + least).max(2 * READ), 0);
            }
        }
        &mut self.buffer[self.end..]
    }

    /// Says that `count` bytes of [`Decoder::space`] were filled.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.buffer.len());
    }

    /// What has arrived after the last frame, at most `most` bytes: for memory that follows a frame.
    pub(crate) fn raw(&self, most: u64) -> &[u8] {
        let held = self.end - self.start;
        let count = usize::try_from(most).map_or(held, |most| most.min(held));
        &self.buffer[self.start..self.start + count]
    }

    pub(crate) fn drop_front(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        self.need = 1;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > KEEP {
                self.buffer = Vec::new();
            }
        }
    }
}

pub(crate) fn part_lengths(list: &[u8]) -> impl Iterator<Item = usize> + '_ {
    list.as_chunks::<4>()
        .0
        .iter()
        .map(|length| u32::from_le_bytes(*length) as usize)
}

/// One copy out of the receive buffer for all parts together.
pub(crate) fn cut(bytes: &[u8], lengths: &[usize]) -> Vec<Bytes> {
    let mut rest = Bytes::copy_from_slice(bytes);
    lengths.iter().map(|length| rest.split_to(*length)).collect()
}
