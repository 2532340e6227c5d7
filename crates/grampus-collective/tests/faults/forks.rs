//! Members that fork, as data loaders do: the children inherit the group's memory and must not disturb it.

use std::time::Duration;

use grampus_collective::{CollectiveError, Group, Op};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::member::say;
use crate::support::{pause, within};
use crate::team::Team;
use crate::{GRACE, all_name};

/// Seeds that make rank 1 fork a child that stays, and one that drops what it inherited.
const STAYS: u64 = 1_000_001;
const DROPS: u64 = 1_000_002;

pub fn play(group: &Group, seed: u64) -> Result<(), CollectiveError> {
    match (seed, group.rank()) {
        (STAYS, 1) => {
            let child = fork(|| {
                loop {
                    // SAFETY: only waits for a signal.
                    unsafe { libc::pause() };
                }
            });
            say(&format!("child {}", child.as_raw_nonzero()));
            Ok(())
        }
        (DROPS, _) => drops(group),
        _ => Ok(()),
    }
}

fn fork(child: impl FnOnce()) -> Pid {
    // SAFETY: the child makes no use of what other threads of this process held at this moment.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: ends it where it hangs, and without any of the parent's cleaning up.
            unsafe { libc::alarm(20) };
            child();
            // SAFETY: as above.
            unsafe { libc::_exit(0) }
        }
        child => Pid::from_raw(child).unwrap(),
    }
}

/// A child that ends like any program, dropping all it has.
fn drops(group: &Group) -> Result<(), CollectiveError> {
    let mut shared = group.shared::<f32>(100_000)?;
    shared.fill(1.0);
    let child = fork(|| {
        // SAFETY: each is dropped once in this process.
        drop(unsafe { std::ptr::read(&shared) });
        // SAFETY: as above.
        drop(unsafe { std::ptr::read(group) });
    });
    let ended = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap().1;
    assert_eq!(ended.exit_status(), Some(0), "the child hung");
    assert!(
        shared.iter().all(|value| *value == 1.0),
        "a child freed its parent's memory"
    );
    group.all_reduce(&mut shared, Op::Sum)?;
    assert!(shared.iter().all(|value| *value == group.size() as f32));
    Ok(())
}

/// A lock of the process is not inherited; a socket would have been, and hidden the death.
#[test]
fn a_member_with_a_living_child_is_still_seen_to_die() {
    within(60, || {
        let mut team = Team::start(4, Duration::from_secs(15));
        let child = team.form_with(STAYS, |team| team.member(1).hear("child", GRACE));
        let child = Pid::from_raw(child.parse().unwrap()).unwrap();
        pause(Duration::from_millis(5));
        team.signal(1, Signal::KILL);
        all_name(&mut team, 1, "its process ended", GRACE);
        kill_process(child, Signal::KILL).unwrap();
    });
}

#[test]
fn children_that_drop_what_they_inherited_change_nothing() {
    within(60, || {
        let mut team = Team::start(4, Duration::from_secs(15));
        team.form(DROPS);
        team.signal(2, Signal::KILL);
        all_name(&mut team, 2, "its process ended", GRACE);
    });
}
