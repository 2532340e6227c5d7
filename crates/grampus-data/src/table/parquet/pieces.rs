//! The parts of a file that are at hand.

use bytes::buf::Reader;
use bytes::{Buf, Bytes};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

/// Bytes of a file, each piece with the place where it begins; all that is read must lie in one piece.
pub(super) struct Pieces {
    pub length: u64,
    pub pieces: Vec<(u64, Bytes)>,
}

impl Pieces {
    fn from(&self, start: u64) -> Result<Bytes> {
        let piece = self
            .pieces
            .iter()
            .find(|(from, bytes)| (*from..from + bytes.len() as u64).contains(&start));
        let (from, bytes) = piece.ok_or_else(|| ParquetError::EOF(format!("no byte {start} is there")))?;
        Ok(bytes.slice((start - from) as usize..))
    }
}

impl Length for Pieces {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for Pieces {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        self.from(start).map(Buf::reader)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if length == 0 {
            return Ok(Bytes::new());
        }
        let bytes = self.from(start)?;
        match bytes.len() >= length {
            true => Ok(bytes.slice(..length)),
            false => Err(ParquetError::EOF(format!(
                "{length} bytes from byte {start} on are not all there"
            ))),
        }
    }
}
