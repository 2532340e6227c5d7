//! Any bytes as a control message: refused, or a message that survives being written and read again.

#![no_main]

use std::fmt::Debug;

use grampus_core::{ToCoordinator, ToWorker};
use grampus_net::Frame;
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(body: &[u8]) {
    let frame = Frame {
        body: body.to_vec(),
        ..Frame::default()
    };
    let Ok(message) = frame.read::<T>() else { return };
    let written = Frame::message(&message).expect("a message that was read can be written");
    // Numbers can be written longer than they need to be, so it is the message that must be equal, not the bytes.
    assert_eq!(
        written
            .read::<T>()
            .expect("a message that was written can be read"),
        message
    );
}

fuzz_target!(|bytes: &[u8]| {
    check::<ToCoordinator>(bytes);
    check::<ToWorker>(bytes);
});
