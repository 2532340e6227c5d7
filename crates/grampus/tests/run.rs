//! `grampus run` with real programs, on one node.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says so"
)]

#[path = "common/children.rs"]
mod children;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use children::finish;
use grampus_core::{Clock, SystemClock, Time};

/// No test may take longer than this; each ends what it started.
const LIMIT: Duration = Duration::from_secs(30);

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        // A background job of a shell without job control ignores Ctrl-C, and so would all that it starts.
        // SAFETY: sets no handler, and no other thread does.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        let mut command = Command::new(env!("CARGO_BIN_EXE_grampus"));
        command
            .arg("run")
            .args(words)
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .env_remove("OMP_NUM_THREADS");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        finish(self.command(words).spawn().unwrap(), LIMIT)
    }

    /// What `grampus` itself may have left in its runtime folder.
    fn left(&self) -> Vec<PathBuf> {
        let root = self.path("grampus");
        fs::read_dir(root)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect()
    }
}

fn wait_for(what: impl Fn() -> bool) {
    let clock = SystemClock::start();
    while !what() {
        assert!(clock.now().since(Time::ZERO) < LIMIT, "it did not happen");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

fn lines(bytes: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = String::from_utf8_lossy(bytes)
        .lines()
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines
}

/// Processes whose arguments hold a word.
fn processes(word: &str) -> Vec<String> {
    let listed = fs::read_dir("/proc").unwrap().flatten();
    let lines = listed.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let texts = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    texts.filter(|line| line.contains(word)).collect()
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: a signal to a child of ours that has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

const SHOW: &str = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR";

#[test]
fn ranks_know_their_place_and_stand_before_their_lines() {
    let place = Place::new();
    let output = place.run(&["-n", "3", "sh", "-c", SHOW]);
    assert!(output.status.success());
    let wanted: Vec<String> = (0..3)
        .map(|rank| format!("[rank {rank}] {rank} 3 {rank} 3 0 127.0.0.1"))
        .collect();
    assert_eq!(lines(&output.stdout), wanted);
    assert!(place.left().is_empty());
}

#[test]
fn a_single_rank_has_no_prefix_and_its_streams_stay_apart() {
    let output = Place::new().run(&["sh", "-c", "echo out; echo err >&2"]);
    assert_eq!(
        (output.stdout.as_slice(), output.stderr.as_slice()),
        (&b"out\n"[..], &b"err\n"[..])
    );
}

#[test]
fn the_exit_code_is_that_of_the_first_failed_rank() {
    let place = Place::new();
    let script = r#"if [ $RANK = 1 ]; then echo "last words" >&2; exit 3; fi; sleep 60"#;
    let output = place.run(&["-n", "2", "sh", "-c", script]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3));
    assert!(
        said.contains("rank 1 on") && said.contains("exited with code 3"),
        "{said}"
    );
    // Shown as it came, and not again with the error.
    assert_eq!(said.matches("last words").count(), 1, "{said}");
    let output = place.run(&["-n", "2", "sh", "-c", "[ $RANK = 0 ] && kill -SEGV $$; sleep 60"]);
    assert_eq!(output.status.code(), Some(128 + 11));
    assert!(String::from_utf8_lossy(&output.stderr).contains("SIGSEGV"));
}

#[test]
fn all_ranks_are_started_again_as_often_as_allowed() {
    let place = Place::new();
    let count = place.path("count");
    let script = format!(
        "echo $TORCHELASTIC_RESTART_COUNT >> {}; [ $TORCHELASTIC_RESTART_COUNT = 2 ]",
        count.display()
    );
    let output = place.run(&["-n", "2", "--max-restarts", "2", "sh", "-c", &script]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(
        lines(&fs::read(&count).unwrap()).last().map(String::as_str),
        Some("2")
    );
    let output = place.run(&["--max_restarts=1", "sh", "-c", "exit 4"]);
    assert_eq!(output.status.code(), Some(4));
}

#[test]
fn a_failed_rank_gives_the_others_time_to_end_by_themselves() {
    let place = Place::new();
    let (saved, ready) = (place.path("saved"), place.path("ready"));
    let script = format!(
        "if [ $RANK = 0 ]; then trap 'echo yes > {saved}; exit 0' TERM; touch {ready}; while :; do sleep 0.05; done; fi
         while [ ! -e {ready} ]; do sleep 0.05; done; exit 1",
        saved = saved.display(),
        ready = ready.display()
    );
    let output = place.run(&["-n", "2", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(fs::read(saved).unwrap(), b"yes\n");
}

#[test]
fn logs_go_to_a_file_per_rank_and_only_there_if_so_asked() {
    let place = Place::new();
    let logs = place.path("logs");
    let folder = logs.to_str().unwrap();
    let script = "echo out $RANK; echo err $RANK >&2";
    let output = place.run(&["-n", "2", "--log-dir", folder, "-r", "1", "sh", "-c", script]);
    assert!(output.stdout.is_empty());
    assert_eq!(lines(&output.stderr), ["[rank 0] err 0", "[rank 1] err 1"]);
    assert_eq!(
        lines(&fs::read(logs.join("rank-1.log")).unwrap()),
        ["err 1", "out 1"]
    );
}

#[test]
fn logs_that_take_nothing_more_end_no_rank() {
    let place = Place::new();
    let (logs, done) = (place.path("logs"), place.path("done"));
    fs::create_dir(&logs).unwrap();
    std::os::unix::fs::symlink("/dev/full", logs.join("rank-0.log")).unwrap();
    let folder = logs.to_str().unwrap();
    let script = format!(
        "for line in 1 2 3; do echo $line; sleep 0.2; done; touch {}$RANK",
        done.display()
    );
    let words = ["-n", "2", "--log-dir", folder, "sh", "-c", &script];
    let output = place.run(&words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && both(&done), "{said}");
    let cannot = format!("cannot write {folder}/rank-0.log: No space left");
    let missing = format!("3 lines of rank 0 are missing in {folder}/rank-0.log");
    for words in [cannot, missing] {
        assert_eq!(said.matches(&words).count(), 1, "{said}");
    }
    assert_eq!(fs::read(logs.join("rank-1.log")).unwrap(), b"1\n2\n3\n");
    // The notes go to a full disk as well.
    (0..2).for_each(|rank| fs::remove_file(format!("{}{rank}", done.display())).unwrap());
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = finish(place.command(&words).stderr(full).spawn().unwrap(), LIMIT);
    assert!(output.status.success() && both(&done));
}

#[test]
fn logs_that_cannot_be_made_are_refused_at_the_start() {
    let place = Place::new();
    let (file, done) = (place.path("file"), place.path("done"));
    fs::write(&file, "").unwrap();
    let script = format!("touch {}", done.display());
    let output = place.run(&["--log-dir", file.to_str().unwrap(), "sh", "-c", &script]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("file/rank-0.log") && said.contains("log_dir"),
        "{said}"
    );
    assert!(!done.exists());
}

#[test]
fn what_cannot_run_is_said_before_anything_starts() {
    let place = Place::new();
    let refused = |words: &[&str], says: &str| {
        let output = place.run(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(says), "{said}");
    };
    refused(&["missing.py"], "there is no script missing.py in");
    refused(&["missing-program"], "there is no program missing-program");
    refused(&["-n", "0", "true"], "at least 1");
    refused(&["-n", "many", "true"], "must be a number");
    refused(&["-n", "-1", "true"], "must be a number");
    refused(&["--nnodes", "1:2", "true"], "a range of nodes is not supported");
    refused(&["--nnodes", "2", "true"], "--rdzv-endpoint");
    refused(
        &[
            "--nnodes",
            "2",
            "--node-rank",
            "2",
            "--rdzv-endpoint",
            "a",
            "true",
        ],
        "must be below",
    );
    refused(&["-r", "3", "true"], "--redirects needs --log-dir");
    refused(&["-n", "2"], "Usage");
}

/// Whether each of two ranks has made its file.
fn both(path: &Path) -> bool {
    (0..2).all(|rank| Path::new(&format!("{}{rank}", path.display())).exists())
}

#[test]
fn ranks_end_by_themselves_after_ctrl_c() {
    let place = Place::new();
    let (ready, saved) = (place.path("ready"), place.path("saved"));
    let script = format!(
        "trap 'sleep 2; touch {}$RANK; exit 0' INT; touch {}$RANK; while :; do sleep 0.1; done",
        saved.display(),
        ready.display()
    );
    let child = place.command(&["-n", "2", "sh", "-c", &script]).spawn().unwrap();
    wait_for(|| both(&ready));
    signal(&child, libc::SIGINT);
    let output = finish(child, LIMIT);
    assert_eq!(output.status.code(), Some(130));
    assert!(both(&saved));
    assert!(place.left().is_empty());
}

#[test]
fn a_second_ctrl_c_ends_everything_within_a_second() {
    let place = Place::new();
    let word = format!("ctrl-c-{}", std::process::id());
    let (ready, heard) = (place.path("ready"), place.path("heard"));
    let script = format!(
        ": {word}; trap 'touch {}$RANK' INT; touch {}$RANK; while :; do sleep 0.1; done",
        heard.display(),
        ready.display()
    );
    let child = place.command(&["-n", "2", "sh", "-c", &script]).spawn().unwrap();
    wait_for(|| both(&ready));
    signal(&child, libc::SIGINT);
    // Two that come together are one.
    wait_for(|| both(&heard));
    let clock = SystemClock::start();
    signal(&child, libc::SIGINT);
    let output = finish(child, LIMIT);
    assert!(clock.now().since(Time::ZERO) < Duration::from_secs(1));
    assert_eq!(output.status.code(), Some(130));
    wait_for(|| processes(&word).is_empty());
    assert!(place.left().is_empty());
}

#[test]
fn a_killed_command_leaves_nothing() {
    let place = Place::new();
    let word = format!("killed-{}", std::process::id());
    let ready = place.path("ready");
    // A grandchild that left its process group, which only a subreaper finds.
    let script = format!(
        ": {word}; setsid sh -c ': {word}; sleep 60' & touch {}$RANK; wait",
        ready.display()
    );
    let mut child = place.command(&["-n", "2", "sh", "-c", &script]).spawn().unwrap();
    wait_for(|| (0..2).all(|rank| Path::new(&format!("{}{rank}", ready.display())).exists()));
    wait_for(|| processes(&word).len() >= 4);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for(|| processes(&word).is_empty() && place.left().is_empty());
}
