//! Checkpoints in real folders; s3 is tested from Python, where a server can be had.

mod hostile;
mod stores;
mod writers;

use std::fs;
use std::path::Path;

use serde_json::value::{RawValue, to_raw_value};
use tempfile::TempDir;

use super::{DType, Entry, Store, Tensor};

const MODEL: &str = "model.safetensors";

/// A store in a folder of its own, which goes with the first value.
fn store() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().to_str().unwrap()).unwrap();
    (folder, store)
}

fn floats(name: &str, values: &[f32]) -> Tensor {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Tensor::new(name, DType::F32, vec![values.len()], bytes).unwrap()
}

/// A small checkpoint: the weights are the step.
fn write(store: &Store, step: u64) {
    let files = vec![(MODEL.to_owned(), vec![floats("weight", &[step as f32; 100])])];
    store.write(&Entry::at(step).name, files, meta(step)).unwrap();
}

fn meta(step: u64) -> Box<RawValue> {
    to_raw_value(&serde_json::json!({ "step": step })).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Changes one byte of a file.
fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}
