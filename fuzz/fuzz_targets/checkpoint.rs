//! Any bytes as a file of a checkpoint: refused, or read as what writes itself back and leads nowhere else.

#![no_main]

// The readers alone: their crate would bring the client of object stores, some ninety crates, into this build.
#[allow(dead_code)]
#[path = "../../crates/grampus-train/src/checkpoint/encoding.rs"]
mod encoding;
#[allow(dead_code)]
#[path = "../../crates/grampus-train/src/checkpoint/error.rs"]
mod error;
#[allow(dead_code)]
#[path = "../../crates/grampus-train/src/checkpoint/manifest.rs"]
mod manifest;
#[allow(dead_code)]
#[path = "../../crates/grampus-train/src/checkpoint/tensor.rs"]
mod tensor;

use encoding::{Encoded, decode};
use libfuzzer_sys::fuzz_target;
use manifest::Manifest;
use tensor::Memory;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(manifest) = Manifest::parse(bytes) {
        assert!(
            manifest
                .files
                .keys()
                .all(|name| !name.contains('/') && !name.starts_with('.'))
        );
        let again = Manifest::parse(&manifest.to_bytes().unwrap()).unwrap();
        assert_eq!(again.files, manifest.files);
        assert_eq!(again.meta.get(), manifest.meta.get());
    }
    if let Ok((tensors, remarks)) = decode(Memory::heap(bytes.to_vec())) {
        let again = Encoded::new(tensors.clone(), &remarks).unwrap();
        let again: Vec<u8> = again.parts().flatten().collect();
        let (again, said) = decode(Memory::heap(again)).unwrap();
        assert_eq!(said, remarks);
        assert_eq!(again.len(), tensors.len());
        assert!(tensors.iter().all(|tensor| again.contains(tensor)));
    }
});
