//! The driver's loop.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use grampus_core::{Clock, Rank, SystemClock, TaskFailure, TaskId, Time, ToCoordinator, ToWorker, WorkerId};
use grampus_net::Listener;
use tokio::sync::mpsc::UnboundedReceiver;

use super::board::Board;
use super::held::{Exited, Finished, Held};
use super::links::{LinkEvent, Links, Outbox};
use super::output::{Line, Lines};
use super::status::{Header, StatusFile};
use super::{Call, TaskEnd};
use crate::coordinator::{Action, Input, Options, Phase, State, Transition, step};
use crate::jobdir::JobDir;
use crate::launcher::{LaunchEvent, Launcher};
use crate::payload::Payload;
use crate::rankfile::{FileEvent, RankFiles, broken_log, refused_log};

/// How often time itself is an input, where nothing is due earlier.
const TICK: Duration = Duration::from_millis(250);
/// What the log files are waited for at the end of a task, as long as their disk keeps up: no sign of life comes late for it.
const LOG_WITHIN: Duration = Duration::from_millis(10);
/// How long the end waits for them.
const CLOSE_FILES_WITHIN: Duration = Duration::from_millis(500);
/// The status file is for people: often enough.
const STATUS_EVERY: Duration = Duration::from_millis(200);

pub(super) struct Core {
    /// Taken out only while a step is computed.
    state: Option<State>,
    launcher: Option<Box<dyn Launcher>>,
    board: Arc<Board>,
    header: Header,
    status: StatusFile,
    dir: JobDir,
    clock: SystemClock,
    links: Links,
    link_events: Option<UnboundedReceiver<LinkEvent>>,
    lines: Lines,
    held: Held,
    files: Option<RankFiles>,
    /// The function and arguments of tasks that are not over.
    payloads: HashMap<TaskId, Payload>,
    /// What ranks returned or raised so far.
    results: HashMap<TaskId, BTreeMap<Rank, Payload>>,
    /// The connection of a process that the coordinator decides about in this very step.
    newcomer: Option<(WorkerId, u64, Outbox)>,
    /// Messages of this step that could not be sent.
    unsent: Vec<(WorkerId, String)>,
    beat_every: Duration,
    next_look: Time,
    last_beat: Time,
    last_status: Time,
    stale_status: bool,
}

impl Core {
    pub(super) fn new(
        options: Options,
        launcher: Option<Box<dyn Launcher>>,
        board: Arc<Board>,
        (header, status): (Header, StatusFile),
        dir: JobDir,
        files: Option<RankFiles>,
    ) -> Self {
        let (links, link_events) = Links::new(options.silent_after);
        Self {
            beat_every: options.silent_after / 6,
            state: Some(State::new(options)),
            launcher,
            board,
            header,
            status,
            dir,
            clock: SystemClock::start(),
            links,
            link_events: Some(link_events),
            lines: Lines::default(),
            held: Held::default(),
            files,
            payloads: HashMap::new(),
            results: HashMap::new(),
            newcomer: None,
            unsent: Vec::new(),
            next_look: Time::ZERO,
            last_beat: Time::ZERO,
            last_status: Time::ZERO,
            stale_status: true,
        }
    }

    pub(super) async fn run(mut self, listener: Option<Listener>, mut calls: UnboundedReceiver<Call>) {
        let accepting = listener.map(|listener| self.links.listen(listener));
        let Some(mut link_events) = self.link_events.take() else {
            return;
        };
        self.make_files();
        self.feed(Input::Start);
        while !self.is_over() {
            tokio::select! {
                biased;
                Some(event) = link_events.recv() => self.link_event(event),
                call = calls.recv() => match call {
                    Some(call) => self.call(call),
                    None => drop(self.feed(Input::Stop { why: "the driver let go of its cluster".to_owned() })),
                },
                () = tokio::time::sleep(self.patience()) => {}
            }
            // Also between events: a steady stream of them must not keep deadlines from being seen.
            if self.clock.now() >= self.due() {
                self.tick();
            }
        }
        if let Some(accepting) = accepting {
            accepting.abort();
        }
        self.finish(calls).await;
    }

    fn is_over(&self) -> bool {
        self.state
            .as_ref()
            .is_none_or(|state| *state.phase() == Phase::Over)
    }

    /// When time itself is the next input.
    fn due(&self) -> Time {
        let deadline = self.state.as_ref().and_then(State::deadline);
        deadline.map_or(self.next_look, |deadline| deadline.min(self.next_look))
    }

    fn patience(&self) -> Duration {
        self.due().since(self.clock.now()).max(Duration::from_millis(1))
    }

    fn tick(&mut self) {
        self.next_look = self.clock.now() + TICK.min(self.beat_every);
        for (worker, task, finished) in self.held.expired(self.clock.now()) {
            self.finished(worker, task, finished);
        }
        for (worker, exited) in self.held.expired_exits(self.clock.now()) {
            self.exited(worker, exited);
        }
        for worker in self.links.heard() {
            self.feed(Input::Heard(worker));
        }
        while self.feed(Input::Tick) != Transition::Idle && !self.is_over() {}
        let now = self.clock.now();
        if now.since(self.last_beat) >= self.beat_every {
            self.last_beat = now;
            self.links.beat();
        }
        if self.stale_status && now.since(self.last_status) >= STATUS_EVERY {
            self.write_status(now);
        }
    }

    fn write_status(&mut self, now: Time) {
        if let Some(state) = &self.state {
            self.stale_status = !self.status.write(self.header.text(state));
        }
        self.last_status = now;
    }

    fn call(&mut self, call: Call) {
        match call {
            Call::Submit {
                task,
                ranks,
                restarts,
                patient,
                payload,
            } => {
                self.payloads.insert(task, payload);
                self.feed(Input::Submit {
                    task,
                    world: ranks.most,
                    least: ranks.least,
                    restarts,
                    patient,
                });
            }
            Call::Resize { size } => drop(self.feed(Input::Resize { size })),
            Call::Cancel { task, why } => drop(self.feed(Input::Cancel { task, why })),
            Call::Yield { task, save } => drop(self.feed(Input::Yield { task, save })),
            Call::Inspect { task, idle_ms } => self.links.inspect(task, idle_ms),
            Call::Stop { why } => drop(self.feed(Input::Stop { why })),
            Call::Attach(link) => self.links.attach(*link),
            Call::Launch(event) => self.launch_event(event),
            Call::File(event) => self.file_event(event),
            Call::NotComing { summons, why } => {
                if let Some(launcher) = &mut self.launcher {
                    launcher.not_coming(summons, &why);
                }
            }
        }
    }

    /// Whether log files can be made shows at the start, not with the first line of a rank.
    fn make_files(&self) {
        if let (Some(files), Some(state)) = (&self.files, &self.state) {
            (0..state.wanted()).for_each(|rank| files.create(rank));
        }
    }

    /// What was trained by then outweighs a log: a job that has begun goes on without it.
    fn file_event(&mut self, event: FileEvent) {
        match event {
            FileEvent::Note(note) => self.board.add_note(note),
            FileEvent::NotMade { path, why } if self.has_formed() => {
                self.board.add_note(broken_log(&path, &why));
            }
            FileEvent::NotMade { path, why } => {
                let why = refused_log(&path, &why);
                self.feed(Input::Stop { why });
            }
        }
    }

    fn has_formed(&self) -> bool {
        self.state
            .as_ref()
            .is_some_and(|state| state.generation().number.0 > 0)
    }

    fn launch_event(&mut self, event: LaunchEvent) {
        match event {
            LaunchEvent::Started { .. } => {}
            LaunchEvent::Ready { host, note } => {
                if !note.is_empty() {
                    self.board.add_note(format!("{host}: {note}"));
                }
            }
            LaunchEvent::NotStarted { worker, why } => drop(self.feed(Input::LaunchFailed { worker, why })),
            LaunchEvent::Exited {
                worker,
                exit,
                log_tail,
            } => {
                let exited = Exited { exit, log_tail };
                if self.links.is_open(worker) {
                    self.held.exited(self.clock.now(), worker, exited);
                } else {
                    self.exited(worker, exited);
                }
            }
            LaunchEvent::Settled { worker, task } => {
                if let Some(files) = &self.files {
                    files.settle(LOG_WITHIN);
                }
                if let Some(finished) = self.held.settled(worker, task) {
                    self.finished(worker, task, finished);
                }
            }
            LaunchEvent::Output { rank, stream, bytes } => {
                if let Some(files) = &self.files {
                    // Ranks of other hosts have their files here, where their user looks for them.
                    files.write(self.rank_at(rank), &bytes);
                }
                let lines = self.lines.push(rank, stream, &bytes);
                self.add_lines(lines);
            }
            LaunchEvent::Note { note } | LaunchEvent::HostLost { why: note } => self.board.add_note(note),
            LaunchEvent::Broken { why } => drop(self.feed(Input::Stop { why })),
        }
    }

    fn exited(&mut self, worker: WorkerId, Exited { exit, log_tail }: Exited) {
        self.links.close(worker);
        // It had said how its task ended before it went.
        for (task, finished) in self.held.forget(worker) {
            self.finished(worker, task, finished);
        }
        self.feed(Input::Exited {
            worker,
            exit,
            log_tail,
        });
    }

    /// The rank that has a place, as people know it.
    fn rank_at(&self, slot: u32) -> u32 {
        self.state.as_ref().map_or(slot, |state| state.rank_at(slot))
    }

    /// Supervisors know the places of their workers, and not their ranks.
    fn add_lines(&self, mut lines: Vec<Line>) {
        for line in &mut lines {
            line.rank = self.rank_at(line.rank);
        }
        self.board.add_lines(lines);
    }

    fn link_event(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Joined { link, join, outbox } => {
                // Kept aside: if the coordinator refuses, an earlier connection under that id stays as it is.
                self.newcomer = Some((join.worker, link, outbox));
                self.feed(Input::Joined(join));
            }
            LinkEvent::Said {
                link,
                worker,
                message,
                payload,
            } if self.links.is_current(worker, link) => {
                self.said(worker, message, payload);
            }
            LinkEvent::Lost { link, worker, why } if self.links.is_current(worker, link) => {
                self.links.close(worker);
                self.feed(Input::LinkLost { worker, why });
                if let Some(exited) = self.held.unlinked(worker) {
                    self.exited(worker, exited);
                }
            }
            LinkEvent::Said { .. } | LinkEvent::Lost { .. } => {}
            LinkEvent::Called(caller) => {
                // Without a launcher that waits for calls, its link ends here.
                if let Some(launcher) = &mut self.launcher {
                    launcher.called(caller);
                }
            }
            LinkEvent::Stranger { why } => self.board.add_note(why),
        }
    }

    fn said(&mut self, worker: WorkerId, message: ToCoordinator, payload: Payload) {
        match message {
            ToCoordinator::Heartbeat | ToCoordinator::Join(_) | ToCoordinator::Calls { .. } => {
                self.feed(Input::Heard(worker));
            }
            ToCoordinator::Report { task } => self.reported(worker, task, payload),
            ToCoordinator::Leaves => drop(self.feed(Input::Leaves(worker))),
            ToCoordinator::Finished {
                task,
                outcome,
                ports,
                wrote,
            } => {
                let finished = Finished {
                    outcome,
                    ports,
                    payload,
                };
                let now = self.clock.now();
                if !wrote {
                    self.finished(worker, task, finished);
                } else if let Some(finished) = self.held.finished(now, worker, task, finished) {
                    self.finished(worker, task, finished);
                } else {
                    self.feed(Input::Heard(worker));
                }
            }
        }
    }

    /// For whoever waits; the coordinator decides nothing by it.
    fn reported(&self, worker: WorkerId, task: TaskId, payload: Payload) {
        let wanted = self.payloads.contains_key(&task);
        if let Some(rank) = self.rank_of(worker).filter(|_| wanted) {
            let body = payload.parts.into_iter().next().unwrap_or_default();
            self.board.add_report(task, rank, body);
        }
    }

    fn finished(&mut self, worker: WorkerId, task: TaskId, finished: Finished) {
        let Finished {
            outcome,
            ports,
            payload,
        } = finished;
        let wanted = self.payloads.contains_key(&task);
        if let Some(rank) = self.rank_of(worker).filter(|_| wanted) {
            self.results.entry(task).or_default().insert(rank, payload);
        }
        self.feed(Input::Finished {
            worker,
            task,
            outcome,
            ports,
        });
    }

    fn rank_of(&self, worker: WorkerId) -> Option<Rank> {
        let generation = self.state.as_ref()?.generation();
        generation
            .members
            .iter()
            .find(|seat| seat.worker == worker)
            .map(|seat| seat.rank)
    }

    fn feed(&mut self, input: Input) -> Transition {
        let Some(state) = self.state.take() else {
            return Transition::Idle;
        };
        let answer = step(self.clock.now(), state, input);
        if answer.transition == Transition::Formed {
            self.board.set_ready(
                answer
                    .state
                    .generation()
                    .members
                    .iter()
                    .map(|seat| seat.ranks)
                    .sum(),
            );
        }
        if matches!(answer.state.phase(), Phase::Stopping { .. } | Phase::Over) {
            // Before the tasks hear of it: whoever does must not be given this cluster again.
            self.board.set_ending(answer.state.why());
        }
        self.state = Some(answer.state);
        self.stale_status |= !matches!(answer.transition, Transition::Heard | Transition::Idle);
        let refused = answer
            .actions
            .iter()
            .any(|action| matches!(action, Action::Refuse(..)));
        if !refused && let Some((worker, link, outbox)) = self.newcomer.take() {
            self.links.insert(worker, link, outbox);
        }
        for action in answer.actions {
            self.act(action);
        }
        // Only now: what follows from a message that cannot be sent must not overtake those of this step.
        while let Some((worker, why)) = self.unsent.pop() {
            self.feed(Input::LinkLost { worker, why });
        }
        answer.transition
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Launch { worker, slot } => {
                if let Some(launcher) = &mut self.launcher {
                    launcher.launch(worker, slot);
                }
            }
            Action::Kill(worker) => {
                self.links.close(worker);
                if let Some(launcher) = &mut self.launcher {
                    launcher.kill(worker);
                }
            }
            Action::Send(worker, message) => self.send(worker, &message),
            Action::Refuse(_, why) => {
                if let Some((_, _, outbox)) = self.newcomer.take() {
                    self.links.refuse(outbox, why);
                }
            }
            Action::Resolve(task, end) => self.resolve(task, end),
        }
    }

    fn send(&mut self, worker: WorkerId, message: &ToWorker) {
        let payload = match message {
            ToWorker::Task(task) => self.payloads.get(&task.id).cloned().unwrap_or_default(),
            _ => Payload::default(),
        };
        if let Err(error) = self.links.send(worker, message, payload) {
            self.unsent.push((worker, error.to_string()));
        }
    }

    fn resolve(&mut self, task: TaskId, end: Result<(), TaskFailure>) {
        self.payloads.remove(&task);
        let mut results = self.results.remove(&task).unwrap_or_default();
        let end = match end {
            Ok(()) => TaskEnd::Returned(results.into_values().collect()),
            Err(failure) => {
                let first = match &failure {
                    TaskFailure::Rank { first, .. } => Some(first.rank),
                    TaskFailure::Cancelled { .. } | TaskFailure::Cluster { .. } => None,
                };
                let raised = first.and_then(|rank| results.remove(&rank));
                TaskEnd::Failed { failure, raised }
            }
        };
        self.board.end(task, end);
    }

    /// Everybody was told to go: end the processes, then the connections, then the folder, then say so.
    async fn finish(mut self, mut calls: UnboundedReceiver<Call>) {
        if let Some(mut launcher) = self.launcher.take() {
            // On another thread: links that carry the orders and reports of supervisors go on meanwhile.
            let _ = tokio::task::spawn_blocking(move || launcher.close()).await;
        }
        // The last words of the workers were reported before their exits.
        calls.close();
        while let Ok(call) = calls.try_recv() {
            self.call(call);
        }
        let rest = self.lines.rest();
        self.add_lines(rest);
        let (files, status) = (self.files.take(), self.status);
        let closed = tokio::task::spawn_blocking(move || {
            // Before the folder goes in which it lies.
            status.close(CLOSE_FILES_WITHIN);
            files.map(|files| files.close(CLOSE_FILES_WITHIN))
        });
        for note in closed.await.into_iter().flatten().flatten() {
            self.board.add_note(note);
        }
        let why = self
            .state
            .as_ref()
            .map(|state| state.why().to_owned())
            .unwrap_or_default();
        self.links.flush().await;
        drop(self.dir);
        self.board.set_over(&why);
    }
}
