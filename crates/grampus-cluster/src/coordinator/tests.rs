//! The main stories, told one by one. What no one thinks of is left to the simulation in `grampus-chaos`.

use std::time::Duration;

use grampus_core::{Exit, Failure, Join, Outcome, Rank, TaskFailure, TaskId, Time, ToWorker, WorkerId};

use super::{Action, Input, Options, Phase, State, Step, Transition, step};

mod elasticity;
mod ending;
mod patience;
mod placement;

const TASK: TaskId = TaskId(7);

/// A coordinator with a clock that the test moves.
struct Job {
    now: Time,
    state: Option<State>,
}

impl Job {
    fn new(options: Options) -> Self {
        let mut job = Self {
            now: Time::ZERO,
            state: Some(State::new(options)),
        };
        job.feed(Input::Start);
        job
    }

    /// A job of launched members that are all in.
    fn formed(size: u32) -> Self {
        let mut job = Self::new(Options::launched(size));
        for worker in 1..=u64::from(size) {
            job.join(worker);
        }
        job
    }

    fn feed(&mut self, input: Input) -> Step {
        let answer = step(self.now, self.state.take().unwrap(), input);
        self.state = Some(answer.state.clone());
        answer
    }

    fn state(&self) -> &State {
        self.state.as_ref().unwrap()
    }

    /// Rank and worker of every seat.
    fn ranks(&self) -> Vec<(u32, u64)> {
        let seats = self.state().generation().members.iter();
        seats.map(|seat| (seat.rank.0, seat.worker.0)).collect()
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now + Duration::from_millis(millis);
    }

    /// Lets time pass in small steps with members that beat, until something happens.
    fn wait(&mut self, beating: &[u64]) -> Step {
        for _ in 0..10_000 {
            let ticked = self.feed(Input::Tick);
            if ticked.transition != Transition::Idle {
                return ticked;
            }
            self.pass(50);
            for worker in beating {
                self.feed(Input::Heard(WorkerId(*worker)));
            }
        }
        panic!("nothing happens");
    }

    fn join(&mut self, worker: u64) -> Step {
        self.feed(Input::Joined(join(worker, None)))
    }

    fn submit(&mut self, world: u32) -> Step {
        self.submit_as(TASK, world)
    }

    fn submit_as(&mut self, task: TaskId, world: u32) -> Step {
        let (restarts, patient) = (0, false);
        self.feed(Input::Submit {
            task,
            world,
            least: world,
            restarts,
            patient,
        })
    }

    fn not_launched(&mut self, worker: u64, why: &str) -> Step {
        self.feed(Input::LaunchFailed {
            worker: WorkerId(worker),
            why: why.into(),
        })
    }

    fn finish(&mut self, worker: u64, outcome: Outcome) -> Step {
        self.feed(Input::Finished {
            worker: WorkerId(worker),
            task: TASK,
            outcome,
            ports: vec![9_000 + worker as u16],
        })
    }

    fn exit(&mut self, worker: u64, exit: Exit) -> Step {
        self.feed(Input::Exited {
            worker: WorkerId(worker),
            exit,
            log_tail: format!("last words of {worker}"),
        })
    }

    fn unlink(&mut self, worker: u64) -> Step {
        self.feed(Input::LinkLost {
            worker: WorkerId(worker),
            why: "reset by peer".into(),
        })
    }

    fn stop(&mut self) -> Step {
        self.feed(Input::Stop {
            why: "the user is done".into(),
        })
    }
}

fn join(worker: u64, slot: Option<u32>) -> Join {
    Join {
        worker: WorkerId(worker),
        slot,
        ranks: 1,
        node: false,
        pid: 100 + worker as u32,
        host: format!("host{worker}"),
        address: format!("10.0.0.{worker}"),
        ports: vec![5_000 + worker as u16],
        card: vec![worker as u8],
    }
}

fn raised(consequence: bool) -> Outcome {
    Outcome::Failed {
        local: 0,
        pid: None,
        failure: Failure::Raised {
            kind: "ValueError".into(),
            message: "no".into(),
            traceback: String::new(),
            consequence,
        },
    }
}

/// How the task was resolved in this step.
fn end(step: &Step) -> Result<(), TaskFailure> {
    let ends = step.actions.iter().filter_map(|action| match action {
        Action::Resolve(TASK, end) => Some(end.clone()),
        _ => None,
    });
    let ends: Vec<_> = ends.collect();
    assert_eq!(ends.len(), 1, "CO-3: {:?}", step.actions);
    ends[0].clone()
}

fn blamed(step: &Step) -> (Rank, Failure, Vec<Rank>) {
    match end(step) {
        Err(TaskFailure::Rank { first, folded }) => (first.rank, first.failure, folded),
        other => panic!("nobody is blamed: {other:?}"),
    }
}

fn kills(step: &Step) -> Vec<u64> {
    let kills = step.actions.iter().filter_map(|action| match action {
        Action::Kill(worker) => Some(worker.0),
        _ => None,
    });
    kills.collect()
}

fn launches(step: &Step) -> Vec<(u64, u32)> {
    let launches = step.actions.iter().filter_map(|action| match action {
        Action::Launch { worker, slot } => Some((worker.0, *slot)),
        _ => None,
    });
    launches.collect()
}

/// Who gets a message of the kind that the test picks.
fn sent(step: &Step, picks: impl Fn(&ToWorker) -> bool) -> Vec<u64> {
    let sent = step.actions.iter().filter_map(|action| match action {
        Action::Send(worker, message) if picks(message) => Some(worker.0),
        _ => None,
    });
    sent.collect()
}

fn is_task(message: &ToWorker) -> bool {
    matches!(message, ToWorker::Task(_))
}

fn is_cancel(message: &ToWorker) -> bool {
    matches!(message, ToWorker::Cancel { .. })
}

fn is_stop(message: &ToWorker) -> bool {
    matches!(message, ToWorker::Stop { .. })
}

#[test]
fn all_start_get_a_generation_and_run_a_task() {
    let mut job = Job::new(Options::launched(2));
    assert_eq!(job.join(2).transition, Transition::Joined);
    let formed = job.join(1);
    assert_eq!(formed.transition, Transition::Formed);
    assert_eq!(
        sent(&formed, |message| matches!(message, ToWorker::Generation(_))),
        [1, 2]
    );
    assert_eq!(
        job.ranks(),
        [(0, 1), (1, 2)],
        "CO-1: ranks follow slots, not arrival"
    );
    assert_eq!(sent(&job.submit(2), is_task), [1, 2]);
    assert_eq!(job.finish(2, Outcome::Ok).transition, Transition::RankFinished);
    let done = job.finish(1, Outcome::Ok);
    assert_eq!((done.transition, end(&done)), (Transition::TaskSucceeded, Ok(())));
    assert_eq!(*job.state().phase(), Phase::Ready);
}

#[test]
fn a_task_gets_the_freshest_ports_of_its_ranks_and_no_more() {
    let mut job = Job::formed(3);
    job.submit(3);
    for worker in [3, 1, 2] {
        job.finish(worker, Outcome::Ok);
    }
    let started = job.submit(2);
    let ports = started.actions.iter().find_map(|action| match action {
        Action::Send(_, ToWorker::Task(task)) => Some(task.ports.to_vec()),
        _ => None,
    });
    assert_eq!(ports, Some(vec![9_001, 9_002]));
    assert_eq!(sent(&started, is_task), [1, 2]);
}

#[test]
fn one_raises_the_others_are_cancelled_and_folded() {
    let mut job = Job::formed(4);
    job.submit(4);
    job.finish(4, Outcome::Ok);
    let first = job.finish(2, raised(false));
    assert_eq!(first.transition, Transition::RankFailedFirst);
    assert_eq!(sent(&first, is_cancel), [1, 3], "rank 3 finished, rank 1 failed");
    assert_eq!(
        job.finish(1, raised(true)).transition,
        Transition::RankFailedLater
    );
    let (rank, failure, folded) = blamed(&job.finish(3, Outcome::Cancelled));
    assert_eq!((rank, folded), (Rank(1), vec![Rank(0)]));
    assert!(matches!(failure, Failure::Raised { kind, .. } if kind == "ValueError"));
    assert_eq!(*job.state().phase(), Phase::Ready, "workers stay warm");
}

#[test]
fn the_cause_is_blamed_even_where_its_consequence_was_reported_first() {
    let mut job = Job::formed(2);
    job.submit(2);
    job.finish(1, raised(true));
    assert_eq!(blamed(&job.finish(2, raised(false))).0, Rank(1));
}

#[test]
fn a_death_names_rank_host_signal_and_last_lines() {
    let mut job = Job::formed(2);
    job.submit(2);
    assert_eq!(job.unlink(2).transition, Transition::LinkBroke);
    let died = job.exit(2, Exit::Signal(9));
    assert_eq!(died.transition, Transition::MemberLost);
    assert_eq!((launches(&died), sent(&died, is_cancel)), (vec![(3, 1)], vec![1]));
    let failure = end(&job.finish(1, Outcome::Cancelled)).unwrap_err().to_string();
    for part in [
        "rank 1 on host2 (pid 102)",
        "signal 9 (SIGKILL)",
        "last words of 2",
    ] {
        assert!(failure.contains(part), "{failure}");
    }
    assert_eq!(job.join(3).transition, Transition::Formed);
}

#[test]
fn a_death_whose_exit_is_never_reported_is_noticed_all_the_same() {
    let mut job = Job::formed(2);
    job.submit(2);
    job.unlink(2);
    let lost = job.wait(&[1]);
    assert_eq!(lost.transition, Transition::ExitUnreported);
    assert_eq!(kills(&lost), [2], "CO-6");
    assert!(job.now.since(Time::ZERO) <= Duration::from_millis(1_100));
}

#[test]
fn a_stubborn_rank_is_ended_and_not_blamed() {
    let mut job = Job::formed(3);
    job.submit(3);
    job.finish(1, raised(false));
    job.finish(2, Outcome::Cancelled);
    let late = job.wait(&[1, 2, 3]);
    assert_eq!(late.transition, Transition::CancelTooLate);
    assert_eq!((kills(&late), launches(&late)), (vec![3], vec![(4, 2)]));
    let (rank, _, folded) = blamed(&late);
    assert_eq!((rank, folded), (Rank(0), vec![]), "CO-8");
}

#[test]
fn a_rank_that_was_not_told_to_end_and_says_so_has_not_finished() {
    let mut job = Job::formed(2);
    job.submit(2);
    let ended = job.finish(1, Outcome::Cancelled);
    assert_eq!(sent(&ended, is_cancel), [2]);
    let end = end(&job.finish(2, Outcome::Ok));
    assert!(matches!(end, Err(TaskFailure::Cancelled { .. })), "CO-4: {end:?}");
}

#[test]
fn processes_that_end_before_they_join_are_tried_again_then_given_up_with_their_last_lines() {
    let mut job = Job::new(Options::launched(1));
    job.submit(1);
    assert_eq!(launches(&job.exit(1, Exit::Code(1))), [(2, 0)]);
    assert_eq!(launches(&job.exit(2, Exit::Code(1))), [(3, 0)]);
    let given_up = job.exit(3, Exit::Code(1));
    assert_eq!(given_up.transition, Transition::StartGivenUp);
    assert!(given_up.why.contains("last words of 3"), "{}", given_up.why);
    assert!(matches!(end(&given_up), Err(TaskFailure::Cluster { why }) if why == given_up.why));
    assert_eq!(
        *job.state().phase(),
        Phase::Over,
        "no process is left to wait for"
    );
}

#[test]
fn a_process_that_cannot_be_launched_is_not_tried_again() {
    let mut job = Job::new(Options::launched(2));
    job.join(1);
    let failed = job.not_launched(2, "no such program");
    assert_eq!(failed.transition, Transition::StartGivenUp);
    assert!(failed.why.contains("no such program"));
    assert_eq!(sent(&failed, is_stop), [1]);
}

#[test]
fn members_that_never_come_end_the_wait() {
    let mut job = Job::new(Options::launched(2));
    job.join(1);
    let late = job.wait(&[1]);
    assert_eq!(late.transition, Transition::JoinTooLate);
    assert!(
        late.why.contains("only 1 of 2 members are in after 60.0 s"),
        "{}",
        late.why
    );
    assert_eq!((sent(&late, is_stop), kills(&late)), (vec![1], vec![2]), "CO-7");
}

#[test]
fn members_that_come_and_go_do_not_put_off_the_end_of_the_wait() {
    let mut job = Job::new(Options::awaited(2));
    for worker in 1..30 {
        job.join(worker);
        for _ in 0..40 {
            job.pass(50);
            job.feed(Input::Heard(WorkerId(worker)));
            job.feed(Input::Tick);
        }
        job.unlink(worker);
    }
    let late = job.wait(&[]);
    assert_eq!(late.transition, Transition::JoinTooLate, "CO-5");
    assert!(job.now.since(Time::ZERO) <= Duration::from_millis(60_100));
}

#[test]
fn a_silent_member_is_given_up_ended_and_no_longer_listened_to() {
    let mut job = Job::formed(2);
    job.submit(2);
    let silent = job.wait(&[1]);
    assert_eq!(
        (silent.transition, kills(&silent)),
        (Transition::Silent, vec![2]),
        "CO-6"
    );
    let late = job.finish(2, Outcome::Ok);
    assert_eq!(
        (late.transition, late.actions),
        (Transition::FinishedStale, vec![]),
        "CO-6"
    );
    let (rank, failure, _) = blamed(&job.finish(1, Outcome::Cancelled));
    assert_eq!(rank, Rank(1));
    assert!(
        matches!(failure, Failure::Silent { millis: 3_000..3_200 }),
        "{failure:?}"
    );
}

#[test]
fn a_pause_of_the_coordinator_blames_nobody() {
    let mut job = Job::formed(2);
    job.submit(2);
    job.finish(1, raised(false));
    job.pass(60_000);
    assert_eq!(job.feed(Input::Tick).transition, Transition::Paused);
    assert_eq!(job.feed(Input::Tick).transition, Transition::Idle, "CO-9");
    let (_, _, folded) = blamed(&job.finish(2, Outcome::Cancelled));
    assert_eq!((folded, job.state().members().len()), (vec![], 2));
}

#[test]
fn sleeping_until_the_deadline_is_no_pause() {
    let mut job = Job::new(Options::launched(1));
    for _ in 0..200 {
        job.now = job.state().deadline().unwrap();
        match job.feed(Input::Tick).transition {
            Transition::Idle => {}
            Transition::JoinTooLate => return,
            other => panic!("CO-5: {other:?}"),
        }
    }
    panic!("CO-5: the wait for members never ends");
}

#[test]
fn a_place_is_taken_once_where_members_come_by_themselves() {
    let mut job = Job::new(Options::awaited(2));
    let mut ask = |worker, slot| job.feed(Input::Joined(join(worker, slot)));
    assert_eq!(ask(1, Some(1)).transition, Transition::Joined);
    let taken = ask(2, Some(1));
    assert_eq!(taken.transition, Transition::RefusedFull);
    assert!(
        taken.why.contains("place 1 is held by the process on host1"),
        "{}",
        taken.why
    );
    assert!(matches!(taken.actions[..], [Action::Refuse(WorkerId(2), _)]));
    assert_eq!(ask(3, Some(2)).transition, Transition::RefusedFull);
    assert_eq!(ask(1, None).transition, Transition::RefusedUnknown);
    assert_eq!(ask(4, None).transition, Transition::Formed);
    assert_eq!(ask(5, None).transition, Transition::RefusedFull);
}

#[test]
fn the_link_of_a_silent_member_that_came_by_itself_is_closed_and_its_place_is_free() {
    let mut job = Job::new(Options::awaited(2));
    job.join(1);
    job.join(2);
    let silent = job.wait(&[1]);
    assert_eq!(
        (silent.transition, kills(&silent)),
        (Transition::Silent, vec![2]),
        "CO-6"
    );
    assert_eq!(job.join(3).transition, Transition::Formed);
    assert_eq!(job.ranks(), [(0, 1), (1, 3)]);
}

#[test]
fn only_launched_processes_may_join_and_only_once() {
    let mut job = Job::formed(1);
    assert_eq!(job.join(9).transition, Transition::RefusedUnknown);
    assert_eq!(job.join(1).transition, Transition::RefusedUnknown);
    assert_eq!(job.state().members().len(), 1);
}

#[test]
fn a_member_lost_between_tasks_does_not_fail_the_next_one() {
    let mut job = Job::formed(2);
    job.unlink(2);
    assert_eq!(job.submit(2).transition, Transition::TaskQueued);
    job.exit(2, Exit::Code(0));
    assert_eq!(sent(&job.join(3), is_task), [1, 3]);
}

#[test]
fn a_place_that_cannot_be_filled_lets_the_running_task_end_first() {
    let mut job = Job::formed(2);
    job.submit(1);
    assert_eq!(launches(&job.exit(2, Exit::Code(1))), [(3, 1)]);
    let failed = job.not_launched(3, "out of memory");
    assert_eq!(
        (failed.transition, failed.actions),
        (Transition::StartGivenUp, vec![]),
        "CO-10"
    );
    let done = job.finish(1, Outcome::Ok);
    assert_eq!((end(&done), sent(&done, is_stop)), (Ok(()), vec![1]));
    assert!(job.submit(1).why.contains("out of memory"));
}

#[test]
fn a_replacement_that_never_joins_lets_the_running_task_end_first() {
    let mut job = Job::formed(2);
    job.submit(1);
    job.exit(2, Exit::Code(1));
    let late = job.wait(&[1]);
    assert_eq!(
        (late.transition, kills(&late)),
        (Transition::JoinTooLate, vec![3]),
        "CO-10"
    );
    assert_eq!(*job.state().phase(), Phase::Running);
    assert_eq!(end(&job.finish(1, Outcome::Ok)), Ok(()));
}

#[test]
fn what_waits_says_what_for_and_not_who_waits_before_it() {
    let mut job = Job::new(Options::launched(2));
    job.submit_as(TaskId(1), 2);
    let queued = job.submit_as(TaskId(2), 2);
    assert_eq!(queued.why, "task 2 waits: waiting for 2 members");
}

#[test]
fn a_world_that_the_cluster_cannot_hold_is_refused_and_the_next_task_runs() {
    let mut job = Job::formed(2);
    let refused = job.submit(3);
    assert_eq!(refused.transition, Transition::TaskRefused);
    let why = end(&refused).unwrap_err().to_string();
    assert_eq!(why, "a task on 3 ranks was asked for, the cluster has 2");
    assert_eq!(job.submit(2).transition, Transition::TaskStarted);
}

#[test]
fn the_user_cancels_what_runs_and_what_waits() {
    let mut job = Job::formed(1);
    job.submit(1);
    job.submit_as(TaskId(8), 1);
    let cancel = |task| Input::Cancel {
        task,
        why: "enough".into(),
    };
    assert_eq!(job.feed(cancel(TaskId(8))).transition, Transition::CancelQueued);
    assert_eq!(job.feed(cancel(TASK)).transition, Transition::CancelStarted);
    assert_eq!(job.feed(cancel(TASK)).transition, Transition::CancelIgnored);
    let ended = end(&job.finish(1, Outcome::Ok));
    assert_eq!(
        ended,
        Err(TaskFailure::Cancelled { why: "enough".into() }),
        "CO-4"
    );
}
