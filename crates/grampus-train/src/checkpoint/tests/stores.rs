//! What is written is what is read, and what is not whole is passed over with a reason.

use std::collections::BTreeMap;
use std::fs;

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::super::{
    CheckpointError, DType, Entry, Held, Keep, MANIFEST, Store, Tensor, dtype, read, read_tensors, surplus,
    write_tensors,
};
use super::{MODEL, flip, floats, meta, names, store, write};

const DTYPES: [DType; 22] = [
    DType::BOOL,
    DType::F4,
    DType::F6_E2M3,
    DType::F6_E3M2,
    DType::U8,
    DType::I8,
    DType::F8_E5M2,
    DType::F8_E4M3,
    DType::F8_E8M0,
    DType::F8_E4M3FNUZ,
    DType::F8_E5M2FNUZ,
    DType::I16,
    DType::U16,
    DType::F16,
    DType::BF16,
    DType::I32,
    DType::U32,
    DType::F32,
    DType::C64,
    DType::F64,
    DType::I64,
    DType::U64,
];

/// Tensors of any type, with dimensions of any length, none included; eight of the smallest types make whole bytes.
fn tensors() -> impl Strategy<Value = Vec<Tensor>> {
    let shape = prop::collection::vec(0_usize..4, 0..3);
    let one = (prop::sample::select(&DTYPES), shape, any::<u8>());
    prop::collection::btree_map(".{0,8}", one, 0..6).prop_map(|tensors| {
        let made = tensors.into_iter().map(|(name, (dtype, mut shape, byte))| {
            shape.push(8);
            let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
            let data = (0..bytes).map(|at| byte.wrapping_add(at as u8)).collect();
            Tensor::new(name, dtype, shape, data).unwrap()
        });
        made.collect()
    })
}

fn by_name(mut tensors: Vec<Tensor>) -> Vec<Tensor> {
    tensors.sort_by(|left, right| left.name().cmp(right.name()));
    tensors
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_tensors_come_back(model in tensors(), optimizer in tensors()) {
        let (_folder, store) = store();
        let files = vec![(MODEL.to_owned(), model.clone()), ("optimizer.safetensors".to_owned(), optimizer.clone())];
        store.write("step-1", files, meta(1)).unwrap();
        let mut found = store.read("step-1").unwrap();
        prop_assert_eq!(by_name(found.files.remove(MODEL).unwrap()), by_name(model));
        prop_assert_eq!(by_name(found.files.remove("optimizer.safetensors").unwrap()), by_name(optimizer));
        prop_assert!(found.files.is_empty());
    }

    #[test]
    fn a_single_file_comes_back_and_is_aligned(tensors in tensors()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("any name at all");
        let path = path.to_str().unwrap();
        let remarks = BTreeMap::from([("made".to_owned(), "here".to_owned())]);
        write_tensors(path, tensors.clone(), &remarks).unwrap();
        let (found, said) = read_tensors(path).unwrap();
        for tensor in &found {
            prop_assert_eq!(tensor.data_ptr() as usize % (tensor.dtype().bitsize() / 8).max(1), 0);
        }
        prop_assert_eq!(by_name(found), by_name(tensors));
        prop_assert_eq!(said, remarks);
    }

    #[test]
    fn what_is_just_written_and_what_is_pinned_always_stays(
        steps in prop::collection::btree_set(0_u64..20, 1..10),
        broken in prop::collection::btree_set(0_u64..20, 0..5),
        written in any::<prop::sample::Index>(),
        last in 0_usize..5,
        pinned in prop::collection::btree_set(0_u64..20, 0..3),
    ) {
        let steps: Vec<u64> = steps.into_iter().collect();
        let written = steps[written.index(steps.len())];
        let finished = |step: &u64| *step == written || !broken.contains(step);
        let held: Vec<Held> =
            steps.iter().map(|step| Held { entry: Entry::at(*step), finished: finished(step) }).collect();
        let keep = Keep { last, pinned: pinned.iter().map(|step| Entry::at(*step).name).collect() };
        let gone: Vec<u64> = surplus(&held, &Entry::at(written).name, &keep)
            .iter()
            .map(|one| Entry::named(&one.name).unwrap().step)
            .collect();
        prop_assert!(!gone.contains(&written));
        prop_assert!(gone.iter().all(|step| !pinned.contains(step)));
        prop_assert!(gone.is_sorted());
        let stays: Vec<u64> = steps.iter().copied().filter(|step| finished(step) && !gone.contains(step)).collect();
        let all = steps.iter().filter(|step| finished(step)).count();
        prop_assert!(stays.len() >= last.max(1).min(all));
        let free = stays.iter().filter(|step| !pinned.contains(step)).count();
        prop_assert!(free <= last.max(1));
    }
}

#[test]
fn every_type_is_found_by_its_name() {
    for one in DTYPES {
        assert_eq!(dtype(&one.to_string()), Some(one));
    }
    assert_eq!(dtype("float32"), None);
}

#[test]
fn equal_tensors_make_equal_files() {
    let folder = tempfile::tempdir().unwrap();
    let tensors: Vec<Tensor> = (0..50).map(|at| floats(&format!("w{at}"), &[1.0])).collect();
    let remarks = (0..50).map(|at| (format!("r{at}"), String::new())).collect();
    let mut files = Vec::new();
    for name in ["a", "b"] {
        let path = folder.path().join(name);
        write_tensors(path.to_str().unwrap(), tensors.clone(), &remarks).unwrap();
        files.push(fs::read(path).unwrap());
    }
    assert_eq!(files[0], files[1]);
}

#[test]
fn meta_is_kept_to_the_letter() {
    let (_folder, store) = store();
    let text = r#"{"lr": 0.1000000000000000055511151231257827,  "seed": 123456789012345678901234567890, "tiny": 5e-324}"#;
    store
        .write("step-1", vec![], RawValue::from_string(text.to_owned()).unwrap())
        .unwrap();
    assert_eq!(store.read("step-1").unwrap().meta.get(), text);
}

#[test]
fn the_newest_whole_one_is_found_and_the_others_are_accounted_for() {
    let (folder, store) = store();
    for step in [9, 10, 100, 101, 102, 103] {
        write(&store, step);
    }
    let file = |step: u64, name: &str| folder.path().join(Entry::at(step).name).join(name);
    fs::remove_file(file(103, MANIFEST)).unwrap();
    fs::remove_file(file(102, MODEL)).unwrap();
    flip(&file(101, MODEL), 200);
    fs::write(file(100, MANIFEST), "{").unwrap();
    fs::create_dir(folder.path().join("step-by-step")).unwrap();
    let steps: Vec<u64> = store.list().unwrap().iter().map(|entry| entry.step).collect();
    assert_eq!(steps, [9, 10, 100, 101, 102, 103]);
    let latest = store.latest().unwrap();
    let (entry, checkpoint) = latest.found.unwrap();
    assert_eq!(entry, Entry::at(10));
    assert_eq!(checkpoint.files[MODEL], [floats("weight", &[10.0; 100])]);
    let reasons: Vec<String> = latest.skipped.into_iter().map(|skipped| skipped.reason).collect();
    assert_eq!(reasons.len(), 4);
    assert!(
        reasons[0].contains("holds model.safetensors but no manifest.json"),
        "{}",
        reasons[0]
    );
    assert!(
        reasons[1].contains("step-00000102/model.safetensors is damaged: it is not there"),
        "{}",
        reasons[1]
    );
    assert!(
        reasons[2].contains("step-00000101/model.safetensors is damaged: its checksum is"),
        "{}",
        reasons[2]
    );
    assert!(
        reasons[3].contains("step-00000100/manifest.json: this is no manifest"),
        "{}",
        reasons[3]
    );
}

#[test]
fn an_empty_store_has_no_latest() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("not/there/yet").to_str().unwrap()).unwrap();
    let latest = store.latest().unwrap();
    assert!(latest.found.is_none() && latest.skipped.is_empty());
    write(&store, 1);
    assert_eq!(store.latest().unwrap().found.unwrap().0.step, 1);
}

#[test]
fn a_checkpoint_is_replaced_whole() {
    let (folder, store) = store();
    write(&store, 1);
    let old = store.read("step-00000001").unwrap();
    let two = vec![("other.safetensors".to_owned(), vec![floats("bias", &[2.0])])];
    store.write("step-00000001", two, meta(2)).unwrap();
    let new = store.read("step-00000001").unwrap();
    assert_eq!(new.files.keys().collect::<Vec<_>>(), ["other.safetensors"]);
    assert_eq!(names(folder.path()), ["step-00000001"]);
    // What was read before is still there, though its files are not.
    assert_eq!(old.files[MODEL], [floats("weight", &[1.0; 100])]);
}

#[test]
fn leftovers_of_a_crash_go_with_the_first_write() {
    let (folder, store) = store();
    let leftover = folder.path().join(".grampus-writing-step-00000001-x");
    fs::create_dir(&leftover).unwrap();
    fs::write(leftover.join(MODEL), "half").unwrap();
    assert!(store.list().unwrap().is_empty());
    write(&store, 1);
    assert_eq!(names(folder.path()), ["step-00000001"]);
    // Another writer's, by now.
    fs::create_dir(&leftover).unwrap();
    write(&store, 2);
    assert_eq!(names(folder.path()).len(), 3);
}

#[test]
fn a_file_keeps_the_permissions_that_users_expect() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, store) = store();
    write(&store, 1);
    fs::create_dir(folder.path().join("plain")).unwrap();
    let mode = |path: &str| {
        fs::metadata(folder.path().join(path))
            .unwrap()
            .permissions()
            .mode()
    };
    assert_eq!(mode("step-00000001"), mode("plain"));
    let file = folder.path().join("single.safetensors");
    write_tensors(file.to_str().unwrap(), vec![], &BTreeMap::new()).unwrap();
    fs::write(folder.path().join("text"), "").unwrap();
    assert_eq!(mode("single.safetensors"), mode("text"));
}

#[test]
fn writing_to_what_was_read_leaves_the_file_alone() {
    let (_folder, store) = store();
    write(&store, 1);
    let checkpoint = store.read("step-00000001").unwrap();
    // SAFETY: nobody else has this memory.
    unsafe { checkpoint.files[MODEL][0].data_ptr().write(77) };
    assert_eq!(checkpoint.files[MODEL][0].data()[0], 77);
    assert_eq!(
        store.read("step-00000001").unwrap().files[MODEL],
        [floats("weight", &[1.0; 100])]
    );
}

#[test]
fn a_folder_that_is_no_checkpoint_says_what_it_is() {
    let (folder, store) = store();
    let say = |path: &str| {
        read(folder.path().join(path).to_str().unwrap())
            .unwrap_err()
            .to_string()
    };
    assert!(say("").contains("it is empty or not there"));
    fs::write(folder.path().join("notes.txt"), "").unwrap();
    assert!(say("").contains("it holds no manifest.json, but notes.txt"));
    write_tensors(
        folder.path().join(MODEL).to_str().unwrap(),
        vec![],
        &BTreeMap::new(),
    )
    .unwrap();
    let weights = say("");
    assert!(
        weights.contains("load those from") && weights.ends_with(MODEL),
        "{weights}"
    );
    write(&store, 7);
    assert!(say("").contains("it holds checkpoints, up to step-00000007: name one of them"));
    assert_eq!(
        read(&format!("file://{}/step-00000007", folder.path().display()))
            .unwrap()
            .files
            .len(),
        1
    );
}

#[test]
fn wrong_places_and_names_are_refused() {
    for url in ["", "hdfs://host/path", "s3://", "file://elsewhere/path"] {
        let error = Store::open(url).err().unwrap().to_string();
        assert!(
            error.contains("use a folder, file:///path or s3://bucket/prefix"),
            "{error}"
        );
    }
    let (folder, store) = store();
    for name in [
        "",
        "best",
        "step-",
        "step-+1",
        "step-1/../..",
        "../step-1",
        "step-99999999999999999999999",
    ] {
        assert!(
            matches!(
                store.write(name, vec![], meta(1)),
                Err(CheckpointError::Name { .. })
            ),
            "{name}"
        );
        assert!(
            matches!(store.remove(name), Err(CheckpointError::Name { .. })),
            "{name}"
        );
    }
    for file in [
        "model",
        "manifest.json",
        "../model.safetensors",
        ".safetensors",
        "a/b.safetensors",
    ] {
        let outcome = store.write("step-1", vec![(file.to_owned(), vec![])], meta(1));
        assert!(matches!(outcome, Err(CheckpointError::Name { .. })), "{file}");
    }
    let twice = vec![(MODEL.to_owned(), vec![]), (MODEL.to_owned(), vec![])];
    assert!(store.write("step-1", twice, meta(1)).is_err());
    for taken in [
        vec![floats("a", &[]), floats("a", &[])],
        vec![floats("__metadata__", &[])],
    ] {
        let error = store
            .write("step-1", vec![(MODEL.to_owned(), taken)], meta(1))
            .unwrap_err();
        assert!(error.to_string().contains("the name is taken"), "{error}");
    }
    assert!(names(folder.path()).is_empty());
}
