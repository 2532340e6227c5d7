//! Any bytes, in any pieces: frames or an error, the same whatever the pieces, and frames go back to the same bytes.

#![no_main]

use grampus_net::pipe::{Decoder, encode_frame, read_frame};
use grampus_net::{Frame, Limits};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = {
    use std::time::Duration;
    let second = Duration::from_secs(1);
    Limits {
        body: 1 << 16,
        parts: 1 << 16,
        memory: 0,
        io: second,
        handshake: second,
    }
};

/// All frames up to the end or the first error.
fn decode(pieces: &[&[u8]]) -> (Vec<Frame>, Option<String>) {
    let mut decoder = Decoder::new(&LIMITS);
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error.to_string())),
            }
        }
    }
    (frames, None)
}

fuzz_target!(|input: &[u8]| {
    // The first two bytes say where to cut the rest.
    let Some((cut, bytes)) = input.split_first_chunk() else {
        return;
    };
    let cut = usize::from(u16::from_le_bytes(*cut)).min(bytes.len());
    let (whole, error) = decode(&[bytes]);
    let (pieces, error_in_pieces) = decode(&[&bytes[..cut], &bytes[cut..]]);
    assert_eq!(error.is_some(), error_in_pieces.is_some());
    assert_eq!(whole.len(), pieces.len());

    let mut rest = bytes;
    for (one, other) in whole.iter().zip(&pieces) {
        assert_eq!((&one.body, &one.parts), (&other.body, &other.parts));
        let encoded = encode_frame(one, &LIMITS).expect("a frame that was accepted can be sent");
        assert!(rest.starts_with(&encoded));
        let read = read_frame(&mut rest, &LIMITS)
            .expect("the same bytes")
            .expect("the same frame");
        assert_eq!((&one.body, &one.parts), (&read.body, &read.parts));
    }
});
