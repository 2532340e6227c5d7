//! What has come and is to be opened.
//!
//! A sender of bulk fills its records, so the reader bets on it: one read lays the content of the records to come
//! straight into the caller's slice, heads and tags beside it, and opens each where it lies. Where the bet is lost (a
//! short record, or one that has not come whole) the rest is gathered into a buffer and opened there.

use std::io::{self, IoSliceMut, Read};
use std::net::TcpStream;
use std::ops::Range;

use super::WINDOW;
use super::record::{Broken, HEAD, Kind, Opener, RECORD, TAG, parse_head};

/// Records that one read lays into the caller's slice.
const SPREAD: usize = WINDOW / RECORD;
const SEAM: usize = TAG + HEAD;
const WHOLE: usize = HEAD + RECORD + TAG;

/// How receiving can end.
pub(super) enum End {
    /// The peer said farewell.
    Farewell,
    /// The stream ended without.
    Cut,
    /// What came is no record.
    Broken(Broken),
    /// The kernel said so.
    Io(io::Error),
}

impl From<Broken> for End {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

pub(super) struct Inbox {
    pub(super) opener: Opener,
    /// Bytes as they came; those of `held` count.
    buffer: Box<[u8]>,
    held: Range<usize>,
    /// Content in `buffer` that is open and not yet taken; it lies before `held`.
    plain: Range<usize>,
    /// Between the contents of two records in a row: the tag of one and the head of the next.
    seams: Box<[[u8; SEAM]; SPREAD + 1]>,
    farewell: bool,
    /// What was wrong; nothing after it is believed.
    broken: Option<Broken>,
}

impl Inbox {
    pub fn new(opener: Opener) -> Self {
        Self {
            opener,
            buffer: vec![0; (SPREAD + 1) * WHOLE].into(),
            held: 0..0,
            plain: 0..0,
            seams: Box::new([[0; SEAM]; SPREAD + 1]),
            farewell: false,
            broken: None,
        }
    }

    /// Whether [`Inbox::receive`] has something to say without asking the kernel.
    pub fn is_ready(&self) -> bool {
        let whole = |length| self.held.len() >= HEAD + length + TAG;
        let ended = self.farewell || self.broken.is_some();
        ended || !self.plain.is_empty() || self.next_length().map_or(true, |next| next.is_some_and(whole))
    }

    /// Fills the front of `into` with what is there, asking the kernel at most once.
    pub fn receive(&mut self, stream: &TcpStream, into: &mut [u8]) -> Result<usize, End> {
        if let Some(broken) = self.broken {
            return Err(End::Broken(broken));
        }
        let received = self.try_receive(stream, into);
        if let Err(End::Broken(broken)) = &received {
            self.broken = Some(*broken);
        }
        received
    }

    fn try_receive(&mut self, stream: &TcpStream, into: &mut [u8]) -> Result<usize, End> {
        let mut done = self.take_held(into)?;
        if done < into.len() && !self.farewell {
            done = match self.read(stream, into, done) {
                // What was found before is worth more; the end will be there again.
                Err(End::Cut | End::Io(_)) if done > 0 => done,
                read => read?,
            };
        }
        if done == 0 && self.farewell && !into.is_empty() {
            return Err(End::Farewell);
        }
        Ok(done)
    }

    /// Content length of the record at the front, where its head has come.
    fn next_length(&self) -> Result<Option<usize>, Broken> {
        match self.buffer[self.held.clone()].first_chunk() {
            Some(head) => parse_head(*head).map(|(_, length)| Some(length)),
            None => Ok(None),
        }
    }

    /// Gives what is open, and opens whole records that are held, until `into` is full; returns how much is in it.
    fn take_held(&mut self, into: &mut [u8]) -> Result<usize, End> {
        let mut done = 0;
        loop {
            let count = self.plain.len().min(into.len() - done);
            let from = self.plain.start;
            into[done..done + count].copy_from_slice(&self.buffer[from..from + count]);
            self.plain.start += count;
            done += count;
            if done == into.len() || self.farewell {
                return Ok(done);
            }
            match self.next_length()? {
                Some(length) if self.held.len() >= HEAD + length + TAG => self.open_held(length)?,
                _ => return Ok(done),
            }
        }
    }

    /// Opens the record at the front of what is held.
    fn open_held(&mut self, length: usize) -> Result<(), Broken> {
        let record = &mut self.buffer[self.held.start..self.held.start + HEAD + length + TAG];
        let (head, rest) = record.split_first_chunk_mut().ok_or(Broken::Head)?;
        let (content, tag) = rest.split_last_chunk_mut().ok_or(Broken::Head)?;
        let (kind, _) = parse_head(*head)?;
        self.opener.open(*head, content, *tag)?;
        let from = self.held.start + HEAD;
        self.held.start = from + length + TAG;
        match kind {
            Kind::Data => self.plain = from..from + length,
            Kind::Farewell => self.farewell = true,
        }
        Ok(())
    }

    /// Reads once. What is held is the front of one record, or nothing; all that is open was taken.
    fn read(&mut self, stream: &TcpStream, into: &mut [u8], done: usize) -> Result<usize, End> {
        self.buffer.copy_within(self.held.clone(), 0);
        self.held = 0..self.held.len();
        let begun = match self.next_length()? {
            Some(length) => length,
            None if self.held.is_empty() => 0,
            None => usize::MAX,
        };
        let room = into.len() - done;
        if begun > room || room - begun < RECORD {
            let count = read_once(stream, &mut [IoSliceMut::new(&mut self.buffer[self.held.end..])])?;
            self.held.end += count;
            return Ok(done + self.take_held(&mut into[done..])?);
        }
        self.spread(stream, into, done, begun)
    }

    /// Reads the rest of the record that is held, of which `begun` bytes are content, and records after it.
    fn spread(
        &mut self,
        stream: &TcpStream,
        into: &mut [u8],
        mut done: usize,
        begun: usize,
    ) -> Result<usize, End> {
        let rest = match self.held.len() {
            0 => 0,
            held => HEAD + begun + TAG - held,
        };
        let (held, target) = (self.held.end, &mut into[done + begun..]);
        let records = (target.len() / RECORD).min(SPREAD);
        let mut slices = Vec::with_capacity(2 * records + 2);
        slices.push(IoSliceMut::new(&mut self.buffer[held..held + rest]));
        // The first seam has no tag before it, the last no head after it.
        let mut from = TAG;
        let mut seams = self.seams.iter_mut();
        for (content, seam) in target.chunks_exact_mut(RECORD).take(records).zip(seams.by_ref()) {
            slices.push(IoSliceMut::new(&mut seam[from..]));
            slices.push(IoSliceMut::new(content));
            from = 0;
        }
        if let Some(seam) = seams.next() {
            slices.push(IoSliceMut::new(&mut seam[..TAG]));
        }
        let count = read_once(stream, &mut slices)?;
        self.held.end += count.min(rest);
        if count < rest {
            return Ok(done);
        }
        done += self.take_held(&mut into[done..])?;
        if self.farewell {
            return Ok(done);
        }
        let opened = self.open_spread(&mut into[done..], count - rest)?;
        done += opened * RECORD;
        Ok(done + self.take_held(&mut into[done..])?)
    }

    /// Opens the full records among the `count` bytes that were spread over `target`, and gathers the rest; returns
    /// how many were opened.
    fn open_spread(&mut self, target: &mut [u8], count: usize) -> Result<usize, Broken> {
        self.held = 0..0;
        let mut left = count;
        let mut opened = 0;
        for (content, seams) in target.chunks_exact_mut(RECORD).zip(self.seams.windows(2)) {
            let head = seams[0].last_chunk().copied().ok_or(Broken::Head)?;
            let tag = seams[1].first_chunk().copied().ok_or(Broken::Head)?;
            if left < WHOLE || parse_head(head)? != (Kind::Data, RECORD) {
                break;
            }
            self.opener.open(head, content, tag)?;
            left -= WHOLE;
            opened += 1;
        }
        let unopened = target
            .chunks_exact(RECORD)
            .zip(self.seams.windows(2))
            .skip(opened);
        for (content, seams) in unopened {
            for piece in [&seams[0][TAG..], content, &seams[1][..TAG]] {
                let part = piece.len().min(left);
                self.buffer[self.held.end..self.held.end + part].copy_from_slice(&piece[..part]);
                self.held.end += part;
                left -= part;
            }
        }
        Ok(opened)
    }
}

/// Asks the kernel until it answers: with bytes, with none for now (0), or with the end.
fn read_once(mut stream: &TcpStream, slices: &mut [IoSliceMut<'_>]) -> Result<usize, End> {
    loop {
        match stream.read_vectored(slices) {
            Ok(0) => return Err(End::Cut),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(End::Io(error)),
        }
    }
}
