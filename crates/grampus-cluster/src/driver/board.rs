//! Where the driver's thread leaves news for the user's thread.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use grampus_core::{Clock, Rank, SystemClock, TaskFailure, TaskId};

use super::TaskEnd;
use super::output::Line;
use super::reports::Reports;

/// Lines kept for a user's thread that does not fetch them; older ones are in the log files.
const KEPT_LINES: usize = 10_000;
const KEPT_BYTES: usize = 16 << 20;
/// Notes kept for it; a stranger who knocks at the door all day must not fill the memory.
const KEPT_NOTES: usize = 10;

/// News: ends of tasks, what they report before, lines of output, and whether the job is ready or over.
#[derive(Default)]
pub struct Board {
    news: Mutex<News>,
    changed: Condvar,
}

#[derive(Default)]
struct News {
    ended: HashMap<TaskId, TaskEnd>,
    /// Tasks whose end nobody will ask for.
    forgotten: HashSet<TaskId>,
    /// Of tasks that somebody waits for.
    reports: HashMap<TaskId, Reports>,
    lines: VecDeque<Line>,
    bytes: usize,
    skipped: u64,
    notes: Vec<String>,
    more_notes: u64,
    /// Ranks of the newest generation, once there is one.
    world: Option<u32>,
    /// Why it ends or has ended.
    ending: Option<String>,
    over: bool,
}

impl News {
    /// The end of a task that can have no other any more: everything is over.
    fn lost(&self) -> Option<TaskEnd> {
        let why = self.ending.clone().unwrap_or_default();
        let failure = TaskFailure::Cluster { why };
        self.over.then_some(TaskEnd::Failed {
            failure,
            raised: None,
        })
    }
}

/// What a wait brought.
#[derive(Default)]
pub struct Happened {
    /// Lines of output since the last call.
    pub lines: Vec<Line>,
    /// Lines that were dropped because nobody fetched them.
    pub skipped: u64,
    /// What a person should know.
    pub notes: Vec<String>,
    /// What the task that was waited for reported since the last call, and who did, in the order in which it came. The last of it
    /// is here before, or together with, the end.
    pub reports: Vec<(Rank, Bytes)>,
    /// Reports that were dropped because nobody fetched them; they were older than these.
    pub skipped_reports: u64,
    /// The end of the task that was waited for.
    pub end: Option<TaskEnd>,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, change: impl FnOnce(&mut News)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until `done` has an answer or the time is up.
    fn wait<T>(&self, within: Duration, mut done: impl FnMut(&mut News) -> Option<T>) -> Option<T> {
        let clock = SystemClock::start();
        let end = clock.now() + within;
        let mut news = self.lock();
        loop {
            if let Some(answer) = done(&mut news) {
                return Some(answer);
            }
            let left = end.since(clock.now());
            if left.is_zero() {
                return None;
            }
            news = self
                .changed
                .wait_timeout(news, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Waits for the end of a task, for a report of it or for output, whichever comes first. The end stays until it is forgotten: a
    /// caller may lose the answer, for example to Ctrl-C, and ask again.
    pub fn look_at(&self, task: TaskId, within: Duration) -> Happened {
        let found = self.wait(within, |news| {
            let end = news.ended.get(&task).cloned().or_else(|| news.lost());
            let reports = news.reports.remove(&task);
            (end.is_some() || reports.is_some() || !news.lines.is_empty()).then(|| {
                let (reports, skipped_reports) = reports.unwrap_or_default().take();
                Happened {
                    reports,
                    skipped_reports,
                    end,
                    ..take(news)
                }
            })
        });
        found.unwrap_or_default()
    }

    /// Nobody will ask for the end of this task any more; true where it has ended.
    pub fn forget(&self, task: TaskId) -> bool {
        let mut news = self.lock();
        news.reports.remove(&task);
        let ended = news.ended.remove(&task).is_some();
        if !ended {
            news.forgotten.insert(task);
        }
        ended
    }

    /// Output that nobody fetched yet.
    pub fn take_lines(&self) -> Happened {
        take(&mut self.lock())
    }

    /// Waits until everybody has joined (`Ok` with the number of ranks) or the job is over (`Err` with the reason); `None` when the
    /// time is up.
    pub fn wait_ready(&self, within: Duration) -> Option<Result<u32, String>> {
        self.wait(within, |news| match (news.over, news.world) {
            (true, _) => Some(Err(news.ending.clone().unwrap_or_default())),
            (false, Some(world)) => Some(Ok(world)),
            (false, None) => None,
        })
    }

    /// Why the job takes no more tasks, if so: it is over, or about to be.
    pub fn ending(&self) -> Option<String> {
        self.lock().ending.clone()
    }

    pub(super) fn wait_over(&self, within: Duration) -> bool {
        self.wait(within, |news| news.over.then_some(())).is_some()
    }

    pub(super) fn set_ready(&self, world: u32) {
        self.tell(|news| news.world = Some(world));
    }

    pub(super) fn set_ending(&self, why: &str) {
        self.tell(|news| {
            news.ending.get_or_insert_with(|| why.to_owned());
        });
    }

    pub(super) fn set_over(&self, why: &str) {
        self.set_ending(why);
        self.tell(|news| news.over = true);
    }

    pub(super) fn end(&self, task: TaskId, end: TaskEnd) {
        self.tell(|news| {
            if !news.forgotten.remove(&task) {
                news.ended.insert(task, end);
            }
        });
    }

    pub(super) fn add_report(&self, task: TaskId, rank: Rank, body: Bytes) {
        self.tell(|news| {
            if !news.forgotten.contains(&task) {
                news.reports.entry(task).or_default().push(rank, body);
            }
        });
    }

    pub(super) fn refuse(&self, task: TaskId) {
        let why = format!(
            "the cluster is not running: {}",
            self.ending().unwrap_or_default()
        );
        self.end(
            task,
            TaskEnd::Failed {
                failure: TaskFailure::Cluster { why },
                raised: None,
            },
        );
    }

    pub(super) fn add_note(&self, note: String) {
        self.tell(|news| match news.notes.len() {
            ..KEPT_NOTES => news.notes.push(note),
            _ => news.more_notes += 1,
        });
    }

    pub(super) fn add_lines(&self, lines: Vec<Line>) {
        if lines.is_empty() {
            return;
        }
        self.tell(|news| {
            news.bytes += lines.iter().map(|line| line.text.len()).sum::<usize>();
            news.lines.extend(lines);
            while news.lines.len() > KEPT_LINES || news.bytes > KEPT_BYTES {
                let Some(line) = news.lines.pop_front() else { break };
                news.bytes -= line.text.len();
                news.skipped += 1;
            }
        });
    }
}

fn take(news: &mut News) -> Happened {
    news.bytes = 0;
    let mut notes = std::mem::take(&mut news.notes);
    if news.more_notes > 0 {
        notes.push(format!(
            "and {} more like these",
            std::mem::take(&mut news.more_notes)
        ));
    }
    Happened {
        lines: news.lines.drain(..).collect(),
        skipped: std::mem::take(&mut news.skipped),
        notes,
        ..Happened::default()
    }
}
