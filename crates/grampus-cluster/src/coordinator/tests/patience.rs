//! CO-12: tasks whose ranks find out by themselves that one of them is lost.

use grampus_core::{Exit, Rank};

use super::super::{Input, Options, Phase, Step, Transition};
use super::{Job, TASK, blamed, is_cancel, kills, raised, sent};

impl Job {
    fn submit_patient(&mut self, world: u32) -> Step {
        self.feed(Input::Submit {
            task: TASK,
            world,
            least: world,
            restarts: 0,
            patient: true,
        })
    }
}

#[test]
fn ranks_of_a_patient_task_find_out_by_themselves_that_one_is_lost() {
    let mut job = Job::formed(3);
    job.submit_patient(3);
    let lost = job.exit(2, Exit::Signal(9));
    assert!(sent(&lost, is_cancel).is_empty());
    assert!(matches!(job.state().phase(), Phase::Leaving { .. }));
    job.finish(1, raised(true));
    let last = job.finish(3, raised(true));
    assert_eq!(blamed(&last).0, Rank(1));
    // The replacement comes, and the next task runs with it.
    job.join(4);
    assert_eq!(job.ranks(), [(0, 1), (1, 4), (2, 3)]);
}

#[test]
fn a_rank_that_notices_first_is_not_to_blame() {
    let mut job = Job::formed(2);
    job.submit_patient(2);
    assert_eq!(job.finish(1, raised(true)).transition, Transition::RanksLeave);
    assert_eq!(blamed(&job.exit(2, Exit::Signal(9))).0, Rank(1));
}

#[test]
fn ranks_that_do_not_notice_are_told_in_the_end() {
    let mut job = Job::formed(2);
    job.submit_patient(2);
    job.exit(2, Exit::Signal(9));
    job.join(3);
    let told = job.wait(&[1, 3]);
    assert_eq!(told.transition, Transition::LeaveTooLate);
    assert_eq!(sent(&told, is_cancel), [1]);
}

#[test]
fn an_error_of_the_user_s_own_ends_a_patient_task_at_once() {
    let mut job = Job::formed(3);
    job.submit_patient(3);
    job.exit(2, Exit::Signal(9));
    let failed = job.finish(1, raised(false));
    assert_eq!(sent(&failed, is_cancel), [3]);
}

#[test]
fn a_rank_of_a_patient_task_has_longer_to_end() {
    let mut job = Job::formed(2);
    job.submit_patient(2);
    let told = job.feed(Input::Cancel {
        task: TASK,
        why: "Ctrl-C".into(),
    });
    assert_eq!(sent(&told, is_cancel), [1, 2]);
    let (began, options) = (job.now, Options::launched(2));
    let late = job.wait(&[1, 2]);
    assert_eq!(
        (late.transition, kills(&late)),
        (Transition::CancelTooLate, vec![1, 2])
    );
    let took = job.now - began;
    assert!(took >= options.cancel_patient_within, "{took:?}");
    assert!(options.cancel_patient_within > options.cancel_within);
}
