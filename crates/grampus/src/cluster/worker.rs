//! A worker: takes tasks until the job is over.

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use grampus_cluster::Payload;
use grampus_cluster::agent::{self, Agent, Assignment, Introduction, Way, Work};
use grampus_collective::{Card, CollectiveError, GroupId, Lobby, Losses, Settings};
use grampus_core::{Failure, JoinString, Outcome, TaskId, WorkerId};
use grampus_net::local_address_for;
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

struct Worker {
    agent: Arc<Agent>,
    lobby: Lobby,
    /// The running task is to end.
    cancelled: Arc<AtomicBool>,
    losses: Losses,
    here: Whereabouts,
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
    let address = local_address_for(&join.address).map_err(|error| error.to_string())?;
    let lobby = Lobby::open(join.job, join.key.clone(), &host, address).map_err(|error| error.to_string())?;
    let (cancelled, losses) = (Arc::new(AtomicBool::new(false)), Losses::default());
    let (on_cancel, on_lost) = (Arc::clone(&cancelled), losses.clone());
    let introduction = Introduction {
        worker: WorkerId(number(worker)?),
        slot: Some(number(slot)? as u32),
        ranks: 1,
        node: false,
        host,
        card: lobby.card().to_bytes(),
        silent_after: Duration::from_millis(number(silent_after)?),
        on_cancel: Box::new(move |_| on_cancel.store(true, Ordering::Release)),
        on_rank_lost: Box::new(move |task, rank| on_lost.lost(format!("task {task}"), rank.0)),
        on_inspect: Box::new(|_| Vec::new()),
        on_lost: Box::new(agent::leave),
    };
    let agent = Agent::join(Way::Connect(join), introduction).map_err(|error| error.to_string())?;
    Ok(Worker {
        agent: Arc::new(agent),
        lobby,
        cancelled,
        losses,
        here: Whereabouts::default(),
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
        self.cancelled.store(false, Ordering::Release);
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
        let cancelled = Arc::clone(&self.cancelled);
        let gives_up = Arc::new(move || cancelled.load(Ordering::Acquire));
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
        let group = GroupId {
            name: format!("task {id}"),
            generation: 1,
        };
        let hope = || match self.cancelled.load(Ordering::Acquire) {
            true => Err(CollectiveError::Form {
                why: "it was interrupted".into(),
            }),
            false => self.losses.hope(&group.name),
        };
        let formed = self.lobby.form_while(
            &group,
            rank as usize,
            &cards,
            &labels,
            &Settings::default(),
            &hope,
        )?;
        self.losses.formed(&group.name, formed.notice());
        Ok(formed)
    }
}
