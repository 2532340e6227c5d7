//! A member that is stopped while it writes into the buffers of others, and goes on when they use them for new things.

use std::time::Duration;

use grampus_collective::{CollectiveError, Group, Op};
use rustix::process::Signal;

use crate::member::{say, told};
use crate::support::{pause, random, within};
use crate::team::Team;
use crate::{GRACE, all_name, seed};

/// A seed that makes members reduce one large shared buffer, and use it again after the error.
const REUSES: u64 = 2_000_001;
/// Large enough that most of the time is spent in sums.
const COUNT: usize = 8 << 20;

/// The error that ended it; nothing where the seed means something else.
pub fn play(group: &Group, seed: u64) -> Option<CollectiveError> {
    if seed != REUSES {
        return None;
    }
    let mut shared = group.shared::<f32>(COUNT).unwrap();
    let error = loop {
        shared.fill(1.0);
        if let Err(error) = group.all_reduce(&mut shared, Op::Sum) {
            break error;
        }
    };
    // From here on the buffer is this member's alone.
    shared.fill(5.0);
    say(&format!("error {error}"));
    assert_eq!(told().as_deref(), Some("look"));
    let changed = shared.iter().filter(|value| **value != 5.0).count();
    say(&format!("changed {changed}"));
    Some(error)
}

#[test]
fn a_stopped_member_does_not_write_into_what_others_use_again() {
    within(120, || {
        let (seed, silence) = (seed(), Duration::from_millis(500));
        let mut team = Team::start(4, silence);
        for round in 0..5 {
            team.form(REUSES);
            pause(Duration::from_millis(20 + random(seed, round) % 60));
            team.signal(3, Signal::STOP);
            all_name(&mut team, 3, "gives no sign of life", silence + GRACE);
            team.signal(3, Signal::CONT);
            team.error(3, GRACE);
            for rank in 0..4 {
                team.member(rank).tell("look");
                assert_eq!(
                    team.member(rank).hear("changed", GRACE),
                    "0",
                    "of rank {rank}, round {round}"
                );
                team.error(rank, GRACE);
            }
        }
    });
}
