//! The processes of a group, as the test sees them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Set for processes that are members.
pub const MEMBER: &str = "GRAMPUS_FAULTS_MEMBER";
const FORMING: Duration = Duration::from_secs(20);

pub struct Process {
    child: Child,
    input: ChildStdin,
    heard: Receiver<String>,
    card: String,
}

impl Process {
    pub fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["member_process", "--exact", "--ignored", "--nocapture"])
            .env(MEMBER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, heard) = channel();
        std::thread::spawn(move || {
            // What the test harness itself prints is none of ours.
            for line in output.lines().map_while(Result::ok) {
                if let Some(at) = line.find('@') {
                    let _ = sender.send(line[at + 1..].to_owned());
                }
            }
        });
        let mut process = Self {
            input: child.stdin.take().unwrap(),
            child,
            heard,
            card: String::new(),
        };
        process.card = process.hear("card", FORMING);
        process
    }

    pub fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    /// The rest of the next line, which must begin with a word.
    pub fn hear(&mut self, word: &str, limit: Duration) -> String {
        match self.heard.recv_timeout(limit) {
            Ok(line) => match line.split_once(' ') {
                Some((first, rest)) if first == word => rest.to_owned(),
                _ => panic!("{word:?} was due, not {line:?}"),
            },
            Err(error) => panic!("{word:?} was due within {limit:?}: {error}\n{}", self.threads()),
        }
    }

    pub fn error(&mut self, limit: Duration) -> String {
        self.hear("error", limit)
    }

    /// What each thread does, and where it waits: all that can be known of one that hangs.
    fn threads(&self) -> String {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let about = |task: std::fs::DirEntry| {
            let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let state = read("status").lines().take(3).collect::<Vec<_>>().join(" ");
            format!("{state} {} {}\n", read("wchan"), read("syscall").trim_end())
        };
        tasks
            .into_iter()
            .flatten()
            .map_while(Result::ok)
            .map(about)
            .collect()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Lets it end by itself.
    pub fn exit(mut self) {
        self.tell("exit");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Team {
    members: Vec<Process>,
    silence: Duration,
    generation: u64,
}

impl Team {
    pub fn start(size: usize, silence: Duration) -> Self {
        Self {
            members: (0..size).map(|_| Process::start()).collect(),
            silence,
            generation: 0,
        }
    }

    /// Forms the group in a new generation. All members have made an all-reduce with the right result afterwards, and
    /// go on with calls that depend on the seed.
    pub fn form(&mut self, seed: u64) {
        self.form_with(seed, |_| ());
    }

    /// The same, with something to be heard between.
    pub fn form_with<R>(&mut self, seed: u64, between: impl FnOnce(&mut Self) -> R) -> R {
        self.generation += 1;
        let cards: Vec<&str> = self.members.iter().map(|member| member.card.as_str()).collect();
        let command = format!(
            "{} {} {seed} {}",
            self.generation,
            self.silence.as_millis(),
            cards.join(",")
        );
        for (rank, member) in self.members.iter_mut().enumerate() {
            member.tell(&format!("form {rank} {command}"));
        }
        let heard = between(self);
        for member in &mut self.members {
            member.hear("formed", FORMING);
        }
        heard
    }

    pub fn member(&mut self, rank: usize) -> &mut Process {
        &mut self.members[rank]
    }

    pub fn error(&mut self, rank: usize, limit: Duration) -> String {
        self.members[rank].error(limit)
    }

    pub fn signal(&self, rank: usize, signal: Signal) {
        self.members[rank].signal(signal);
    }

    /// A new process in the place of one that is returned.
    pub fn replace(&mut self, rank: usize) -> Process {
        std::mem::replace(&mut self.members[rank], Process::start())
    }
}
