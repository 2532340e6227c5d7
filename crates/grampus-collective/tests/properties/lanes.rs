//! Lanes dealt in all kinds of ways: the bits must not depend on it.

use grampus_collective::{CollectiveError, Op, Request, Settings};
use half::{bf16, f16};
use proptest::prelude::*;

use crate::support::sample::{Sample, all_bits, buffer, reduced};
use crate::support::{members, small, within};

/// The sum and its norm on every member, where `dealt[lane]` is the member that drives a lane.
fn sums<T: Sample>(
    dealt: &[usize],
    size: usize,
    settings: Settings,
    count: usize,
    op: Op,
) -> (Vec<u64>, u64) {
    let each = members(size, settings, |group| {
        let mine = (0..dealt.len()).filter(|lane| dealt[*lane] == group.rank());
        let mut buffers: Vec<(u32, Vec<T>)> = mine
            .map(|lane| (lane as u32, buffer(lane as u64, 9, count)))
            .collect();
        // The order in which a member passes its lanes has no meaning.
        buffers.reverse();
        let mut lanes: Vec<(u32, &mut [T])> = buffers
            .iter_mut()
            .map(|(lane, buffer)| (*lane, buffer.as_mut_slice()))
            .collect();
        group.all_reduce_lanes(&mut lanes, op).unwrap();
        let norm = group.norm(&buffers[0].1).unwrap().to_bits();
        let all: Vec<Vec<u64>> = buffers.iter().map(|(_, buffer)| all_bits(buffer)).collect();
        assert!(
            all.iter().all(|bits| *bits == all[0]),
            "the lanes of a member differ"
        );
        (all[0].clone(), norm)
    });
    assert!(each.iter().all(|one| *one == each[0]), "members differ");
    each[0].clone()
}

/// Who drives each lane: everyone at least one.
fn dealing(lanes: usize) -> impl Strategy<Value = (usize, Vec<usize>)> {
    (1..=lanes.min(8)).prop_flat_map(move |size| {
        let rest = prop::collection::vec(0..size, lanes - size);
        rest.prop_flat_map(move |rest| {
            let all: Vec<usize> = (0..size).chain(rest).collect();
            (Just(size), Just(all).prop_shuffle())
        })
    })
}

fn holds<T: Sample>(dealt: &[usize], size: usize, count: usize, op: Op) {
    let lanes: Vec<Vec<T>> = (0..dealt.len())
        .map(|lane| buffer(lane as u64, 9, count))
        .collect();
    let alone = sums::<T>(&vec![0; dealt.len()], 1, Settings::default(), count, op);
    assert!(alone.0 == all_bits(&reduced(&lanes, op)), "not the serial result");
    assert_eq!(sums::<T>(dealt, size, Settings::default(), count, op), alone);
    assert_eq!(sums::<T>(dealt, size, small(), count, op), alone);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_time: 60_000, ..ProptestConfig::default() })]

    #[test]
    fn any_dealing_gives_the_bits_of_one_member(
        (size, dealt) in dealing(8),
        count in prop_oneof![0..70_usize, Just(1031), Just(20_001)],
        mean in any::<bool>(),
        dtype in 0..4,
    ) {
        let op = if mean { Op::Mean } else { Op::Sum };
        within(60, move || match dtype {
            0 => holds::<f32>(&dealt, size, count, op),
            1 => holds::<f64>(&dealt, size, count, op),
            2 => holds::<f16>(&dealt, size, count, op),
            _ => holds::<bf16>(&dealt, size, count, op),
        });
    }
}

/// A member with many lanes apart brings many columns: they must fit into its slot, or take more turns.
#[test]
fn many_lanes_apart_fit_into_a_small_slot() {
    within(60, || {
        for lanes in [16, 200, 1001] {
            let dealt: Vec<usize> = (0..lanes).map(|lane| lane % 2).collect();
            let alone = sums::<f64>(&vec![0; lanes], 1, Settings::default(), 37, Op::Sum);
            assert_eq!(sums::<f64>(&dealt, 2, Settings::default(), 37, Op::Sum), alone);
            assert_eq!(sums::<f64>(&dealt, 2, small(), 37, Op::Sum), alone);
        }
    });
}

/// More columns than a slot has room for one element of is an error on all, not a wait without an end.
#[test]
fn too_many_lanes_for_a_slot_are_refused() {
    let errors = within(60, || {
        members(2, small(), |group| {
            let mine = (0..1200_u32).filter(|lane| *lane as usize % 2 == group.rank());
            let mut buffers: Vec<(u32, Vec<f64>)> = mine.map(|lane| (lane, vec![1.0; 5])).collect();
            let mut lanes: Vec<(u32, &mut [f64])> = buffers
                .iter_mut()
                .map(|(lane, buffer)| (*lane, buffer.as_mut_slice()))
                .collect();
            group.all_reduce_lanes(&mut lanes, Op::Sum).unwrap_err()
        })
    });
    assert!(matches!(&errors[0], CollectiveError::Argument(_)), "{errors:?}");
    assert_eq!(errors[0], errors[1]);
}

/// What every member gets when rank `r` passes the lanes `dealt[r]`.
fn wrong(dealt: &'static [&'static [u32]]) -> Vec<CollectiveError> {
    within(20, move || {
        members(dealt.len(), Settings::default(), |group| {
            let mut buffers: Vec<(u32, Vec<f32>)> = dealt[group.rank()]
                .iter()
                .map(|lane| (*lane, vec![1.0; 10]))
                .collect();
            let mut lanes: Vec<(u32, &mut [f32])> = buffers
                .iter_mut()
                .map(|(lane, buffer)| (*lane, buffer.as_mut_slice()))
                .collect();
            group.all_reduce_lanes(&mut lanes, Op::Sum).unwrap_err()
        })
    })
}

#[test]
fn wrong_dealings_are_told_to_all() {
    let said = |dealt| {
        let errors = wrong(dealt);
        assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
        errors[0].to_string()
    };
    assert!(said(&[&[0, 1], &[2, 1], &[3]]).contains("lane 1 was passed by rank 0 and by rank 1"));
    assert!(said(&[&[0, 0], &[1]]).contains("lane 0 was passed by rank 0 and by rank 0"));
    assert!(said(&[&[0], &[3], &[1]]).contains("lane 2 was passed by no rank"));
    assert!(said(&[&[1], &[2]]).contains("lane 0 was passed by no rank"));
}

/// A member without lanes takes part in the work: it learns type and length from the others.
#[test]
fn a_member_without_lanes_can_take_part() {
    within(20, || {
        members(3, Settings::default(), |group| {
            let mut buffers = [vec![1.0_f32; 100], vec![2.0; 100]];
            let lanes = match group.rank() {
                0 => vec![
                    (1, buffers[0].as_mut_ptr().cast()),
                    (0, buffers[1].as_mut_ptr().cast()),
                ],
                1 => vec![],
                _ => vec![(2, buffers[0].as_mut_ptr().cast())],
            };
            let request = Request::AllReduceLanes {
                dtype: grampus_collective::DType::F32,
                op: Op::Sum,
                lanes,
                count: 100,
            };
            // SAFETY: the buffers outlive the call.
            unsafe { group.call(request, &|| false) }.unwrap();
            if group.rank() != 1 {
                assert!(buffers[0].iter().all(|value| *value == 4.0));
            }
        });
    });
}

#[test]
fn lanes_of_unequal_length_are_refused_at_once() {
    within(20, || {
        members(2, Settings::default(), |group| {
            let (mut one, mut other) = (vec![1.0_f32; 3], vec![1.0_f32; 4]);
            let error = group
                .all_reduce_lanes(&mut [(0, &mut one), (1, &mut other)], Op::Sum)
                .unwrap_err();
            assert!(matches!(error, CollectiveError::Argument(_)), "{error}");
            group.barrier().unwrap();
        });
    });
}
