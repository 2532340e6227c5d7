//! A driver and one member in this process, over a link in memory.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::Bytes;
use grampus_core::{Outcome, Rank, TaskId, WorkerId};
use grampus_net::memory_pair;

use super::{Cluster, Happened, Listen, Plan, Ranks, TaskEnd};
use crate::agent::{Agent, AgentError, Introduction, LARGEST_REPORT, Way, Work};
use crate::coordinator::Options;
use crate::payload::Payload;

const LONG: Duration = Duration::from_secs(20);

fn start() -> (Cluster, Agent) {
    let plan = Plan {
        options: Options::awaited(1),
        listen: Listen::Nowhere,
        identity: None,
        title: "test".to_owned(),
        log_dir: None,
        writes_logs: false,
    };
    let cluster = Cluster::start(plan, &mut |_, _| Ok(None)).unwrap();
    let (near, far) = memory_pair("worker", "coordinator");
    cluster.attach(near);
    let introduction = Introduction {
        worker: WorkerId(1),
        slot: None,
        ranks: 1,
        node: false,
        host: String::new(),
        card: Vec::new(),
        silent_after: Duration::from_secs(3),
        on_cancel: Box::new(|_| ()),
        on_rank_lost: Box::new(|_, _| ()),
        on_inspect: Box::new(|idle| format!("idle for {idle:?}").into_bytes()),
        on_lost: Box::new(|_| ()),
    };
    let here = Way::Here(Box::new(far), IpAddr::V4(Ipv4Addr::LOCALHOST));
    let agent = Agent::join(here, introduction).unwrap();
    (cluster, agent)
}

fn begin(agent: &Agent) -> TaskId {
    let Some(Work::Task(assignment)) = agent.next(LONG) else {
        panic!("no task came");
    };
    assert!(agent.begin(assignment.task.id));
    assignment.task.id
}

fn finish(agent: &Agent, task: TaskId) {
    agent.settle();
    agent.finish(task, Outcome::Ok, Payload::default(), false);
}

/// All that happens until the end, which must come.
fn until_end(cluster: &Cluster, task: TaskId) -> Vec<(Rank, Bytes)> {
    let mut reports = Vec::new();
    loop {
        let Happened {
            reports: more, end, ..
        } = cluster.board().look_at(task, LONG);
        assert!(!more.is_empty() || end.is_some(), "nothing happened");
        reports.extend(more);
        if let Some(end) = end {
            assert!(matches!(end, TaskEnd::Returned(_)));
            return reports;
        }
    }
}

fn report(agent: &Agent, task: TaskId, body: impl Into<Bytes>) {
    let mut receipt = agent.report(task, body.into()).unwrap();
    assert!(receipt.wait(LONG));
}

#[test]
fn reports_come_at_once_in_order_and_before_the_end() {
    let (cluster, agent) = start();
    let task = cluster.submit(Ranks::exactly(1), 0, false, Payload::default());
    assert_eq!(begin(&agent), task);
    report(&agent, task, "first");
    let happened = cluster.board().look_at(task, LONG);
    assert_eq!(happened.reports, [(Rank(0), Bytes::from("first"))]);
    assert!(happened.end.is_none());

    let bodies: Vec<Bytes> = (0..1000).map(|number| number.to_string().into()).collect();
    for body in &bodies {
        // Nobody waits for receipts: the end must stay behind them all the same.
        drop(agent.report(task, body.clone()).unwrap());
    }
    finish(&agent, task);
    let wanted: Vec<_> = bodies.into_iter().map(|body| (Rank(0), body)).collect();
    assert_eq!(until_end(&cluster, task), wanted);
}

#[test]
fn reports_of_other_tasks_and_of_those_that_are_over_are_dropped() {
    let (cluster, agent) = start();
    let first = cluster.submit(Ranks::exactly(1), 0, false, Payload::default());
    begin(&agent);
    report(&agent, TaskId(99), "of no task");
    finish(&agent, first);
    assert_eq!(until_end(&cluster, first), []);

    let second = cluster.submit(Ranks::exactly(1), 0, false, Payload::default());
    begin(&agent);
    report(&agent, first, "too late");
    report(&agent, second, "in time");
    finish(&agent, second);
    assert_eq!(until_end(&cluster, second), [(Rank(0), Bytes::from("in time"))]);
    assert!(cluster.board().look_at(first, Duration::ZERO).reports.is_empty());
}

/// Asks where a task stands; what was said to the member before has been heard when the answer comes.
fn inspected(cluster: &Cluster, task: TaskId) -> Vec<(Rank, Bytes)> {
    cluster.inspector()(task, Duration::from_millis(1500));
    cluster.board().look_at(task, LONG).reports
}

#[test]
fn a_task_is_asked_where_it_stands_while_its_thread_does_something_else() {
    let (cluster, agent) = start();
    let task = cluster.submit(Ranks::exactly(1), 0, true, Payload::default());
    begin(&agent);
    cluster.inspector()(TaskId(99), LONG);
    assert_eq!(
        inspected(&cluster, task),
        [(Rank(0), Bytes::from("idle for 1.5s"))]
    );
    agent.settle();
    // It has ended here, and nobody knows yet.
    cluster.inspector()(task, LONG);
    agent.finish(task, Outcome::Ok, Payload::default(), false);
    assert_eq!(until_end(&cluster, task), []);
}

#[test]
fn a_task_that_is_to_yield_may_still_be_asked_to_save() {
    let (cluster, agent) = start();
    let task = cluster.submit(Ranks::exactly(1), 0, true, Payload::default());
    begin(&agent);
    let ask = cluster.yielder();
    for (save, wanted) in [(false, false), (true, true), (false, true)] {
        ask(task, save);
        inspected(&cluster, task);
        assert_eq!(agent.asked_to_yield(), Some(wanted));
    }
    finish(&agent, task);
    until_end(&cluster, task);
}

#[test]
fn reports_that_nobody_waits_for_are_not_kept() {
    let (cluster, agent) = start();
    let task = cluster.submit(Ranks::exactly(1), 0, false, Payload::default());
    begin(&agent);
    report(&agent, task, "unseen");
    assert!(!cluster.board().forget(task));
    report(&agent, task, "unwanted");
    finish(&agent, task);

    // What is said on one link is handled in its order: once this one is over, the other was dealt with.
    let next = cluster.submit(Ranks::exactly(1), 0, false, Payload::default());
    begin(&agent);
    finish(&agent, next);
    assert_eq!(until_end(&cluster, next), []);
    assert!(cluster.board().look_at(task, Duration::ZERO).reports.is_empty());
}

#[test]
fn the_largest_report_is_carried_and_a_larger_one_refused() {
    let (cluster, agent) = start();
    let task = cluster.submit(Ranks::exactly(1), 0, false, Payload::default());
    begin(&agent);
    let refused = agent.report(task, vec![0; LARGEST_REPORT + 1].into());
    assert!(matches!(refused, Err(AgentError::ReportTooLarge { size }) if size == LARGEST_REPORT + 1));
    report(&agent, task, vec![7; LARGEST_REPORT]);
    report(&agent, task, "");
    finish(&agent, task);
    let sizes: Vec<usize> = until_end(&cluster, task)
        .iter()
        .map(|(_, body)| body.len())
        .collect();
    assert_eq!(sizes, [LARGEST_REPORT, 0]);
}
