//! A worker: takes tasks until the job is over.

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use grampus_cluster::Payload;
use grampus_cluster::agent::{self, Agent, Assignment, Introduction, Way, Work};
use grampus_collective::{Card, CollectiveError, GroupId, Lobby, Notice, Settings};
use grampus_core::{Failure, JoinString, Outcome, Rank, TaskId, WorkerId};
use grampus_train::native::{Event, Kept, RunError};
use grampus_train::whereabouts::Whereabouts;

use super::task::{self, Performed};

/// Where the supervisor has put what this worker needs to know, and where it listens for notices.
const SECRET: i32 = 3;
const NOTICE: i32 = 4;
/// How long to wait for work at a time; there may be none for days.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Works until the job is over; says with which code this process ends.
pub(super) fn serve() -> i32 {
    match joined() {
        Ok(mut worker) => worker.work(),
        Err(why) => {
            eprintln!("grampus: this worker cannot join: {why}");
            1
        }
    }
}

/// What the threads of a worker share.
#[derive(Default)]
struct Told {
    /// The running task is to end.
    cancelled: AtomicBool,
    news: Mutex<News>,
}

/// What is known of lost ranks.
#[derive(Default)]
struct News {
    /// The newest task of which a rank was lost, and that rank.
    lost: Option<(TaskId, Rank)>,
    /// The group of the newest task.
    formed: Option<(TaskId, Notice)>,
}

impl News {
    fn tell(&self) {
        if let (Some((task, rank)), Some((formed, notice))) = (&self.lost, &self.formed)
            && task == formed
        {
            notice.lost(rank.0);
        }
    }
}

impl Told {
    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rank_lost(&self, task: TaskId, rank: Rank) {
        let mut news = self.news();
        news.lost = Some((task, rank));
        news.tell();
    }

    fn formed(&self, task: TaskId, notice: Notice) {
        let mut news = self.news();
        news.formed = Some((task, notice));
        // It may have been lost while the group was being formed.
        news.tell();
    }

    fn lost_in(&self, task: TaskId) -> Option<Rank> {
        let lost = self.news().lost;
        lost.filter(|(known, _)| *known == task).map(|(_, rank)| rank)
    }
}

struct Worker {
    agent: Arc<Agent>,
    lobby: Lobby,
    told: Arc<Told>,
    here: Arc<Whereabouts>,
    kept: Option<Kept>,
    _notices: OwnedFd,
}

fn joined() -> Result<Worker, String> {
    // SAFETY: the supervisor has opened both for this process alone.
    let (secret, notices) = unsafe { (File::from_raw_fd(SECRET), OwnedFd::from_raw_fd(NOTICE)) };
    rustix::io::fcntl_setfd(&notices, rustix::io::FdFlags::CLOEXEC).map_err(|error| error.to_string())?;
    let mut text = String::new();
    let mut secret = secret;
    secret
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    let words: Vec<&str> = text.split('\0').collect();
    let [join, worker, slot, host, _threads, silent_after, ..] = words[..] else {
        return Err("its supervisor told it too little".to_owned());
    };
    let number = |word: &str| word.parse::<u64>().map_err(|error| error.to_string());
    let join: JoinString = join.parse().map_err(|error| format!("{error}"))?;
    let host = match host.is_empty() {
        true => grampus_cluster::host::name(),
        false => host.to_owned(),
    };
    let lobby = Lobby::open(join.job, join.key.clone(), &host).map_err(|error| error.to_string())?;
    let (told, here) = (Arc::new(Told::default()), Arc::new(Whereabouts::default()));
    let (on_cancel, on_lost) = (Arc::clone(&told), Arc::clone(&told));
    let introduction = Introduction {
        worker: WorkerId(number(worker)?),
        slot: Some(number(slot)? as u32),
        ranks: 1,
        node: false,
        host,
        card: lobby.card().to_bytes(),
        silent_after: Duration::from_millis(number(silent_after)?),
        on_cancel: Box::new(move |_| on_cancel.cancelled.store(true, Ordering::Release)),
        on_rank_lost: Box::new(move |task, rank| on_lost.rank_lost(task, rank)),
        on_inspect: Box::new(|_| Vec::new()),
        on_lost: Box::new(agent::leave),
    };
    let agent = Agent::join(Way::Connect(join), introduction).map_err(|error| error.to_string())?;
    Ok(Worker {
        agent: Arc::new(agent),
        lobby,
        told,
        here,
        kept: None,
        _notices: notices,
    })
}

impl Worker {
    fn work(&mut self) -> i32 {
        loop {
            match self.agent.next(PATIENCE) {
                None => {}
                Some(Work::Stop { .. } | Work::Lost { .. }) => return 0,
                Some(Work::Task(assignment)) => self.take(*assignment),
            }
        }
    }

    fn take(&mut self, assignment: Assignment) {
        let task = assignment.task.id;
        self.told.cancelled.store(false, Ordering::Release);
        let nothing = Payload::default();
        if !self.agent.begin(task) {
            return self.agent.finish(task, Outcome::Cancelled, nothing, false);
        }
        let done = self.perform(task, assignment);
        let told = self.agent.settle();
        match done {
            Ok(answer) => self.agent.finish(task, Outcome::Ok, answer, false),
            Err(_) if told => self.agent.finish(task, Outcome::Cancelled, nothing, false),
            Err(error) => {
                let failure = Failure::Raised {
                    kind: error.kind().to_owned(),
                    message: error.to_string(),
                    traceback: String::new(),
                    consequence: error.is_consequence(),
                };
                let outcome = Outcome::Failed {
                    local: 0,
                    pid: None,
                    failure,
                };
                self.agent.finish(task, outcome, nothing, false);
            }
        }
    }

    fn perform(&mut self, id: TaskId, assignment: Assignment) -> Result<Payload, RunError> {
        let (asked, state) = task::opened(&assignment.payload)?;
        let told = Arc::clone(&self.told);
        let gives_up = Arc::new(move || told.cancelled.load(Ordering::Acquire));
        let group = Arc::new(self.formed(id, &assignment)?);
        let leads = group.rank() == 0;
        let (agent, listener) = (Arc::clone(&self.agent), Arc::clone(&self.agent));
        let tell = move |event: &Event| {
            if let Ok(text) = serde_json::to_vec(event) {
                // Nobody hears of an event that is too large, and the run does not end for it.
                let _ = agent.report(id, Bytes::from(text));
            }
        };
        let performed = Performed {
            group,
            gives_up,
            tell: &tell,
            wants_to_stop: Box::new(move || listener.asked_to_yield().is_some()),
            here: &self.here,
            kept: &mut self.kept,
        };
        performed.perform(asked, state)?.sent(leads)
    }

    /// The group of all ranks of a task.
    fn formed(
        &self,
        id: TaskId,
        assignment: &Assignment,
    ) -> Result<grampus_collective::Group, CollectiveError> {
        let rank = assignment.places.first().map_or(0, |place| place.rank);
        let cards = assignment.cards.iter();
        let cards: Vec<Card> = cards
            .map(|(address, card)| Card::from_bytes(card).map(|card| card.at(address)))
            .collect::<Result<_, _>>()?;
        let labels: Vec<u32> = (0..cards.len() as u32).collect();
        let hope = || match self.told.lost_in(id) {
            _ if self.told.cancelled.load(Ordering::Acquire) => Err(CollectiveError::Form {
                why: "it was interrupted".into(),
            }),
            Some(rank) => Err(CollectiveError::Form {
                why: format!("rank {rank} was lost"),
            }),
            None => Ok(()),
        };
        let group = GroupId {
            name: format!("task {id}"),
            generation: 1,
        };
        let formed = self.lobby.form_while(
            &group,
            rank as usize,
            &cards,
            &labels,
            &Settings::default(),
            &hope,
        )?;
        self.told.formed(id, formed.notice());
        Ok(formed)
    }
}
