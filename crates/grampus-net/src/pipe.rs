//! Frames over anything that reads and writes: pipes between parent and child, standard input and output over ssh.
//! The header is that of all frames; memory cannot travel here.

use std::io::{ErrorKind, Read, Write};

pub use crate::decoder::Decoder;
use crate::frame::Way;
use crate::{Frame, Limits, NetError};

const ENDED: &str = "the process there failed";

/// Writes a frame in one call, which is whole or not at all for small frames on a pipe, and flushes.
pub fn write_frame(writer: &mut impl Write, frame: &Frame, limits: &Limits) -> Result<(), NetError> {
    let bytes = encode_frame(frame, limits)?;
    let closed = || NetError::Closed {
        peer: "the other end of the pipe".to_owned(),
        when: "before a frame was sent",
    };
    writer
        .write_all(&bytes)
        .and_then(|()| writer.flush())
        .map_err(|source| match source.kind() {
            ErrorKind::BrokenPipe => closed(),
            _ => NetError::io("cannot write to a pipe", ENDED)(source),
        })
}

/// The bytes of a frame, for writers that cannot block.
pub fn encode_frame(frame: &Frame, limits: &Limits) -> Result<Vec<u8>, NetError> {
    if frame.memory.is_some() {
        return Err(NetError::Memory(
            "memory cannot travel through a pipe: send it as parts or over a link",
        ));
    }
    let mut bytes = frame.head(Way::Stream, limits)?;
    bytes.reserve_exact(frame.body.len() + frame.parts.iter().map(|part| part.len()).sum::<usize>());
    bytes.extend_from_slice(&frame.body);
    frame.parts.iter().for_each(|part| bytes.extend_from_slice(part));
    Ok(bytes)
}

/// Reads a frame and not a byte more; `None` at the end. Blocks as `reader` does: a deadline is its owner's to set.
pub fn read_frame(reader: &mut impl Read, limits: &Limits) -> Result<Option<Frame>, NetError> {
    let mut decoder = Decoder::new(limits);
    loop {
        if let Some(frame) = decoder.next()? {
            return Ok(Some(frame));
        }
        let missing = decoder.missing();
        match reader.read(&mut decoder.space(missing)[..missing]) {
            Ok(0) if decoder.is_empty() => return Ok(None),
            Ok(0) => {
                let peer = "the other end of the pipe".to_owned();
                return Err(NetError::Closed {
                    peer,
                    when: "in the middle of a frame",
                });
            }
            Ok(count) => decoder.filled(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(NetError::io("cannot read from a pipe", ENDED)(error)),
        }
    }
}
