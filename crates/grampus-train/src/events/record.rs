//! The framing of TensorFlow's record files: length, checksum of the length, bytes, checksum of the bytes.

use std::io::{self, Write};

/// Writes one record.
pub(super) fn write(file: &mut impl Write, body: &[u8]) -> io::Result<()> {
    let length = (body.len() as u64).to_le_bytes();
    file.write_all(&length)?;
    file.write_all(&masked(&length).to_le_bytes())?;
    file.write_all(body)?;
    file.write_all(&masked(body).to_le_bytes())
}

/// The checksum, changed so that a checksum of bytes that hold checksums stays a good one.
fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The bodies of all records, each held against its checksums.
#[cfg(test)]
pub(super) fn read_all(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    while !bytes.is_empty() {
        let (head, rest) = bytes.split_at(12);
        let length = u64::from_le_bytes(head[..8].try_into().unwrap()) as usize;
        assert_eq!(masked(&head[..8]).to_le_bytes(), head[8..]);
        let (body, rest) = rest.split_at(length);
        let (sum, rest) = rest.split_at(4);
        assert_eq!(masked(body).to_le_bytes(), sum);
        bodies.push(body.to_vec());
        bytes = rest;
    }
    bodies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_bytes_that_others_write() {
        // Written by tensorboard 2.21's RecordWriter for the body "grampus".
        let theirs = [
            7, 0, 0, 0, 0, 0, 0, 0, 187, 215, 159, 17, b'g', b'r', b'a', b'm', b'p', b'u', b's', 66, 41, 0,
            188,
        ];
        let mut ours = Vec::new();
        write(&mut ours, b"grampus").unwrap();
        assert_eq!(ours, theirs);
        assert_eq!(read_all(&ours), [b"grampus"]);
    }
}
