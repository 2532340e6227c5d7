//! What `grampus status` shows: a small file in the job's folder, rewritten when something changed, by a thread of its own: a
//! folder that hangs holds up no job.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use grampus_core::JobId;
use serde::{Deserialize, Serialize};

use crate::coordinator::{Phase, State};

const FILE: &str = "status.json";

/// One job as it stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobStatus {
    /// Its id.
    pub job: String,
    /// What it runs.
    pub title: String,
    /// The driver's process.
    pub pid: u32,
    /// Seconds since 1970 at its start.
    pub started: u64,
    /// `starting`, `ready`, `running`, `cancelling`, `stopping` or `over`.
    pub phase: String,
    /// The coordinator's last sentence.
    pub why: String,
    /// Number of its newest generation.
    pub generation: u64,
    /// Where the logs of its ranks are.
    pub logs: PathBuf,
    /// How many members it is to have.
    pub wanted: u32,
    /// Its members.
    pub members: Vec<MemberStatus>,
}

/// One member as it stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its place.
    pub slot: u32,
    /// Its first rank; none where it is not in the newest generation.
    pub rank: Option<u32>,
    /// How many ranks it carries.
    pub ranks: u32,
    /// Its process.
    pub pid: u32,
    /// Its host.
    pub host: String,
    /// `starting`, `in` or `leaving`.
    pub state: String,
}

/// The part that never changes.
pub(super) struct Header {
    job: JobId,
    title: String,
    logs: PathBuf,
    started: u64,
}

impl Header {
    #[expect(
        clippy::disallowed_methods,
        reason = "the wall clock is shown to people, no decision is taken from it"
    )]
    pub(super) fn new(job: JobId, title: &str, logs: &Path) -> Self {
        let started = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO)
            .as_secs();
        Self {
            job,
            title: title.to_owned(),
            logs: logs.to_owned(),
            started,
        }
    }

    /// What the file is to hold.
    pub(super) fn text(&self, state: &State) -> Vec<u8> {
        // Names and numbers only: they have a text.
        serde_json::to_vec_pretty(&self.status(state)).unwrap_or_default()
    }

    fn status(&self, state: &State) -> JobStatus {
        let members = state.members().into_iter().map(|member| MemberStatus {
            slot: member.slot,
            rank: member.rank,
            ranks: member.ranks,
            pid: member.pid,
            host: member.host,
            state: member.state.to_owned(),
        });
        JobStatus {
            job: self.job.to_string(),
            title: self.title.clone(),
            pid: std::process::id(),
            started: self.started,
            phase: phase(state.phase()).to_owned(),
            why: state.why().to_owned(),
            generation: state.generation().number.0,
            logs: self.logs.clone(),
            wanted: state.wanted(),
            members: members.collect(),
        }
    }
}

/// The file, and the thread that writes it.
pub(super) struct StatusFile {
    texts: SyncSender<Vec<u8>>,
    /// Ends when the thread does.
    ended: Receiver<()>,
}

impl StatusFile {
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let (texts, queue) = sync_channel::<Vec<u8>>(1);
        let (ends, ended) = channel::<()>();
        let (path, fresh) = (dir.join(FILE), dir.join("status.new"));
        thread::Builder::new()
            .name("grampus-status".to_owned())
            .spawn(move || {
                let _ends = ends;
                while let Ok(text) = queue.recv() {
                    // A view for people: a full disk must not end the job.
                    if fs::write(&fresh, text).is_ok() {
                        let _ = fs::rename(&fresh, &path);
                    }
                }
            })?;
        Ok(Self { texts, ended })
    }

    /// Has the file written, whole or not at all; false where the folder has not taken the one before.
    pub(super) fn write(&self, text: Vec<u8>) -> bool {
        self.texts.try_send(text).is_ok()
    }

    /// From now on nothing is written, unless the folder hangs for longer.
    pub(super) fn close(self, within: Duration) {
        drop(self.texts);
        let _ = self.ended.recv_timeout(within);
    }
}

fn phase(phase: &Phase) -> &'static str {
    match phase {
        Phase::Forming { .. } => "starting",
        Phase::Ready => "ready",
        Phase::Running => "running",
        Phase::Leaving { .. } => "recovering",
        Phase::Cancelling { .. } => "cancelling",
        Phase::Stopping { .. } => "stopping",
        Phase::Over => "over",
    }
}

/// Reads the file of one job's folder.
pub fn read_status(dir: &Path) -> Option<JobStatus> {
    serde_json::from_slice(&fs::read(dir.join(FILE)).ok()?).ok()
}
