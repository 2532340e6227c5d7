//! CO-13: tasks that can do with fewer ranks, and jobs whose size changes.

use grampus_core::{Exit, Outcome, ToWorker};

use super::super::{Input, Options, Phase, Step, Transition};
use super::{Job, TASK, end, is_stop, is_task, kills, launches, raised, sent};

impl Job {
    fn submit_elastic(&mut self, least: u32, world: u32) -> Step {
        self.feed(Input::Submit {
            task: TASK,
            world,
            least,
            restarts: 0,
            patient: true,
        })
    }

    fn resize(&mut self, size: u32) -> Step {
        self.feed(Input::Resize { size })
    }

    /// Three of four members are in; the fourth does not come.
    fn three_of_four() -> Self {
        let mut job = Self::formed(4);
        job.exit(4, Exit::Signal(9));
        job
    }
}

fn is_yield(message: &ToWorker) -> bool {
    matches!(message, ToWorker::Yield { save: false, .. })
}

#[test]
fn an_elastic_task_waits_a_moment_for_who_is_missing_and_then_begins() {
    let mut job = Job::three_of_four();
    let asked = job.submit_elastic(2, 4);
    assert_eq!(asked.transition, Transition::TaskQueued);
    let begun = job.wait(&[1, 2, 3]);
    assert_eq!(begun.transition, Transition::Formed);
    assert_eq!(sent(&begun, is_task), [1, 2, 3]);
    assert_eq!(job.ranks(), [(0, 1), (1, 2), (2, 3)]);
}

#[test]
fn it_does_not_begin_with_fewer_than_it_needs() {
    let mut job = Job::three_of_four();
    job.exit(3, Exit::Signal(9));
    job.submit_elastic(3, 4);
    let given_up = job.wait(&[1, 2]);
    assert_eq!(given_up.transition, Transition::JoinTooLate);
    assert!(
        given_up
            .why
            .starts_with("only 2 of 4 members are in after 60.0 s, and at least 3 are needed"),
        "{}",
        given_up.why
    );
}

#[test]
fn whoever_comes_later_is_taken_in_after_the_step() {
    let mut job = Job::three_of_four();
    job.submit_elastic(2, 4);
    job.wait(&[1, 2, 3]);
    let joined = job.join(5);
    assert_eq!(joined.transition, Transition::GrowthAsked);
    assert_eq!(sent(&joined, is_yield), [1, 2, 3]);
    for worker in [1, 2, 3] {
        job.finish(worker, raised(true));
    }
    let again = job.submit_elastic(2, 4);
    assert_eq!(sent(&again, is_task), [1, 2, 3, 5]);
}

#[test]
fn it_does_not_take_in_more_than_it_has_work_for() {
    let mut job = Job::three_of_four();
    job.submit_elastic(2, 3);
    job.wait(&[1, 2, 3]);
    assert_eq!(job.join(5).transition, Transition::Joined);
}

#[test]
fn a_place_that_cannot_be_filled_is_tried_again_later() {
    let mut job = Job::three_of_four();
    job.submit_elastic(2, 4);
    job.not_launched(5, "no memory");
    assert_eq!(*job.state().phase(), Phase::Running);
    let tried = job.wait(&[1, 2, 3]);
    assert_eq!(tried.transition, Transition::PlaceTried);
    assert_eq!(launches(&tried), [(6, 3)]);
    let left = job.exit(6, Exit::Code(1));
    assert_eq!(left.transition, Transition::PlaceLeft);
    assert!(
        left.why
            .ends_with("the others go on without it, and it is tried again in 10.0 s"),
        "{}",
        left.why
    );
}

#[test]
fn a_task_that_needs_all_ends_the_job_where_a_place_cannot_be_filled() {
    let mut job = Job::three_of_four();
    job.submit(4);
    assert_eq!(
        job.not_launched(5, "no memory").transition,
        Transition::StartGivenUp
    );
}

#[test]
fn a_smaller_job_lets_its_last_members_go() {
    let mut job = Job::formed(4);
    let smaller = job.resize(2);
    assert_eq!(sent(&smaller, is_stop), [3, 4]);
    assert_eq!(job.ranks(), [(0, 1), (1, 2)]);
    job.submit(2);
    let gone = job.exit(4, Exit::Code(0));
    assert_eq!(gone.transition, Transition::MemberLeft);
    assert!(launches(&gone).is_empty());
    // Who does not go is ended.
    let late = job.wait(&[1, 2]);
    assert_eq!(
        (late.transition, kills(&late)),
        (Transition::ExitUnreported, vec![3])
    );
}

#[test]
fn a_task_ends_where_it_can_before_members_go() {
    let mut job = Job::formed(3);
    job.submit_elastic(1, 3);
    let smaller = job.resize(2);
    assert_eq!(sent(&smaller, is_yield), [1, 2, 3]);
    assert!(sent(&smaller, is_stop).is_empty());
    assert_eq!(sent(&job.finish(3, raised(true)), is_stop), [3]);
    job.finish(1, raised(true));
    assert!(end(&job.finish(2, raised(true))).is_err());
    assert_eq!(sent(&job.submit_elastic(1, 3), is_task), [1, 2]);
}

#[test]
fn a_task_that_cannot_yield_ends_before_members_go() {
    let mut job = Job::formed(2);
    job.submit(2);
    let smaller = job.resize(1);
    assert!(smaller.actions.is_empty());
    assert_eq!(sent(&job.finish(2, Outcome::Ok), is_stop), [2]);
    assert_eq!(end(&job.finish(1, Outcome::Ok)), Ok(()));
    assert_eq!(job.ranks(), [(0, 1)]);
}

#[test]
fn a_larger_job_has_new_members() {
    let mut job = Job::formed(1);
    let larger = job.resize(3);
    assert_eq!(launches(&larger), [(2, 1), (3, 2)]);
    job.join(3);
    job.join(2);
    assert_eq!(job.ranks(), [(0, 1), (1, 2), (2, 3)]);
}

#[test]
fn a_process_that_is_starting_is_ended_where_it_is_not_wanted_any_more() {
    let mut job = Job::new(Options::launched(2));
    job.join(1);
    let smaller = job.resize(1);
    assert_eq!(kills(&smaller), [2]);
    assert_eq!(job.ranks(), [(0, 1)]);
    assert_eq!(*job.state().phase(), Phase::Ready);
}
