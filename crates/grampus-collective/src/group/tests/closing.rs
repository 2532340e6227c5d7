//! Members that leave while other references to their group live, or other threads are in a call.

use std::sync::Arc;
use std::time::Duration;

use super::{Gate, on_hosts, pause, settings, since};
use crate::group::{Group, Letter, Way};
use crate::numerics::{DType, Op};
use crate::shared::monotonic;
use crate::{CollectiveError, Loss};

/// Far less than the deadline of calls, and enough for a machine under load.
const SOON: Duration = Duration::from_secs(5);

fn sum(group: &Group) -> Result<(), CollectiveError> {
    group.all_reduce(&mut [1.0_f32; 1000], Op::Sum)
}

#[test]
fn a_member_that_closes_has_left_whatever_refers_to_the_group() {
    for places in [&[1, 1][..], &[1, 2], &[1, 2, 1]] {
        let formed = Gate::default();
        let errors = on_hosts(places, settings(), |group| {
            formed.pass(places.len());
            if group.rank() != 1 {
                let began = monotonic();
                let error = sum(&group).unwrap_err();
                assert!(since(began) < SOON, "{:?}: {error}", since(began));
                return Some(error);
            }
            let group = Arc::new(group);
            let other = Arc::clone(&group);
            group.close();
            assert!(!other.notice().is_open());
            for error in [
                sum(&other).unwrap_err(),
                other.all_reduce_async([1.0_f32; 8], Op::Sum).err().unwrap(),
                other.send(&[1.0_f32; 8], 0, 1).unwrap_err(),
            ] {
                let text = error.to_string();
                assert!(
                    text.starts_with("the group has ended (this member closed it)"),
                    "{text}"
                );
            }
            other.close();
            // The others have heard it by now, although the group is still referred to.
            pause(SOON / 2);
            None
        });
        for (rank, error) in errors.iter().enumerate() {
            match error {
                None if rank == 1 => {}
                Some(CollectiveError::PeerLost {
                    rank: 1,
                    how: Loss::Left,
                    ..
                }) => {}
                _ => panic!("rank {rank} at {places:?}: {error:?}"),
            }
        }
    }
}

#[test]
fn a_call_of_another_thread_ends_when_the_group_is_closed() {
    for places in [[1, 1], [1, 2]] {
        let formed = Gate::default();
        on_hosts(&places, settings(), |group| {
            formed.pass(2);
            if group.rank() == 0 {
                // It comes too late.
                pause(Duration::from_secs(1));
                assert!(sum(&group).is_err());
                return;
            }
            let began = monotonic();
            std::thread::scope(|scope| {
                let calls: Vec<_> = (0..2).map(|_| scope.spawn(|| sum(&group))).collect();
                let started = group.all_reduce_async([1.0_f32; 8], Op::Sum);
                pause(Duration::from_millis(200));
                // Both do the same, and neither returns before the group has been left.
                let second = scope.spawn(|| group.close());
                group.close();
                second.join().unwrap();
                for call in calls {
                    assert!(call.join().unwrap().is_err());
                }
                assert!(started.unwrap().wait().is_err());
            });
            assert!(since(began) < SOON, "{:?}", since(began));
        });
    }
}

#[test]
fn a_letter_of_another_thread_ends_when_the_group_is_closed() {
    on_hosts(&[1, 1], settings(), |group| {
        let mut first = [0_u8; 4];
        match group.rank() {
            0 => group.send(&first, 1, 7).unwrap(),
            _ => group.recv(&mut first, 0, 7).unwrap(),
        }
        if group.rank() == 0 {
            pause(Duration::from_secs(1));
            return;
        }
        let began = monotonic();
        std::thread::scope(|scope| {
            // One waits in a group of two that has formed, the other for one to form.
            let letters: Vec<_> = [7, 8]
                .map(|tag| {
                    let group = &group;
                    scope.spawn(move || {
                        let mut byte = [0_u8];
                        let letter = Letter {
                            dtype: DType::U8,
                            buffer: (byte.as_mut_ptr(), 1),
                            way: Way::From(0),
                            tag,
                        };
                        // SAFETY: the memory lives until the call is through.
                        unsafe { group.mail(letter, &|| false) }
                    })
                })
                .into();
            pause(Duration::from_millis(200));
            group.close();
            for letter in letters {
                assert!(letter.join().unwrap().is_err());
            }
        });
        assert!(since(began) < SOON, "{:?}", since(began));
    });
}
