//! `grampus status`, `grampus logs` and `grampus doctor`, as a user calls them, over jobs that the test makes up.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test and its helpers")]

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use grampus_cluster::driver::{JobStatus, read_status};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(30);

/// A user's runtime folder.
struct Home(TempDir);

/// A job in it; alive as long as the lock is held.
struct Job {
    dir: PathBuf,
    lock: Option<File>,
}

impl Home {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
        Self(dir)
    }

    /// A job whose ranks have each written a few lines.
    fn job(&self, id: &str, title: &str, ranks: u32) -> Job {
        let dir = self.0.path().join("grampus").join(id);
        fs::create_dir_all(dir.join("logs")).unwrap();
        let lock = File::create(dir.join("lock")).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        let member = |slot| json!({"slot": slot, "rank": slot, "ranks": 1, "pid": 4000 + slot, "host": "node1", "state": "in"});
        let status: JobStatus = serde_json::from_value(json!({
            "job": id, "title": title, "pid": std::process::id(), "started": 1_000_000_000, "phase": "running",
            "why": "task 1 runs", "generation": 1, "logs": dir.join("logs"), "wanted": ranks,
            "members": (0..ranks).map(member).collect::<Vec<Value>>(),
        }))
        .unwrap();
        fs::write(dir.join("status.json"), serde_json::to_vec(&status).unwrap()).unwrap();
        assert!(read_status(&dir).is_some());
        let job = Job {
            dir,
            lock: Some(lock),
        };
        for rank in 0..ranks {
            job.log(rank, &format!("first {rank}\nsecond {rank}\nthird {rank}\n"));
        }
        job
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_grampus"));
        command.args(arguments).env("XDG_RUNTIME_DIR", self.0.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        finished(self.command(arguments).spawn().unwrap())
    }
}

impl Job {
    fn log(&self, rank: u32, text: &str) {
        let path = self.dir.join(format!("logs/rank-{rank}.log"));
        let mut file = File::options().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// As a driver does at its end.
    fn end(&mut self) {
        fs::remove_dir_all(&self.dir).unwrap();
        self.lock = None;
    }
}

/// Exit code and output, within the deadline.
fn finished(child: Child) -> (i32, String, String) {
    let output = output(child);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn output(child: Child) -> Output {
    let pid = Pid::from_child(&child);
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || send.send(child.wait_with_output()));
    receive
        .recv_timeout(DEADLINE)
        .map(Result::unwrap)
        .unwrap_or_else(|_| {
            kill_process(pid, Signal::KILL).unwrap();
            panic!("the command took too long");
        })
}

/// The lines of a command that goes on, each within the deadline.
fn lines_of(child: &mut Child) -> impl FnMut() -> String + use<> {
    let output = BufReader::new(child.stdout.take().unwrap());
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        output
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| send.send(line))
    });
    move || receive.recv_timeout(DEADLINE).unwrap()
}

#[test]
fn nothing_runs() {
    let home = Home::new();
    assert_eq!(
        home.run(&["status"]),
        (0, "no jobs run here\n".into(), String::new())
    );
    assert_eq!(home.run(&["status", "--json"]), (0, "[]\n".into(), String::new()));
    let (code, out, err) = home.run(&["logs"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.starts_with("grampus: no jobs run here: "));
}

#[test]
fn a_job_whose_driver_was_killed_does_not_run() {
    let home = Home::new();
    let job = home.job("aaaa000000000001", "train.py", 1);
    // Closing would not do: a child that another test forks just now has a copy of the descriptor.
    flock(job.lock.as_ref().unwrap(), FlockOperation::Unlock).unwrap();
    assert_eq!(home.run(&["status"]).1, "no jobs run here\n");
}

#[test]
fn a_job_that_has_not_yet_said_what_it_is_is_left_out() {
    let home = Home::new();
    let job = home.job("aaaa000000000001", "train.py", 1);
    fs::remove_file(job.dir.join("status.json")).unwrap();
    assert_eq!(home.run(&["status"]).1, "no jobs run here\n");
}

#[test]
fn the_only_job_is_shown_with_its_members() {
    let home = Home::new();
    let _job = home.job("3f2a91c000000000", "train.py --epochs 3", 2);
    let (code, out, err) = home.run(&["status"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let rows: Vec<Vec<&str>> = out
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        ["JOB", "PHASE", "WORKERS", "GEN", "SINCE", "PID", "COMMAND"]
    );
    assert_eq!(rows[1][..4], ["3f2a91c0", "running", "2/2", "1"]);
    assert_eq!(rows[1][6..], ["train.py", "--epochs", "3"]);
    assert_eq!(rows[2], ["task", "1", "runs"]);
    assert_eq!(rows[5], ["1", "4001", "node1", "in"]);
    assert!(!out.contains('\x1b'));
}

#[test]
fn members_of_several_jobs_are_shown_when_asked_for() {
    let home = Home::new();
    let _jobs = [
        home.job("aaaa000000000001", "one", 2),
        home.job("bbbb000000000001", "two", 3),
    ];
    assert_eq!(home.run(&["status"]).1.lines().count(), 5);
    assert_eq!(home.run(&["status", "--members"]).1.lines().count(), 5 + 3 + 4);
    let jobs: Value = serde_json::from_str(&home.run(&["status", "--json"]).1).unwrap();
    assert_eq!(jobs[1]["title"], "two");
    assert_eq!(jobs[1]["members"][2]["pid"], 4002);
}

#[test]
fn a_job_of_another_version_hides_no_other() {
    let home = Home::new();
    let (odd, _good) = (
        home.job("aaaa000000000001", "one", 1),
        home.job("bbbb000000000001", "two", 1),
    );
    fs::write(odd.dir.join("status.json"), "{\"job\": 7").unwrap();
    let (code, out, _) = home.run(&["status"]);
    assert!(code == 0 && out.contains("bbbb0000") && !out.contains("aaaa"));
}

#[test]
fn the_last_lines_of_every_rank_are_behind_its_number() {
    let home = Home::new();
    let _job = home.job("aaaa000000000001", "train.py", 2);
    let wanted = "[rank 0] second 0\n[rank 0] third 0\n[rank 1] second 1\n[rank 1] third 1\n";
    assert_eq!(home.run(&["logs", "-n", "2"]), (0, wanted.into(), String::new()));
    assert_eq!(
        home.run(&["logs", "-n", "1", "--rank", "1"]).1,
        "[rank 1] third 1\n"
    );
    assert_eq!(home.run(&["logs", "aaaa", "--rank", "0"]).1.lines().count(), 3);
}

#[test]
fn wrong_use_of_logs_is_told_what_to_do() {
    let home = Home::new();
    let ids = ["aaaa000000000001", "aaaa000000000002", "bbbb000000000001"];
    let _jobs = ids.map(|id| home.job(id, &format!("{id}.py"), 2));
    let error = |arguments: &[&str]| {
        let (code, out, err) = home.run(arguments);
        assert_eq!((code, out.as_str()), (1, ""));
        err
    };
    assert!(
        error(&["logs"]).starts_with("grampus: 3 jobs run here, name one of them:\n  aaaa000000000001  aaaa")
    );
    let both = error(&["logs", "aaaa"]);
    assert!(both.contains("2 jobs begin with `aaaa`, give more of the id") && !both.contains("bbbb"));
    assert!(error(&["logs", "ffff"]).contains("no job begins with `ffff`, these run here:"));
    let rank = error(&["logs", "bbbb", "--rank", "7"]);
    assert!(rank.contains("no log of rank 7") && rank.ends_with("on this host are 0, 1\n"));
    assert_eq!(home.run(&["logs", "bbbb", "--rank", "x"]).0, 2);
}

#[test]
fn following_shows_new_lines_and_ranks_and_ends_with_the_job() {
    let home = Home::new();
    let mut job = home.job("aaaa000000000001", "train.py", 1);
    let mut child = home.command(&["logs", "-f", "-n", "1"]).spawn().unwrap();
    let mut line = lines_of(&mut child);
    assert_eq!(line(), "[rank 0] third 0");
    job.log(0, "fourth");
    job.log(0, " 0\n");
    assert_eq!(line(), "[rank 0] fourth 0");
    job.log(5, "late\n");
    assert_eq!(line(), "[rank 5] late");
    job.log(5, "last words, without an end");
    job.end();
    assert_eq!(line(), "[rank 5] last words, without an end");
    let (code, _, err) = finished(child);
    assert_eq!((code, err.as_str()), (0, "grampus: the job is over\n"));
}

#[test]
fn an_interrupt_ends_what_goes_on() {
    let home = Home::new();
    let _job = home.job("aaaa000000000001", "train.py", 1);
    for arguments in [&["logs", "--follow"][..], &["status", "--watch"]] {
        let mut child = home.command(arguments).spawn().unwrap();
        lines_of(&mut child)();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(output(child).status.signal(), Some(Signal::INT.as_raw()));
    }
}

#[test]
fn watching_goes_on() {
    let home = Home::new();
    let mut job = home.job("aaaa000000000001", "train.py", 1);
    let mut child = home.command(&["status", "--watch"]).spawn().unwrap();
    let mut line = lines_of(&mut child);
    assert!(line().starts_with("JOB "));
    job.end();
    while line() != "no jobs run here" {}
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(home.run(&["status", "--watch", "--json"]).0, 2);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let home = Home::new();
    let job = home.job("aaaa000000000001", "train.py", 1);
    job.log(0, &"many lines\n".repeat(100_000));
    let mut child = home.command(&["logs", "-n", "200000"]).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 10]).unwrap();
    let (code, _, err) = finished(child);
    assert_eq!((code, err.as_str()), (0, ""));
}

/// A `python3` that answers like this, alone in its folder.
fn fake_python(folder: &Path, answer: &str) {
    let path = folder.join("python3");
    fs::write(&path, format!("#!/bin/sh\necho '{answer}'\n")).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
}

fn doctor(home: &Home, path: &Path, variables: &[(&str, &str)]) -> (i32, Value) {
    let mut command = home.command(&["doctor", "--json"]);
    command
        .env("PATH", path)
        .env_remove("OMP_NUM_THREADS")
        .envs(variables.iter().copied());
    let (code, out, err) = finished(command.spawn().unwrap());
    assert_eq!(err, "");
    (code, serde_json::from_str(&out).unwrap())
}

fn level(report: &Value, name: &str) -> String {
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == name).unwrap();
    let level = check["level"].as_str().unwrap().to_owned();
    // Whoever reads it must learn what to do.
    assert_eq!(check["advice"].is_string(), level == "warn" || level == "fail");
    level
}

#[test]
fn the_doctor_looks_at_the_machine_and_leaves_nothing() {
    let home = Home::new();
    let empty = tempfile::tempdir().unwrap();
    let (code, report) = doctor(&home, empty.path(), &[("OMP_NUM_THREADS", "100000")]);
    assert_eq!(code, i32::from(report["ok"] == false));
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(level(&report, "runtime folder"), "ok");
    assert_eq!(level(&report, "cores"), "warn");
    assert_eq!(
        (level(&report, "Python"), level(&report, "Java")),
        ("warn".into(), "note".into())
    );
    assert_eq!(fs::read_dir(home.0.path()).unwrap().count(), 0);
}

#[test]
fn the_doctor_fails_where_jobs_cannot_run() {
    let home = Home::new();
    let folder = tempfile::tempdir().unwrap();
    fake_python(
        folder.path(),
        r#"{"path": "/p", "version": [3, 12, 1], "grampus": "0.0.0", "packages": {"cloudpickle": "3", "torch": "2.9"}}"#,
    );
    let (code, report) = doctor(&home, folder.path(), &[]);
    assert_eq!((code, level(&report, "grampus")), (1, "fail".into()));
    assert_eq!(
        (level(&report, "Python"), level(&report, "frameworks")),
        ("ok".into(), "ok".into())
    );
    fake_python(folder.path(), r#"{"path": "/p", "version": [3, 8, 1]}"#);
    assert_eq!(level(&doctor(&home, folder.path(), &[]).1, "Python"), "fail");
    fs::write(folder.path().join("python3"), "#!/bin/sh\nexit 3\n").unwrap();
    assert_eq!(level(&doctor(&home, folder.path(), &[]).1, "Python"), "fail");
}

#[test]
fn the_doctor_names_a_runtime_folder_that_is_open_or_too_long() {
    let home = Home::new();
    let empty = tempfile::tempdir().unwrap();
    let long = home.0.path().join("x".repeat(100));
    fs::create_dir(&long).unwrap();
    fs::set_permissions(&long, Permissions::from_mode(0o700)).unwrap();
    let (code, report) = doctor(
        &home,
        empty.path(),
        &[("XDG_RUNTIME_DIR", long.to_str().unwrap())],
    );
    assert_eq!((code, level(&report, "runtime folder")), (1, "fail".into()));
    fs::set_permissions(&long, Permissions::from_mode(0o755)).unwrap();
    let (_, report) = doctor(
        &home,
        empty.path(),
        &[("XDG_RUNTIME_DIR", long.to_str().unwrap())],
    );
    assert_eq!(level(&report, "runtime folder"), "warn");
}

#[test]
fn the_doctor_speaks_to_people_too() {
    let home = Home::new();
    let empty = tempfile::tempdir().unwrap();
    let mut command = home.command(&["doctor"]);
    command.env("PATH", empty.path()).env("OMP_NUM_THREADS", "100000");
    let (_, out, _) = finished(command.spawn().unwrap());
    assert!(
        out.contains("\nwarn  cores ") && out.contains("→ unset OMP_NUM_THREADS") && !out.contains('\x1b')
    );
    assert!(out.ends_with("warnings\n"));
}
