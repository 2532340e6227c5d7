//! What reduces, over all operations, types, sizes and ways.

use grampus_collective::numerics::check;
use grampus_collective::{Group, Op, Settings};
use half::{bf16, f16};

use crate::support::sample::{Sample, all_bits, buffer, reduced};
use crate::support::{members, small, within};

/// Nothing, one, odd, and around a cache line.
fn sizes<T>() -> Vec<usize> {
    let line = 64 / size_of::<T>();
    vec![0, 1, 7, line - 1, line, line + 1, 1031]
}

fn ops<T: Sample>() -> impl Iterator<Item = Op> {
    Op::ALL.into_iter().filter(|op| check(*op, T::DTYPE).is_ok())
}

fn inputs<T: Sample>(group: &Group, seed: u64, count: usize) -> Vec<Vec<T>> {
    (0..group.size()).map(|rank| buffer(seed, rank, count)).collect()
}

fn all_reduce<T: Sample>(group: &Group, count: usize, op: Op) {
    let inputs = inputs::<T>(group, 1, count);
    let mut mine = inputs[group.rank()].clone();
    group.all_reduce(&mut mine, op).unwrap();
    let what = format!("all_reduce({op}) of {count} {}", T::DTYPE);
    assert_eq!(all_bits(&mine), all_bits(&reduced(&inputs, op)), "{what}");
}

fn reduce<T: Sample>(group: &Group, count: usize, op: Op) {
    let inputs = inputs::<T>(group, 2, count);
    let root = count % group.size();
    let mut mine = inputs[group.rank()].clone();
    group.reduce(&mut mine, op, root as u32).unwrap();
    let expected = if group.rank() == root {
        reduced(&inputs, op)
    } else {
        inputs[group.rank()].clone()
    };
    let what = format!("reduce({op}) of {count} {} to {root}", T::DTYPE);
    assert_eq!(all_bits(&mine), all_bits(&expected), "{what}");
}

fn reduce_scatter<T: Sample>(group: &Group, count: usize, op: Op) {
    let inputs = inputs::<T>(group, 3, count * group.size());
    let mut mine = buffer(4, 0, count);
    group
        .reduce_scatter(&inputs[group.rank()], &mut mine, op)
        .unwrap();
    let all = reduced(&inputs, op);
    let expected = &all[group.rank() * count..][..count];
    let what = format!("reduce_scatter({op}) of {count} {}", T::DTYPE);
    assert_eq!(all_bits(&mine), all_bits(expected), "{what}");
}

fn every_op<T: Sample>(group: &Group) {
    for count in sizes::<T>() {
        for op in ops::<T>() {
            all_reduce::<T>(group, count, op);
            reduce::<T>(group, count, op);
            reduce_scatter::<T>(group, count, op);
        }
    }
}

fn every_type(size: usize, settings: Settings) {
    members(size, settings, |group| {
        every_op::<f32>(group);
        every_op::<f64>(group);
        every_op::<f16>(group);
        every_op::<bf16>(group);
        every_op::<i8>(group);
        every_op::<u8>(group);
        every_op::<i32>(group);
        every_op::<i64>(group);
        every_op::<bool>(group);
    });
}

#[test]
fn equal_the_serial_result() {
    within(120, || {
        for size in 1..=8 {
            every_type(size, Settings::default());
        }
    });
}

#[test]
fn equal_the_serial_result_over_many_turns() {
    within(120, || {
        for size in [1, 2, 3, 5, 8] {
            every_type(size, small());
        }
    });
}

/// Large enough that buffers in the arena are reduced where they lie.
#[test]
fn large_buffers_do_not_depend_on_where_they_lie() {
    fn ways<T: Sample>(group: &Group, count: usize, op: Op) {
        let inputs = inputs::<T>(group, 5, count);
        let expected = all_bits(&reduced(&inputs, op));
        // All in the arena, one of them, all but one, none.
        let placements: [&dyn Fn(usize) -> bool; 4] =
            [&|_| true, &|rank| rank == 0, &|rank| rank != 0, &|_| false];
        for (way, in_arena) in placements.into_iter().enumerate() {
            let mine = &inputs[group.rank()];
            let mut private = mine.clone();
            let mut shared = group.shared::<T>(count).unwrap();
            shared.copy_from_slice(mine);
            let root = way % group.size();
            let lent: &mut [T] = if in_arena(group.rank()) {
                &mut shared
            } else {
                &mut private
            };
            group.reduce(lent, op, root as u32).unwrap();
            let got = all_bits(lent);
            if group.rank() == root {
                assert!(got == expected, "reduce({op}) of {count} {}, way {way}", T::DTYPE);
            } else {
                assert!(got == all_bits(mine), "reduce wrote elsewhere, way {way}");
            }
            lent.copy_from_slice(mine);
            group.all_reduce(lent, op).unwrap();
            assert!(
                all_bits(lent) == expected,
                "all_reduce({op}) of {count} {}, way {way}",
                T::DTYPE
            );
        }
    }
    within(120, || {
        for size in [1, 2, 3, 8] {
            members(size, Settings::default(), |group| {
                ways::<f32>(group, (1 << 18) + 3, Op::Mean);
                ways::<bf16>(group, (1 << 18) + 3, Op::Sum);
            });
            members(size, small(), |group| {
                ways::<f32>(group, 5003, Op::Sum);
                ways::<f64>(group, 4097, Op::Max);
                ways::<f16>(group, 9001, Op::Mean);
                ways::<i8>(group, 12_289, Op::Product);
                ways::<i64>(group, 1023, Op::And);
                ways::<bool>(group, 8193, Op::Or);
            });
        }
    });
}

/// A part of a shared buffer that begins in the middle of a page, or ends there.
#[test]
fn parts_of_shared_buffers_leave_the_rest_alone() {
    within(60, || {
        members(3, small(), |group| {
            let inputs = inputs::<f32>(group, 6, 9000);
            let mut shared = group.shared::<f32>(9000).unwrap();
            shared.copy_from_slice(&inputs[group.rank()]);
            let expected = reduced(&inputs, Op::Sum);
            group.all_reduce(&mut shared[1..8192], Op::Sum).unwrap();
            assert_eq!(all_bits(&shared[1..8192]), all_bits(&expected[1..8192]));
            let kept = &inputs[group.rank()];
            assert_eq!(shared[0].bits(), kept[0].bits());
            assert_eq!(all_bits(&shared[8192..]), all_bits(&kept[8192..]));
        });
    });
}

#[test]
fn buffers_that_were_given_back_come_again_zeroed() {
    within(60, || {
        members(2, small(), |group| {
            for round in 0..20 {
                let count = 3000 + 777 * (round % 5);
                let mut shared = group.shared::<f64>(count).unwrap();
                assert!(shared.iter().all(|value| value.to_bits() == 0));
                shared.fill(1.5);
                group.all_reduce(&mut shared, Op::Sum).unwrap();
                assert!(shared.iter().all(|value| *value == 3.0));
            }
            let many: Vec<_> = (1..50)
                .map(|pages| group.shared::<u8>(pages * 4096).unwrap())
                .collect();
            let mut ranges: Vec<_> = many.iter().map(|one| one.as_ptr_range()).collect();
            ranges.sort_by_key(|range| range.start);
            assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
        });
    });
}

/// In the end far more has been taken than the host has, a little at a time.
#[test]
fn room_that_was_given_back_is_used_for_larger_buffers() {
    within(60, || {
        members(3, Settings::default(), |group| {
            for step in 1..120 {
                let len = step << 22;
                let one = group.shared::<u8>(len).unwrap();
                group.barrier().unwrap();
                drop(one);
                let two = [
                    group.shared::<u8>(len / 2).unwrap(),
                    group.shared::<u8>(len / 3).unwrap(),
                ];
                group.barrier().unwrap();
                drop(two);
            }
        });
    });
}

#[test]
fn shared_memory_that_cannot_be_had_is_refused() {
    within(60, || {
        members(1, Settings::default(), |group| {
            assert!(group.shared::<f64>(usize::MAX / 8).is_err());
            assert!(
                group.shared::<f64>(usize::MAX / 8 + 2).is_err(),
                "the product overflows"
            );
            assert!(group.shared::<u8>(usize::MAX).is_err());
            assert!(group.shared::<u8>(1 << 50).is_err());
            assert_eq!(group.shared::<u8>(1 << 20).unwrap().len(), 1 << 20);
        });
    });
}
