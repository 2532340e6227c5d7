//! CO-14: ranks of one host stand together.

use grampus_core::{Exit, WorkerId};

use super::super::{Input, Options, Step};
use super::{Job, join};

impl Job {
    fn join_on(&mut self, worker: u64, slot: Option<u32>, host: &str) -> Step {
        let mut join = join(worker, slot);
        (join.host, join.address) = (host.to_owned(), format!("addr-{host}"));
        self.feed(Input::Joined(join))
    }

    /// Launched members, each on its host.
    fn spread(hosts: &[&str]) -> Self {
        let mut job = Self::new(Options::launched(hosts.len() as u32));
        for (worker, host) in (1..).zip(hosts) {
            job.join_on(worker, Some(worker as u32 - 1), host);
        }
        job
    }

    /// Workers in order of rank.
    fn order(&self) -> Vec<u64> {
        self.ranks().into_iter().map(|(_, worker)| worker).collect()
    }
}

#[test]
fn ranks_of_a_host_stand_together_wherever_an_engine_has_put_them() {
    let job = Job::spread(&["b", "a", "b", "c", "a"]);
    assert_eq!(job.ranks(), [(0, 1), (1, 3), (2, 2), (3, 5), (4, 4)]);
    assert_eq!(
        [0, 1, 2, 3, 4].map(|slot| job.state().rank_at(slot)),
        [0, 2, 1, 4, 3]
    );
}

#[test]
fn members_that_come_by_themselves_stand_by_host_too() {
    let mut job = Job::new(Options::awaited(4));
    for (worker, host) in [(7, "a"), (5, "b"), (9, "a"), (3, "b")] {
        job.join_on(worker, None, host);
    }
    assert_eq!(job.order(), [7, 9, 5, 3]);
}

#[test]
fn a_place_that_its_user_has_numbered_keeps_its_number() {
    let mut job = Job::new(Options::awaited(3));
    for (worker, slot, host) in [(9, 2, "a"), (5, 1, "b"), (7, 0, "a")] {
        job.join_on(worker, Some(slot), host);
    }
    assert_eq!(job.order(), [7, 5, 9]);
    // Those without a number stand by host around it.
    let mut job = Job::new(Options::awaited(5));
    for (worker, slot, host) in [
        (1, None, "a"),
        (2, None, "b"),
        (3, Some(2), "c"),
        (4, None, "a"),
        (5, None, "b"),
    ] {
        job.join_on(worker, slot, host);
    }
    assert_eq!(job.order(), [1, 4, 3, 2, 5]);
}

#[test]
fn a_replacement_takes_the_rank_of_the_lost_one_also_on_another_host() {
    let mut job = Job::spread(&["a", "b", "a", "b"]);
    assert_eq!(job.order(), [1, 3, 2, 4]);
    job.exit(3, Exit::Signal(9));
    job.join_on(5, Some(2), "a");
    assert_eq!(job.order(), [1, 5, 2, 4]);
    job.exit(5, Exit::Signal(9));
    job.join_on(6, Some(2), "c");
    assert_eq!(job.order(), [1, 6, 2, 4]);
}

#[test]
fn members_that_come_for_good_join_those_of_their_host() {
    let mut job = Job::spread(&["a", "b"]);
    job.feed(Input::Resize { size: 4 });
    job.join_on(3, Some(2), "a");
    job.join_on(4, Some(3), "b");
    assert_eq!(job.order(), [1, 3, 2, 4]);
    job.feed(Input::Resize { size: 3 });
    job.exit(4, Exit::Code(0));
    assert_eq!(job.order(), [1, 3, 2]);
    assert!(!job.state().seating().any(|(worker, _)| worker == WorkerId(4)));
}
