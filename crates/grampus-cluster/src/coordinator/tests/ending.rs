//! The end of a job.

use super::super::*;
use super::*;

#[test]
fn a_stop_keeps_the_first_cause_of_what_was_failing() {
    let mut job = Job::formed(2);
    job.submit(2);
    job.finish(1, raised(false));
    assert_eq!(blamed(&job.stop()).0, Rank(0), "CO-8");
}

#[test]
fn a_stop_asks_then_ends_then_stops_waiting() {
    let mut job = Job::formed(2);
    job.exit(2, Exit::Code(1));
    let stopped = job.stop();
    assert_eq!(
        (sent(&stopped, is_stop), kills(&stopped)),
        (vec![1], vec![3]),
        "the new one hears nothing yet"
    );
    let late = job.wait(&[]);
    assert_eq!(
        (late.transition, kills(&late)),
        (Transition::StopTooLate, vec![1, 3]),
        "CO-7"
    );
    assert_eq!(job.exit(3, Exit::Signal(9)).transition, Transition::ProcessGone);
    let over = job.wait(&[]);
    assert_eq!(over.transition, Transition::StopTooLate);
    assert_eq!(
        (job.state().phase(), job.state().deadline()),
        (&Phase::Over, None)
    );
    assert!(job.now.since(Time::ZERO) <= Duration::from_millis(1_600));
}

#[test]
fn what_is_submitted_after_the_end_hears_why_it_ended() {
    let mut job = Job::formed(2);
    job.stop();
    job.exit(1, Exit::Code(0));
    assert_eq!(job.join(9).transition, Transition::RefusedOver);
    assert_eq!(job.exit(2, Exit::Code(0)).transition, Transition::Stopped);
    job.submit(2);
    let refused = job.submit(2);
    assert_eq!(refused.transition, Transition::TaskRefused);
    let why = end(&refused).unwrap_err().to_string();
    assert_eq!(why, "the cluster is not running: the user is done");
    assert_eq!(job.stop().transition, Transition::StopIgnored);
}
