//! Bytes that nobody should trust: an error, never a panic, a wrong tensor or a path to elsewhere.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use proptest::prelude::*;
use serde_json::json;

use super::super::{CheckpointError, MANIFEST, Manifest, ManifestError, read_tensors, write_tensors};
use super::{MODEL, floats, meta, store, write};

fn read_bytes(bytes: &[u8]) -> Result<usize, CheckpointError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(MODEL);
    fs::write(&path, bytes).unwrap();
    let (tensors, _) = read_tensors(std::str::from_utf8(path.as_os_str().as_bytes()).unwrap())?;
    Ok(tensors.iter().map(|tensor| tensor.data().len()).sum())
}

fn file(header: &serde_json::Value, data: usize) -> Vec<u8> {
    let header = header.to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

fn entry(shape: &[u64], start: u64, end: u64) -> serde_json::Value {
    json!({ "dtype": "U8", "shape": shape, "data_offsets": [start, end] })
}

#[test]
fn odd_files_of_tensors_are_refused() {
    assert_eq!(
        read_bytes(&file(&json!({ "a": entry(&[4], 0, 4) }), 4)).unwrap(),
        4
    );
    let eighth = 1 << 60;
    let chain: serde_json::Map<String, serde_json::Value> = (0..15)
        .map(|at| {
            (
                format!("{at:02}"),
                entry(&[eighth], at * eighth, (at + 1) * eighth),
            )
        })
        .collect();
    // The tensors' end and the header's length together are too large for a number.
    let mut wraps = chain.clone();
    wraps.insert(
        "z".to_owned(),
        entry(&[u64::MAX / 16 + 1 - 8], 15 * eighth, u64::MAX - 7),
    );
    let odd = [
        ("nothing", vec![]),
        ("a short prefix", vec![0; 7]),
        ("an endless header", u64::MAX.to_le_bytes().to_vec()),
        ("a header beyond the end", file(&json!({}), 0)[..9].to_vec()),
        ("no JSON", [&3_u64.to_le_bytes()[..], b"{]}"].concat()),
        (
            "overlap",
            file(&json!({ "a": entry(&[4], 0, 4), "b": entry(&[4], 2, 6) }), 6),
        ),
        (
            "a gap",
            file(&json!({ "a": entry(&[4], 0, 4), "b": entry(&[4], 6, 10) }), 10),
        ),
        ("beyond the end", file(&json!({ "a": entry(&[400], 0, 400) }), 4)),
        ("something behind", file(&json!({ "a": entry(&[4], 0, 4) }), 5)),
        (
            "a shape that does not fit",
            file(&json!({ "a": entry(&[3], 0, 4) }), 4),
        ),
        (
            "a shape that overflows",
            file(&json!({ "a": entry(&[1 << 40, 1 << 40], 0, 4) }), 4),
        ),
        ("backwards", file(&json!({ "a": entry(&[4], 4, 0) }), 4)),
        ("huge", file(&chain.into(), 0)),
        ("wrapped around", file(&wraps.into(), 4)),
        (
            "deep",
            file(
                &serde_json::from_str(&format!("{}{}", "[".repeat(100), "]".repeat(100))).unwrap(),
                0,
            ),
        ),
    ];
    for (what, bytes) in odd {
        let error = read_bytes(&bytes).expect_err(what);
        assert!(
            matches!(error, CheckpointError::Damaged { .. }),
            "{what}: {error}"
        );
        assert!(error.to_string().contains(MODEL), "{what}: {error}");
    }
}

#[test]
fn every_cut_of_a_file_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(MODEL);
    write_tensors(
        path.to_str().unwrap(),
        vec![floats("a", &[1.0, 2.0])],
        &BTreeMap::new(),
    )
    .unwrap();
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        assert!(read_bytes(&whole[..length]).is_err(), "{length}");
    }
}

#[test]
fn every_flipped_byte_of_a_checkpoint_is_noticed() {
    let (folder, store) = store();
    let tensors = vec![floats("weight", &[1.0, 2.0])];
    store
        .write("step-00000001", vec![(MODEL.to_owned(), tensors)], meta(1))
        .unwrap();
    let path = |file: &str| folder.path().join("step-00000001").join(file);
    for file in [MODEL, MANIFEST] {
        let whole = fs::read(path(file)).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x11;
            fs::write(path(file), bytes).unwrap();
            let version = file == MANIFEST && in_version(&whole, at);
            match store.read("step-00000001") {
                Err(error) => assert!(error.to_string().contains(file) || file == MANIFEST, "{error}"),
                // Only the name of the version that wrote it, which decides nothing, and white space may differ.
                Ok(found) => assert!(version && found.meta.get() == meta(1).get(), "{file} at {at}"),
            }
        }
        fs::write(path(file), whole).unwrap();
    }
}

/// Whether a byte belongs to the version of Grampus.
fn in_version(manifest: &[u8], at: usize) -> bool {
    let text = std::str::from_utf8(manifest).unwrap();
    let start = text.find("\"grampus\"").unwrap();
    (start..start + text[start..].find('\n').unwrap()).contains(&at)
}

#[test]
fn odd_manifests_are_refused() {
    let of = |files: serde_json::Value| {
        let meta = "{}";
        let text = json!({ "format": 1, "grampus": "", "files": files, "meta_crc32c": format!("{:08x}", crc32c::crc32c(meta.as_bytes())) });
        let text = text.to_string();
        format!("{},\"meta\":{meta}}}", &text[..text.len() - 1])
    };
    assert!(Manifest::parse(of(json!({})).as_bytes()).is_ok());
    for name in [
        "../model.safetensors",
        "/etc/passwd",
        "",
        ".safetensors",
        "a/b.safetensors",
        "model.pt",
    ] {
        let text = of(json!({ name: { "bytes": 1, "crc32c": "00000000" } }));
        assert!(
            matches!(Manifest::parse(text.as_bytes()), Err(ManifestError::File(_))),
            "{name}"
        );
    }
    for checksum in ["", "+0000001", "123456789", "0000000g"] {
        let text = of(json!({ MODEL: { "bytes": 1, "crc32c": checksum } }));
        assert!(
            matches!(Manifest::parse(text.as_bytes()), Err(ManifestError::Shape(_))),
            "{checksum}"
        );
    }
    assert!(matches!(
        Manifest::parse(br#"{"format": 2, "x": 1}"#),
        Err(ManifestError::Format(2))
    ));
    assert!(matches!(
        Manifest::parse(&vec![b'['; 1 << 20]),
        Err(ManifestError::Shape(_))
    ));
}

#[test]
fn a_manifest_that_promises_more_than_there_is_costs_nothing() {
    let (folder, store) = store();
    write(&store, 1);
    let path = folder.path().join("step-00000001").join(MANIFEST);
    let mut manifest: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    manifest["files"][MODEL]["bytes"] = json!(u64::MAX);
    fs::write(&path, manifest.to_string()).unwrap();
    let error = store.read("step-00000001").unwrap_err().to_string();
    assert!(error.contains("bytes, not 18446744073709551615"), "{error}");
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let (folder, store) = store();
    write(&store, 1);
    let path = folder.path().join("step-00000001").join(MODEL);
    fs::remove_file(&path).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let error = store.read("step-00000001").unwrap_err().to_string();
    assert!(error.contains("it is no file"), "{error}");
    assert!(Path::new(&path).exists());
}

proptest! {
    #[test]
    fn any_bytes_as_a_manifest(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Manifest::parse(&bytes).is_err());
    }

    #[test]
    fn any_header_is_refused_or_makes_tensors_within_the_file(
        header in "\\{(\"[ab]\":\\{\"dtype\":\"(U8|F32|F4)\",\"shape\":\\[[0-9]{0,2}\\],\"data_offsets\":\\[[0-9],[0-9]\\]\\},?){0,2}\\}",
        data in 0_usize..12,
    ) {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        if let Ok(total) = read_bytes(&bytes) {
            prop_assert_eq!(total, data);
        }
    }
}
