//! The examples as a user runs them: alone, and as ranks of `grampus run` on one node and on two.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says so"
)]

#[path = "common/children.rs"]
mod children;
#[path = "common/files.rs"]
mod files;
#[path = "common/processes.rs"]
mod processes;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use children::finish;
use files::{Scratch, write_parquet};
use grampus::train::checkpoint::read_tensors;
use grampus_core::{Clock, SystemClock, Time};
use grampus_net::{Reservation, local_address_towards};
use processes::{descendants, lives, workers};

/// No run may take longer than this.
const LIMIT: Duration = Duration::from_secs(50);
const DATA: &str = "/usr/share/datasets/fashion-mnist";

/// An example, which cargo builds before its tests.
fn example(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let folder = here.parent().and_then(Path::parent).unwrap();
    folder.join("examples").join(name)
}

fn start(scratch: &Scratch, program: &Path, words: &[&str]) -> Child {
    // A background job of a shell ignores Ctrl-C, and so would its children.
    Command::new("env")
        .arg("--default-signal=INT")
        .arg(program)
        .args(words)
        .env("XDG_RUNTIME_DIR", scratch.path(""))
        .env("HOME", scratch.path(""))
        .current_dir(scratch.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn ended(child: Child) -> Output {
    finish(child, LIMIT)
}

/// What it printed.
fn said(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether Fashion-MNIST is there; where it must be, it is.
fn has_pictures() -> bool {
    let found = Path::new(DATA).exists();
    assert!(
        found || std::env::var_os("GRAMPUS_REQUIRE_DATA").is_none(),
        "{DATA} is missing"
    );
    found
}

#[test]
fn pictures_have_the_same_weights_however_the_program_was_started() {
    if !has_pictures() {
        return;
    }
    let scratch = Scratch::new();
    let program = example("fashion_mnist");
    let grampus = Path::new(env!("CARGO_BIN_EXE_grampus"));
    let words = |file: &str| -> Vec<String> {
        let fixed = ["--workers", "2", "--rows", "320", "--epochs", "2", "--save"];
        fixed
            .into_iter()
            .map(str::to_owned)
            .chain([scratch.path(file)])
            .collect()
    };
    let alone = words("alone.safetensors");
    let alone: Vec<&str> = alone.iter().map(String::as_str).collect();
    let printed = said(&ended(start(&scratch, &program, &alone)));
    assert!(
        printed.starts_with("accuracy 0.") && printed.ends_with("on 320 rows\n"),
        "{printed}"
    );
    let wanted = read_tensors(&scratch.path("alone.safetensors")).unwrap().0;

    let ranks = words("ranks.safetensors");
    let mut command = vec!["run", "-n", "2", program.to_str().unwrap()];
    command.extend(ranks.iter().map(String::as_str));
    let ranked = said(&ended(start(&scratch, grampus, &command)));
    assert_eq!(ranked, format!("[rank 0] {printed}"));
    assert_eq!(
        read_tensors(&scratch.path("ranks.safetensors")).unwrap().0,
        wanted
    );

    let nodes = words("nodes.safetensors");
    let reserved = Reservation::take(local_address_towards("127.0.0.1").unwrap()).unwrap();
    let endpoint = format!("127.0.0.1:{}", reserved.port());
    let mut command = vec!["run", "--nnodes", "2", "-n", "1", "--rdzv-endpoint", &endpoint];
    command.push(program.to_str().unwrap());
    command.extend(nodes.iter().map(String::as_str));
    let both = [0, 1].map(|_| start(&scratch, grampus, &command));
    let told: Vec<String> = both.map(|node| said(&ended(node))).to_vec();
    assert_eq!(told.concat(), format!("[rank 0] {printed}"));
    assert_eq!(
        read_tensors(&scratch.path("nodes.safetensors")).unwrap().0,
        wanted
    );
}

#[test]
fn the_program_of_the_guide_is_the_one_that_runs() {
    let program = include_str!("../examples/quickstart.rs");
    let pages = [
        include_str!("../../../README.md"),
        include_str!("../../../docs/rust.md"),
    ];
    assert!(pages.iter().all(|page| page.contains(program)));
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("data")).unwrap();
    write_parquet(&scratch.path("data/0.parquet"), 0, 100);
    let output = ended(start(&scratch, &example("quickstart"), &[]));
    let printed = said(&output);
    assert!(printed.contains("2 epochs done\nSome(0."), "{printed}");
    assert!(Path::new(&scratch.path("model.safetensors")).exists());
}

/// A long run, once it trains.
fn training(scratch: &Scratch) -> Child {
    let rows = scratch.path("rows.parquet");
    write_parquet(&rows, 0, 2000);
    let words = [
        &rows,
        "--features",
        "a,b,c",
        "--label",
        "class",
        "--classes",
        "4",
        "--epochs",
        "100000",
    ];
    let child = start(scratch, &example("tabular"), &words);
    let clock = SystemClock::start();
    while workers(child.id()).len() < 2 {
        assert!(clock.now().since(Time::ZERO) < LIMIT, "it does not train");
        std::thread::park_timeout(Duration::from_millis(10));
    }
    child
}

#[test]
fn a_program_that_is_killed_or_interrupted_leaves_nothing() {
    for signal in [rustix::process::Signal::KILL, rustix::process::Signal::INT] {
        let scratch = Scratch::new();
        let child = training(&scratch);
        let started = descendants(child.id());
        assert!(started.len() >= 3, "{started:?}");
        let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        assert!(!ended(child).status.success());
        let clock = SystemClock::start();
        let left = || {
            started.iter().filter(|pid| lives(**pid)).count() > 0
                || Path::new(&scratch.path("grampus")).exists()
        };
        while left() {
            assert!(
                clock.now().since(Time::ZERO) < LIMIT,
                "something is left after {signal:?}"
            );
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_table_is_learnt_from_memory_and_from_files() {
    let scratch = Scratch::new();
    for part in 0..2 {
        write_parquet(&scratch.path(&format!("{part}.parquet")), part * 100, 100);
    }
    let files = scratch.path("*.parquet");
    let fixed = [
        &files,
        "--features",
        "a,b,c",
        "--label",
        "class",
        "--classes",
        "4",
        "--epochs",
        "2",
    ];
    for more in [&[][..], &["--window", "1"]] {
        let printed = said(&ended(start(
            &scratch,
            &example("tabular"),
            &[&fixed, more].concat(),
        )));
        assert!(printed.contains("2 epochs done: accuracy 0."), "{printed}");
        assert!(printed.contains("800 scores for 200 rows"), "{printed}");
    }
}

/// Pictures of 32 x 32 as PNG files, in a column `image`, and their classes in a column `label`.
fn write_pictures(path: &str, rows: usize) {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, BinaryArray, Int64Array, RecordBatch};
    use grampus::data::{Table, table::parquet};

    let files: Vec<Vec<u8>> = (0..rows).map(|row| picture(row as u8)).collect();
    let images: ArrayRef = Arc::new(BinaryArray::from_iter_values(files));
    let labels: ArrayRef = Arc::new(Int64Array::from_iter_values(
        (0..rows).map(|row| (row % 10) as i64),
    ));
    let batch = RecordBatch::try_from_iter([("image", images), ("label", labels)]).unwrap();
    let table = Table::new(batch.schema(), vec![batch]).unwrap();
    parquet::write(&table, Path::new(path)).unwrap();
}

fn picture(row: u8) -> Vec<u8> {
    use image::{ExtendedColorType, ImageEncoder, codecs::png::PngEncoder};
    let pixels: Vec<u8> = (0..32 * 32 * 3)
        .map(|at| (at as u8).wrapping_mul(row + 3))
        .collect();
    let mut file = Vec::new();
    PngEncoder::new(&mut file)
        .write_image(&pixels, 32, 32, ExtendedColorType::Rgb8)
        .unwrap();
    file
}

#[test]
fn pictures_are_decoded_while_a_resnet_trains() {
    let scratch = Scratch::new();
    let files = scratch.path("pictures.parquet");
    write_pictures(&files, 8);
    let words = [&files, "--batch-size", "4", "--max-steps", "1"];
    let printed = said(&ended(start(&scratch, &example("cifar10"), &words)));
    assert_eq!(printed, "max_steps=1 step done\n");
}

#[test]
fn words_are_learnt() {
    let scratch = Scratch::new();
    let printed = said(&ended(start(&scratch, &example("text"), &[])));
    let accuracy: f64 = printed.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(accuracy > 0.9, "{printed}");
    assert!(printed.ends_with("on 600 texts of 44 words\n"), "{printed}");
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let scratch = Scratch::new();
    let output = ended(start(
        &scratch,
        &example("tabular"),
        &[
            "/nowhere/x.parquet",
            "--features",
            "a",
            "--label",
            "b",
            "--classes",
            "2",
        ],
    ));
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("/nowhere/x.parquet"), "{errors}");
}

#[test]
fn no_python_is_linked() {
    let listed = Command::new("ldd")
        .arg(example("fashion_mnist"))
        .output()
        .unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains("libc.so") && !listed.contains("python"),
        "{listed}"
    );
}
