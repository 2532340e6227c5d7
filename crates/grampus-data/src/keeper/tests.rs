//! Blocks as they are written, mapped and picked from. What processes do with them is tested in Python.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Float64Array, Int64Array, LargeBinaryArray, RecordBatch};
use bytes::Bytes;
use grampus_core::{Address, JobId, JobKey, JoinString};
use proptest::prelude::*;

use super::layout::Layout;
use super::store::mapped;
use super::writer::Writer;
use super::{Deposit, Hub, Kept, Manifest, Setting, hidden_name};
use crate::batch::{Output, Packed, Stored, pack, vector_column};
use crate::{DataError, Place};

const WAIT: Duration = Duration::from_secs(10);

/// Two columns of numbers, one of files, whose lengths differ, and one of vectors, some of them sparse.
fn table(rows: usize) -> RecordBatch {
    let numbers = 0..rows as i64;
    let files = numbers
        .clone()
        .map(|number| vec![number as u8; number as usize % 7]);
    let vectors: Vec<_> = numbers
        .clone()
        .map(|number| {
            let values = (0..6).map(|at| Some(f64::from(u8::from(number % 6 == at))));
            Some((number % 3 != 0, values.collect()))
        })
        .collect();
    let columns: [(&str, ArrayRef); 4] = [
        (
            "a",
            Arc::new(Float64Array::from_iter_values(
                numbers.clone().map(|number| number as f64),
            )),
        ),
        (
            "b",
            Arc::new(Int64Array::from_iter(
                numbers.map(|number| (number % 5 != 4).then_some(number)),
            )),
        ),
        ("file", Arc::new(LargeBinaryArray::from_iter_values(files))),
        ("vector", vector_column(&vectors)),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn outputs() -> Vec<Output> {
    let wanted = r#"[{"columns": ["a", "b"]}, {"columns": ["b"]},
        {"columns": ["vector"]},
        {"columns": ["file"], "images": {"steps": [{"step": "resize", "height": 2, "width": 2}], "output": {"kind": "u8"}}}]"#;
    serde_json::from_str(wanted).unwrap()
}

/// Rows cut at some places, as blocks with their memory.
fn written(table: &RecordBatch, outputs: &[Output], cuts: &[usize]) -> (String, Vec<(Layout, Bytes)>) {
    let mut blocks = Vec::new();
    let mut give = |layout: Layout, memory: grampus_net::Memory| -> Result<(), DataError> {
        blocks.push((layout, Bytes::from_owner(mapped(&memory)?)));
        Ok(())
    };
    let mut writer = Writer::new(3);
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (table.num_rows() + 1)).collect();
    ends.sort_unstable();
    ends.push(table.num_rows());
    let mut first = 0;
    for end in ends {
        let place = Place::partition(3, first as u64);
        let packed = pack(&table.slice(first, end - first), outputs, &place, true).unwrap();
        writer.append(&packed, &mut give).unwrap();
        first = end;
    }
    let digest = writer.finish(&mut give).unwrap();
    (digest, blocks)
}

/// All that is known of the rows of a block.
fn rows_of(packed: &Packed) -> Vec<Vec<Vec<u8>>> {
    let row = |row: usize| {
        let outputs = packed.outputs.iter().map(|stored| match stored {
            Stored::Numbers(matrix) => {
                let size = matrix.row_size();
                matrix.data[row * size..(row + 1) * size].to_vec()
            }
            _ => stored.loose().unwrap().1.value(row).to_vec(),
        });
        let bad = packed.bad.iter().filter(|bad| bad.row == row);
        outputs
            .chain(bad.map(|bad| bad.why.clone().into_bytes()))
            .collect()
    };
    (0..packed.rows).map(row).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn rows_are_what_they_were_however_they_were_cut(
        count in 1..300_usize,
        cuts in proptest::collection::vec(any::<usize>(), 0..5),
        picks in proptest::collection::vec(any::<u32>(), 0..40),
    ) {
        let (table, outputs) = (table(count), outputs());
        let whole = pack(&table, &outputs, &Place::partition(3, 0), true).unwrap();
        let (digest, blocks) = written(&table, &outputs, &cuts);
        prop_assert_eq!(&digest, &written(&table, &outputs, &[]).0);
        let (layout, memory) = &blocks[0];
        let view = layout.view(memory, &outputs, 3).unwrap();
        let rows = rows_of(&view);
        prop_assert_eq!(&rows, &rows_of(&whole));
        // Rows of two questions, one behind the other, in one answer.
        let picks: Vec<u32> = picks.iter().map(|row| row % count as u32).collect();
        let mut parts = vec![Vec::new(); layout.parts()];
        layout.pick(memory, &picks, &mut parts).unwrap();
        layout.pick(memory, &[0], &mut parts).unwrap();
        let mut parts: Vec<Bytes> = parts.into_iter().map(Bytes::from).collect();
        let picked = layout.picked(&picks, &mut parts, &outputs, 3).unwrap();
        let wanted: Vec<_> = picks.iter().map(|&row| rows[row as usize].clone()).collect();
        prop_assert_eq!(rows_of(&picked), wanted);
        let last = layout.picked(&[0], &mut parts, &outputs, 3).unwrap();
        prop_assert_eq!(&rows_of(&last)[0], &rows[0]);
        prop_assert!(layout.picked(&[0], &mut parts, &outputs, 3).is_err());
    }
}

#[test]
fn other_rows_have_another_digest() {
    let outputs = outputs();
    let (whole, fewer) = (table(50), table(50).slice(0, 49));
    let digest = written(&whole, &outputs, &[]).0;
    assert_ne!(digest, written(&fewer, &outputs, &[]).0);
    assert_ne!(digest, written(&whole, &outputs[..2], &[]).0);
}

#[test]
fn rows_that_are_not_there_are_refused() {
    let outputs = outputs();
    let (_, blocks) = written(&table(5), &outputs, &[]);
    let (layout, memory) = &blocks[0];
    let mut parts = vec![Vec::new(); layout.parts()];
    assert!(layout.pick(memory, &[5], &mut parts).is_err());
    assert!(layout.pick(&memory[..64], &[0], &mut parts).is_err());
    assert!(layout.view(&memory.slice(..64), &outputs, 3).is_err());
    assert!(layout.view(memory, &outputs[..1], 3).is_err());
}

#[test]
fn names_of_keepers_are_not_guessed() {
    let join = |key| JoinString {
        job: JobId(1),
        key: JobKey::from_bytes([key; 32]),
        address: Address::Abstract("hub".to_owned()),
    };
    let name = hidden_name(&join(1), 17, 1).unwrap();
    assert_eq!(name, hidden_name(&join(1), 17, 1).unwrap());
    assert!(Address::is_abstract_name(&name));
    for other in [(2, 17, 1), (1, 18, 1), (1, 17, 2)] {
        assert_ne!(name, hidden_name(&join(other.0), other.1, other.2).unwrap());
    }
}

#[test]
fn nobody_there_is_told_apart_from_a_failure() {
    let setting = Setting {
        bind: "127.0.0.1".to_owned(),
        address: "127.0.0.1".to_owned(),
        port: 0,
        silent: WAIT,
    };
    let hub = Hub::open(setting).unwrap();
    assert!(hub.keepers().is_empty());
    let hidden = hidden_name(hub.join(), 1, 1).unwrap();
    let found = Deposit::open(hub.join(), &hidden, Vec::new(), 0, false, WAIT).unwrap();
    assert!(found.is_none());
    let kept = Kept::open(hub.join(), Manifest::default(), Vec::new(), false, WAIT).unwrap();
    assert!(!kept.is_far());
}
