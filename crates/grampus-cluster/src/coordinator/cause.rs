//! Which of several failures came first.

use super::state::Failed;

/// The index of the first cause, and why it is that one.
///
/// Failures are in the order of their arrival. When a rank dies or raises, its peers may raise for their broken
/// connections, and their reports may overtake its own; so an error that looks like a consequence gives way
/// to one that does not. A worker marks what it raises after it was told to end as a consequence, so what
/// arrives without that mark while others are being cancelled has crossed the order to end on its way.
pub fn first_cause(failures: &[Failed]) -> Option<(usize, &'static str)> {
    let by_itself = |failed: &Failed| !failed.after_cancel && !failed.what.failure.is_consequence();
    let died = |failed: &Failed| failed.what.failure.is_loss();
    let find = |test: &dyn Fn(&Failed) -> bool, why| failures.iter().position(test).map(|index| (index, why));
    find(&by_itself, "it failed first")
        .or_else(|| find(&died, "it died, and the errors of the others followed from that"))
        .or_else(|| {
            find(
                &|failed| !failed.what.failure.is_consequence(),
                "the errors of the others followed from it",
            )
        })
        .or_else(|| find(&|failed| !failed.after_cancel, "it failed first"))
        .or_else(|| find(&|_| true, "it is the only failure"))
}

#[cfg(test)]
mod tests {
    use grampus_core::{Exit, Failure, Rank, RankFailure};

    use super::*;

    fn failed(rank: u32, failure: Failure, after_cancel: bool) -> Failed {
        Failed {
            what: RankFailure {
                rank: Rank(rank),
                host: "h".into(),
                pid: 1,
                failure,
            },
            after_cancel,
        }
    }

    fn raised(consequence: bool) -> Failure {
        Failure::Raised {
            kind: "E".into(),
            message: String::new(),
            traceback: String::new(),
            consequence,
        }
    }

    fn died() -> Failure {
        Failure::Exited {
            exit: Exit::Signal(9),
            log_tail: String::new(),
        }
    }

    #[test]
    fn the_earliest_own_failure_wins() {
        let failures = [failed(1, raised(false), false), failed(0, died(), true)];
        assert_eq!(first_cause(&failures).map(|(index, _)| index), Some(0));
    }

    #[test]
    fn a_death_beats_the_broken_connections_that_were_reported_before_it() {
        let failures = [failed(0, raised(true), false), failed(1, died(), true)];
        assert_eq!(first_cause(&failures).map(|(index, _)| index), Some(1));
    }

    #[test]
    fn a_lost_connection_beats_the_errors_of_its_peers_too() {
        let lost = Failure::LinkLost { why: "reset".into() };
        let failures = [
            failed(0, raised(true), false),
            failed(2, raised(false), true),
            failed(1, lost, true),
        ];
        assert_eq!(first_cause(&failures).map(|(index, _)| index), Some(2));
    }

    #[test]
    fn an_own_error_whose_report_was_overtaken_by_its_consequence_takes_the_blame() {
        let failures = [failed(0, raised(true), false), failed(1, raised(false), true)];
        assert_eq!(first_cause(&failures).map(|(index, _)| index), Some(1));
    }

    #[test]
    fn an_error_raised_while_being_cancelled_does_not_take_the_blame() {
        let failures = [failed(0, raised(true), false), failed(1, raised(true), true)];
        assert_eq!(first_cause(&failures).map(|(index, _)| index), Some(0));
    }

    #[test]
    fn no_failure_has_no_cause() {
        assert_eq!(first_cause(&[]), None);
    }
}
