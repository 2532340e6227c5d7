//! Calls that do not go together, members that leave, come late or never.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use grampus_collective::{CollectiveError, Group, Loss, Op, RawHandle, Request, Settings};
use grampus_core::{Clock, SystemClock};

use crate::support::{attempt, id, lobbies, members, pause, small, within};

const SECOND: Duration = Duration::from_secs(1);

fn all_reduce(group: &Group, count: usize, op: Op) -> Result<(), CollectiveError> {
    group.all_reduce(&mut vec![1.0_f32; count], op)
}

/// Runs `odd` on the last of three members and `usual` on the others; all must get the same error within a second,
/// and find the group ended afterwards. Then they meet again in a new generation.
fn clash(
    usual: impl Fn(&Group) -> Result<(), CollectiveError> + Send + Sync + 'static,
    odd: impl Fn(&Group) -> Result<(), CollectiveError> + Send + Sync + 'static,
) -> CollectiveError {
    within(30, move || {
        let lobbies = lobbies(3);
        let errors = attempt(&lobbies, 1, small(), |group| {
            let group = group.unwrap();
            group.barrier().unwrap();
            let clock = SystemClock::start();
            let error = if group.rank() == 2 {
                odd(&group)
            } else {
                usual(&group)
            }
            .unwrap_err();
            assert!(
                clock.now().since(grampus_core::Time::default()) < SECOND,
                "too late"
            );
            let again = group.barrier().unwrap_err();
            let CollectiveError::Ended { why } = &again else {
                panic!("{again}")
            };
            assert!(why.contains(&error.to_string()), "{why}");
            error
        });
        assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
        attempt(&lobbies, 2, small(), |group| {
            all_reduce(&group.unwrap(), 100, Op::Sum).unwrap()
        });
        errors[0].clone()
    })
}

fn mismatch(
    usual: impl Fn(&Group) -> Result<(), CollectiveError> + Send + Sync + 'static,
    odd: impl Fn(&Group) -> Result<(), CollectiveError> + Send + Sync + 'static,
    named: &[&str],
) {
    let error = clash(usual, odd);
    let CollectiveError::Mismatch { first, second } = &error else {
        panic!("{error}")
    };
    assert_eq!((first.rank, second.rank), (0, 2));
    for name in named {
        assert!(error.to_string().contains(name), "{error} does not say {name}");
    }
}

#[test]
fn different_lengths() {
    let named = [
        "rank 0 called all_reduce(sum) of 10 f32",
        "rank 2 called all_reduce(sum) of 11 f32",
        "call 1",
    ];
    mismatch(
        |group| all_reduce(group, 10, Op::Sum),
        |group| all_reduce(group, 11, Op::Sum),
        &named,
    );
    // One flat, one owned, one over many turns.
    mismatch(
        |group| all_reduce(group, 10, Op::Sum),
        |group| all_reduce(group, 500, Op::Sum),
        &[],
    );
    mismatch(
        |group| all_reduce(group, 50_000, Op::Sum),
        |group| all_reduce(group, 10, Op::Sum),
        &[],
    );
}

#[test]
fn different_types() {
    let odd = |group: &Group| group.all_reduce(&mut [1_i32; 10], Op::Sum);
    mismatch(
        |group| all_reduce(group, 10, Op::Sum),
        odd,
        &["of 10 f32", "of 10 i32"],
    );
}

#[test]
fn different_operations() {
    mismatch(
        |group| all_reduce(group, 10, Op::Sum),
        |group| all_reduce(group, 10, Op::Max),
        &["(sum)", "(max)"],
    );
}

#[test]
fn different_roots() {
    let with = |root| move |group: &Group| group.broadcast(&mut [1_u8; 10], root);
    mismatch(with(0), with(1), &["with root 0", "with root 1"]);
    let with = |root| move |group: &Group| group.reduce(&mut [1_u8; 10], Op::Sum, root);
    mismatch(with(0), with(1), &["with root 0", "with root 1"]);
}

#[test]
fn different_kinds() {
    mismatch(
        |group| group.barrier(),
        |group| all_reduce(group, 10, Op::Sum),
        &["barrier", "all_reduce"],
    );
    let odd = |group: &Group| group.norm(&[1.0_f32; 10]).map(drop);
    mismatch(
        |group| all_reduce(group, 10, Op::Sum),
        odd,
        &["all_reduce", "norm"],
    );
}

#[test]
fn different_parts() {
    let gather = |odd: usize| {
        move |group: &Group| {
            let mut parts: Vec<Vec<u8>> = vec![vec![0; 5], vec![0; odd], vec![0; 5]];
            let mut targets: Vec<&mut [u8]> = parts.iter_mut().map(Vec::as_mut_slice).collect();
            let mine = vec![1; targets[group.rank()].len()];
            group.all_gather(&mine, &mut targets)
        }
    };
    mismatch(gather(5), gather(6), &["all_gather", "with parts"]);
}

#[test]
fn a_started_call_against_a_blocking_one() {
    let started = |group: &Group| {
        group
            .all_reduce_async(vec![1.0_f32; 10], Op::Sum)?
            .wait()
            .map(drop)
    };
    mismatch(started, |group| group.barrier(), &["all_reduce", "barrier"]);
}

#[test]
fn all_to_all_with_sizes_that_do_not_fit() {
    let exchange = |sent: usize| {
        move |group: &Group| {
            let sources = [vec![1.0_f32; 4], vec![1.0; sent], vec![1.0; 4]];
            let mut targets = vec![vec![0.0_f32; 4]; 3];
            if group.rank() == 1 {
                targets[2] = vec![0.0; 7];
            }
            let sources: Vec<&[f32]> = sources.iter().map(Vec::as_slice).collect();
            let mut targets: Vec<&mut [f32]> = targets.iter_mut().map(Vec::as_mut_slice).collect();
            group.all_to_all(&sources, &mut targets)
        }
    };
    let error = clash(exchange(4), exchange(9));
    let CollectiveError::Disagree(text) = &error else {
        panic!("{error}")
    };
    assert!(
        text.contains("rank 2 sends 9 f32 to rank 1, which expects 7"),
        "{text}"
    );
}

#[test]
fn arguments_that_no_member_can_use_leave_the_group_as_it_was() {
    within(30, || {
        members(2, Settings::default(), |group| {
            let refused = |result: Result<(), CollectiveError>, says: &str| match result {
                Err(CollectiveError::Argument(text)) => assert!(text.contains(says), "{text}"),
                other => panic!("{other:?}"),
            };
            refused(group.broadcast(&mut [1_u8], 2), "no root 2 in a group of 2");
            refused(group.reduce(&mut [1_u8], Op::Sum, u32::MAX), "no root");
            refused(group.all_reduce(&mut [1_u8], Op::Mean), "no mean of u8");
            refused(group.all_reduce(&mut [1.0_f32], Op::And), "no and of f32");
            refused(group.norm(&[1_i32]).map(drop), "norm of i32");
            refused(
                group.reduce_scatter(&[1_u8; 5], &mut [1; 2], Op::Sum),
                "2 parts of 2 elements",
            );
            refused(group.gather(&[1_u8], &mut [&mut [1; 2]], 0), "equal length");
            refused(group.all_gather(&[1_u8], &mut [&mut [1; 1]]), "each of 2 ranks");
            refused(group.all_to_all(&[&[1_u8]], &mut [&mut [1]]), "each of 2 ranks");
            let parts = if group.rank() == 0 {
                vec![]
            } else {
                vec![&[1_u8][..]; 2]
            };
            refused(group.scatter(&parts, &mut [1], 0), "parts");
            all_reduce(group, 10, Op::Sum).unwrap();
        });
    });
}

fn lost(error: &CollectiveError) -> (u32, Loss) {
    match error {
        CollectiveError::PeerLost { rank, how, .. } => (*rank, *how),
        other => panic!("{other}"),
    }
}

#[test]
fn a_member_that_leaves_is_named() {
    let errors = within(20, || {
        members(3, Settings::default(), |group| {
            all_reduce(group, 10, Op::Sum).unwrap();
            (group.rank() != 1).then(|| all_reduce(group, 10, Op::Sum).unwrap_err())
        })
    });
    assert_eq!(errors[0], errors[2]);
    assert_eq!(lost(errors[0].as_ref().unwrap()), (1, Loss::Left));
}

/// Whatever happens after a call, it is through on all members or on none.
#[test]
fn a_call_that_is_through_for_one_is_through_for_all() {
    within(60, || {
        for _ in 0..100 {
            let firsts = members(3, Settings::default(), |group| {
                let first = all_reduce(group, 10, Op::Sum);
                // Rank 0 leaves at once; rank 2 notices, and ends the group, perhaps before rank 1 has looked.
                if group.rank() == 2 {
                    let _ = group.barrier();
                }
                first
            });
            assert!(firsts.iter().all(Result::is_ok), "{firsts:?}");
        }
    });
}

/// Rank 0 waits for rank 1, which only takes its time; that rank 2 is gone must show all the same.
#[test]
fn a_loss_behind_a_slow_member_is_noticed_at_once() {
    within(20, || {
        let noticed = AtomicBool::new(false);
        members(3, Settings::default(), |group| match group.rank() {
            0 => {
                let error = all_reduce(group, 10, Op::Sum).unwrap_err();
                noticed.store(true, Ordering::Release);
                assert_eq!(lost(&error), (2, Loss::Left));
            }
            1 => {
                let clock = SystemClock::start();
                while !noticed.load(Ordering::Acquire) {
                    assert!(
                        clock.now().since(grampus_core::Time::default()) < 5 * SECOND,
                        "not noticed"
                    );
                    pause(Duration::from_millis(5));
                }
                assert_eq!(
                    lost(&all_reduce(group, 10, Op::Sum).unwrap_err()),
                    (2, Loss::Left)
                );
            }
            _ => {}
        });
    });
}

#[test]
fn a_member_that_is_late_is_named() {
    let settings = Settings {
        deadline: Duration::from_millis(200),
        ..Settings::default()
    };
    let errors = within(20, move || {
        members(3, settings, |group| {
            if group.rank() == 2 {
                pause(SECOND);
            }
            all_reduce(group, 10, Op::Sum).unwrap_err()
        })
    });
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    assert_eq!(lost(&errors[0]), (2, Loss::Late));
}

#[test]
fn a_member_that_never_comes_is_named() {
    let settings = Settings {
        forming: Duration::from_millis(300),
        ..Settings::default()
    };
    within(20, move || {
        let (lobbies, cards) = lobbies(3);
        let formed = |rank: usize| lobbies[rank].form(&id(1), rank, &cards, &settings).err().unwrap();
        std::thread::scope(|scope| {
            let follower = scope.spawn(|| formed(1));
            let error = formed(0);
            let CollectiveError::Form { why } = &error else {
                panic!("{error}")
            };
            assert!(why.contains("rank 2 on here"), "{why}");
            assert!(matches!(follower.join().unwrap(), CollectiveError::Form { .. }));
        });
        // Without the first, the others name the first.
        let error = formed(1).to_string();
        assert!(error.contains("rank 0 on here"), "{error}");
        let (lobby, cards) = (&lobbies[0], &cards[1..]);
        assert!(
            lobby.form(&id(1), 0, cards, &settings).is_err(),
            "took the card of another"
        );
    });
}

/// Which way a sum takes is up to the settings: members that differ in them would wait for each other in vain.
#[test]
fn settings_that_differ_cannot_go_wrong() {
    within(30, || {
        let (lobbies, cards) = lobbies(2);
        let usual = Settings::default();
        let odd = [Settings { flat: 64, ..usual }, Settings { slot: 4096, ..usual }];
        for (generation, odd) in odd.into_iter().enumerate() {
            let member = |rank: usize, settings: Settings| {
                let group = lobbies[rank].form(&id(generation as u64), rank, &cards, &settings)?;
                let mut buffer = vec![rank as f32 + 1.0; 2000];
                group.all_reduce(&mut buffer, Op::Sum)?;
                assert!(buffer.iter().all(|value| *value == 3.0), "a wrong sum");
                Ok::<(), CollectiveError>(())
            };
            std::thread::scope(|scope| {
                let other = scope.spawn(|| member(1, odd));
                let (first, second) = (member(0, usual), other.join().unwrap());
                assert_eq!(first.is_ok(), second.is_ok(), "{first:?} {second:?}");
            });
        }
    });
}

#[test]
fn slots_of_no_bytes_are_made_large_enough() {
    within(20, || {
        let settings = Settings {
            slot: 0,
            ..Settings::default()
        };
        members(2, settings, |group| {
            all_reduce(group, 10_000, Op::Sum).unwrap();
            group.broadcast(&mut [1_u8; 100], 0).unwrap();
        });
    });
}

fn start(group: &Group, buffer: &mut [f32]) -> RawHandle {
    let request = Request::AllReduce {
        dtype: grampus_collective::DType::F32,
        op: Op::Sum,
        buffer: (buffer.as_mut_ptr().cast(), buffer.len()),
    };
    // SAFETY: the tests keep the buffer until the group is gone.
    unsafe { group.start_call(request, Box::new(())) }.unwrap()
}

#[test]
fn whoever_gives_up_ends_the_group_for_all() {
    let errors = within(20, || {
        members(3, Settings::default(), |group| match group.rank() {
            0 => {
                let clock = SystemClock::start();
                let late = || clock.now().since(grampus_core::Time::default()) > SECOND / 10;
                // SAFETY: a barrier has no memory.
                unsafe { group.call(Request::Barrier, &late) }.unwrap_err()
            }
            1 => group.barrier().unwrap_err(),
            _ => {
                pause(SECOND / 2);
                group.barrier().unwrap_err()
            }
        })
    });
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    assert!(
        matches!(&errors[0], CollectiveError::GaveUp { rank: 0, .. }),
        "{errors:?}"
    );
}

/// The call that is waited for is not the one that hangs: giving up must end both.
#[test]
fn giving_up_a_later_call_ends_those_before_it() {
    let buffers: &'static _ = Box::leak(Box::new(std::sync::Mutex::new(vec![vec![1.0_f32; 10]; 3])));
    within(20, move || {
        members(2, Settings::default(), move |group| {
            if group.rank() == 1 {
                pause(3 * SECOND);
                return;
            }
            let mut buffers = buffers.lock().unwrap();
            let handles: Vec<RawHandle> = buffers.iter_mut().map(|buffer| start(group, buffer)).collect();
            // By now the group's own thread drives the first.
            pause(SECOND / 10);
            let clock = SystemClock::start();
            let error = handles[2].wait(&|| true).unwrap_err();
            assert!(
                clock.now().since(grampus_core::Time::default()) < SECOND,
                "giving up took too long"
            );
            assert!(matches!(error, CollectiveError::Ended { .. }), "{error}");
            let first = handles[0].wait(&|| false).unwrap_err();
            assert!(
                matches!(first, CollectiveError::GaveUp { rank: 0, .. }),
                "{first}"
            );
        });
    });
}

/// The thread that waits may be held up, such as by an interpreter's lock; the process lives all the same.
#[test]
fn a_member_whose_waiting_thread_is_held_up_is_not_silent() {
    let buffers: &'static _ = Box::leak(Box::new(std::sync::Mutex::new(vec![vec![1.0_f32; 5000]; 2])));
    within(20, move || {
        let settings = Settings {
            silence: Duration::from_millis(300),
            ..small()
        };
        members(2, settings, move |group| {
            if group.rank() == 1 {
                pause(SECOND / 5);
                return group.all_reduce(&mut vec![1.0_f32; 5000], Op::Sum).unwrap();
            }
            let mut buffers = buffers.lock().unwrap();
            let handle = start(group, &mut buffers[0]);
            let held = AtomicBool::new(false);
            let holds = || {
                if !held.swap(true, Ordering::AcqRel) {
                    pause(SECOND);
                }
                false
            };
            handle.wait(&holds).unwrap();
            assert!(buffers[0].iter().all(|value| *value == 2.0));
        });
    });
}

/// Handles may outlive their group; what was not through is given up.
#[test]
fn handles_outlive_their_group() {
    within(20, || {
        let lobbies = lobbies(2);
        attempt(&lobbies, 1, Settings::default(), |group| {
            let group = group.unwrap();
            if group.rank() == 1 {
                pause(SECOND / 2);
                return;
            }
            let handle = group.all_reduce_async(vec![1.0_f32; 10], Op::Sum).unwrap();
            drop(group);
            assert!(handle.is_done());
            assert!(handle.wait().is_err());
        });
    });
}

/// Debug builds notice that a buffer was changed before its member summed its part, and tell all.
#[test]
#[cfg(debug_assertions)]
fn a_buffer_that_changes_in_flight_is_noticed() {
    let errors = within(20, || {
        let changed = std::sync::Barrier::new(2);
        members(2, Settings::default(), |group| {
            let mut buffer = vec![1.0_f32; 60_000];
            let place = buffer.as_mut_ptr();
            let request = Request::AllReduce {
                dtype: grampus_collective::DType::F32,
                op: Op::Sum,
                buffer: (place.cast(), buffer.len()),
            };
            if group.rank() == 1 {
                changed.wait();
                return group.all_reduce(&mut buffer, Op::Sum).unwrap_err();
            }
            // SAFETY: the buffer lives until the call is through; that it is written meanwhile is the point.
            let handle = unsafe { group.start_call(request, Box::new(())) }.unwrap();
            // SAFETY: inside the buffer.
            unsafe { place.write_volatile(2.0) };
            changed.wait();
            handle.wait(&|| false).unwrap_err()
        })
    });
    for error in errors {
        assert!(
            error
                .to_string()
                .contains("changed while a call on it was on its way"),
            "{error}"
        );
    }
}
