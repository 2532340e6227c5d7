//! Writing in the background.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use super::super::{CheckpointError, Entry, Keep, Order, Writer};
use super::{MODEL, floats, meta, names, store, write};

const LIMIT: Duration = Duration::from_secs(20);

fn order(step: u64, keep: Option<Keep>) -> Order {
    Order {
        name: Entry::at(step).name,
        files: vec![(MODEL.to_owned(), vec![floats("weight", &[step as f32])])],
        meta: meta(step),
        keep,
    }
}

#[test]
fn the_last_ones_and_the_pinned_stay() {
    let (folder, store) = store();
    let mut writer = Writer::new(Arc::new(store));
    let keep = Keep {
        last: 2,
        pinned: vec![Entry::at(2).name],
    };
    for step in 1..=5 {
        let before = writer.begin(order(step, Some(keep.clone())), LIMIT).unwrap();
        assert_eq!(
            before.map(|written| written.name),
            (step > 1).then(|| Entry::at(step - 1).name)
        );
    }
    let written = writer.wait(LIMIT).unwrap().unwrap();
    assert_eq!(written.removed[0].name, "step-00000003");
    assert_eq!(
        names(folder.path()),
        ["step-00000002", "step-00000004", "step-00000005"]
    );
    assert!(writer.wait(LIMIT).unwrap().is_none());
}

#[test]
fn going_back_to_an_earlier_step_does_not_remove_what_was_just_written() {
    let (folder, store) = store();
    for step in [100, 200, 300] {
        write(&store, step);
    }
    let mut writer = Writer::new(Arc::new(store));
    let keep = Keep {
        last: 2,
        pinned: vec![],
    };
    writer.begin(order(120, Some(keep)), LIMIT).unwrap();
    writer.wait(LIMIT).unwrap();
    assert_eq!(names(folder.path()), ["step-00000120", "step-00000300"]);
}

#[test]
fn an_error_of_the_background_comes_with_the_next_call_and_names_the_place() {
    let (folder, store) = store();
    let mut writer = Writer::new(Arc::new(store));
    fs::write(folder.path().join("step-00000001"), "in the way").unwrap();
    writer.begin(order(1, None), LIMIT).unwrap();
    let error = writer.begin(order(2, None), LIMIT).unwrap_err();
    assert!(matches!(error, CheckpointError::Io { .. }), "{error}");
    assert!(error.to_string().contains("step-00000001"), "{error}");
    // It was told once, and nothing unfinished is left; the next write is free to go.
    assert_eq!(names(folder.path()), ["step-00000001"]);
    writer.begin(order(2, None), LIMIT).unwrap();
    assert_eq!(writer.wait(LIMIT).unwrap().unwrap().name, "step-00000002");
}

#[test]
fn waiting_has_an_end() {
    let (folder, store) = store();
    let mut writer = Writer::new(Arc::new(store));
    let large = Order {
        files: vec![(MODEL.to_owned(), vec![floats("weight", &vec![1.0; 4 << 20])])],
        ..order(1, None)
    };
    writer.begin(large, LIMIT).unwrap();
    let error = writer.wait(Duration::ZERO).unwrap_err();
    assert!(matches!(error, CheckpointError::Late { .. }), "{error}");
    assert!(matches!(
        writer.begin(order(2, None), Duration::ZERO),
        Err(CheckpointError::Late { .. })
    ));
    assert_eq!(writer.wait(LIMIT).unwrap().unwrap().name, "step-00000001");
    assert_eq!(names(folder.path()), ["step-00000001"]);
}
