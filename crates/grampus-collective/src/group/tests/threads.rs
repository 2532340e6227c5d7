//! Threads of one member that call at once, and members that leave while letters are under way.

use std::sync::mpsc::channel;
use std::time::Duration;

use super::{on_hosts, pause, settings};
use crate::group::{Letter, Way};
use crate::numerics::{DType, Op};

/// A call that is half way must not be taken for none.
#[test]
fn calls_of_two_threads_do_not_mix() {
    const CALLS: usize = 6000;
    let settings = crate::Settings {
        slot: 4096,
        flat: 64,
        ..settings()
    };
    on_hosts(&[1, 1], settings, |group| {
        let right = |buffer: &[f32]| assert!(buffer.iter().all(|value| *value == 2.0), "a wrong sum");
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..CALLS {
                        let mut buffer = [1.0_f32; 100];
                        group.all_reduce(&mut buffer, Op::Sum).unwrap();
                        right(&buffer);
                    }
                });
                scope.spawn(|| {
                    for _ in 0..CALLS {
                        let started = group.all_reduce_async([1.0_f32; 100], Op::Sum).unwrap();
                        right(&started.wait().unwrap());
                    }
                });
            }
        });
    });
}

/// What waits for a letter's group to form ends, also where the whole group is left in that moment.
#[test]
fn no_letter_is_left_behind_when_the_group_is_left() {
    const TAGS: u32 = 16;
    for round in 0..15 {
        let handles: Vec<_> = on_hosts(&[1, 1], settings(), |group| {
            let other = 1 - group.rank();
            let way = if other == 1 {
                Way::To(other)
            } else {
                Way::From(other)
            };
            let memory: &'static mut [u8] = Vec::leak(vec![0; TAGS as usize]);
            let handles: Vec<_> = memory
                .chunks_mut(1)
                .zip(0..)
                .map(|(byte, tag)| {
                    let letter = Letter {
                        dtype: DType::U8,
                        buffer: (byte.as_mut_ptr(), 1),
                        way,
                        tag,
                    };
                    // SAFETY: the memory is never given back.
                    unsafe { group.start_mail(letter, Box::new(())) }.unwrap()
                })
                .collect();
            // Some have formed by then, and some are about to.
            pause(Duration::from_micros(500 * round));
            drop(group);
            handles
        });
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for handle in handles.into_iter().flatten() {
                let _ = handle.wait(&|| false);
            }
            let _ = sender.send(());
        });
        let ended = receiver.recv_timeout(Duration::from_secs(30));
        assert!(ended.is_ok(), "a letter waits for ever");
    }
}
