//! The decoder, and frames over pipes. `NET-3` is here.

use std::io::Cursor;

use bytes::Bytes;
use proptest::prelude::*;

use crate::pipe::{Decoder, encode_frame, read_frame, write_frame};
use crate::{Frame, Limits, Memory, NetError};

fn frames() -> impl Strategy<Value = Vec<Frame>> {
    let bytes = |most| prop::collection::vec(any::<u8>(), 0..most);
    let frame = (bytes(80), prop::collection::vec(bytes(40), 0..5)).prop_map(|(body, parts)| Frame {
        body,
        parts: parts.into_iter().map(Bytes::from).collect(),
        memory: None,
    });
    prop::collection::vec(frame, 1..6)
}

fn content(frames: &[Frame]) -> Vec<(&[u8], &[Bytes])> {
    frames
        .iter()
        .map(|frame| (frame.body.as_slice(), frame.parts.as_slice()))
        .collect()
}

fn encode(frames: &[Frame]) -> Vec<u8> {
    frames
        .iter()
        .flat_map(|frame| encode_frame(frame, &Limits::default()).unwrap())
        .collect()
}

fn drain(decoder: &mut Decoder, into: &mut Vec<Frame>) {
    while let Some(frame) = decoder.next().unwrap() {
        into.push(frame);
    }
}

proptest! {
    #[test]
    fn frames_survive_every_cut(frames in frames()) {
        let wire = encode(&frames);
        for cut in 0..=wire.len() {
            let mut decoder = Decoder::new(&Limits::default());
            let mut got = Vec::new();
            decoder.push(&wire[..cut]);
            drain(&mut decoder, &mut got);
            decoder.push(&wire[cut..]);
            drain(&mut decoder, &mut got);
            prop_assert_eq!(content(&got), content(&frames));
            prop_assert!(decoder.is_empty());
        }
    }

    #[test]
    fn frames_survive_byte_by_byte(frames in frames()) {
        let mut decoder = Decoder::new(&Limits::default());
        let mut got = Vec::new();
        for byte in encode(&frames) {
            decoder.push(&[byte]);
            drain(&mut decoder, &mut got);
        }
        prop_assert_eq!(content(&got), content(&frames));
    }

    #[test]
    fn a_pipe_gives_back_what_was_written_and_reads_no_further(frames in frames(), rest in prop::collection::vec(any::<u8>(), 0..30)) {
        let mut wire = Vec::new();
        for frame in &frames {
            write_frame(&mut wire, frame, &Limits::default()).unwrap();
        }
        let end = wire.len() as u64;
        wire.extend(rest);
        let mut reader = Cursor::new(wire);
        let got: Vec<Frame> =
            frames.iter().map(|_| read_frame(&mut reader, &Limits::default()).unwrap().unwrap()).collect();
        prop_assert_eq!(content(&got), content(&frames));
        prop_assert_eq!(reader.position(), end);
    }

    #[test]
    fn any_bytes_give_frames_or_an_error_that_stays(bytes in prop::collection::vec(any::<u8>(), 0..200), magic: bool) {
        let mut decoder = Decoder::new(&Limits::default());
        if magic {
            decoder.push(b"gF\0\0");
        }
        decoder.push(&bytes);
        loop {
            match decoder.next() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(first) => {
                    let again = decoder.next().unwrap_err();
                    prop_assert_eq!(first.to_string(), again.to_string());
                    break;
                }
            }
        }
    }
}

#[test]
fn lengths_are_refused_before_memory_is_taken() {
    let limits = Limits {
        body: 100,
        parts: 100,
        memory: 0,
        ..Limits::default()
    };
    let header = |body: u32, parts: u32| {
        let mut bytes = b"gF\0\0".to_vec();
        bytes.extend(body.to_le_bytes());
        bytes.extend(parts.to_le_bytes());
        bytes.extend([0; 8]);
        bytes
    };
    let mut list = header(0, 2);
    list.extend([60u32.to_le_bytes(), 60u32.to_le_bytes()].concat());
    let cases = [
        (header(u32::MAX, 0), "a body"),
        (header(101, 0), "a body"),
        (header(0, u32::MAX), "the list of parts"),
        (list, "the parts"),
    ];
    for (bytes, name) in cases {
        let mut decoder = Decoder::new(&limits);
        decoder.push(&bytes);
        let error = decoder.next().unwrap_err();
        assert!(
            matches!(error, NetError::TooLarge { what, .. } if what == name),
            "{error}"
        );
    }
}

#[test]
fn a_stranger_is_recognised_by_its_first_bytes() {
    for bytes in [b"GET / HTTP/1.1\r\n".as_slice(), b"G"] {
        let mut decoder = Decoder::new(&Limits::default());
        decoder.push(bytes);
        assert!(matches!(decoder.next(), Err(NetError::Garbage { .. })));
    }
    let mut decoder = Decoder::new(&Limits::default());
    decoder.push(b"g");
    assert!(decoder.next().unwrap().is_none());
    decoder.push(b"o");
    assert!(matches!(decoder.next(), Err(NetError::Garbage { .. })));
    let error = read_frame(&mut Cursor::new(b"SSH-2.0-OpenSSH_9.9\r\n"), &Limits::default()).unwrap_err();
    assert!(
        error.to_string().contains("53 53 48 2d 32 2e 30 2d, `SSH-2.0-`"),
        "{error}"
    );
}

#[test]
fn memory_cannot_travel_through_a_pipe() {
    let frame = Frame::default().with_memory(Memory::create(1).unwrap());
    assert!(matches!(
        encode_frame(&frame, &Limits::default()),
        Err(NetError::Memory(_))
    ));
    let mut decoder = Decoder::new(&Limits::default());
    let mut header = b"gF\x01\0".to_vec();
    header.extend([0; 16]);
    decoder.push(&header);
    assert!(matches!(decoder.next(), Err(NetError::Garbage { .. })));
}

#[test]
fn a_pipe_that_ends_between_frames_ends_cleanly_and_within_one_does_not() {
    let wire = encode(&[Frame::message(&12345u32).unwrap()]);
    assert!(
        read_frame(&mut Cursor::new(&[] as &[u8]), &Limits::default())
            .unwrap()
            .is_none()
    );
    for cut in 1..wire.len() {
        let error = read_frame(&mut Cursor::new(&wire[..cut]), &Limits::default()).unwrap_err();
        assert!(matches!(error, NetError::Closed { .. }), "{error}");
    }
}

#[test]
fn a_message_must_fill_its_body() {
    let mut frame = Frame::message(&(1u8, "text".to_owned())).unwrap();
    assert_eq!(frame.read::<(u8, String)>().unwrap(), (1, "text".to_owned()));
    frame.body.push(0);
    assert!(matches!(
        frame.read::<(u8, String)>(),
        Err(NetError::Message { .. })
    ));
    frame.body.truncate(2);
    assert!(matches!(
        frame.read::<(u8, String)>(),
        Err(NetError::Message { .. })
    ));
}
