//! Lanes that are dealt so that what members post does not fit easily.

use half::bf16;

use super::{on_hosts, settings, value};
use crate::numerics::Op;

/// Sums over lanes of elements that `make` makes; `rank_of` says who drives a lane. What each rank got, as `show` shows it.
fn sums<T: crate::Element, S: Send>(
    (places, slot): (&[u64], usize),
    (lanes, count): (usize, usize),
    rank_of: impl Fn(usize) -> usize + Sync,
    make: impl Fn(usize, usize) -> T + Sync,
    show: impl Fn(&[T]) -> S + Sync,
) -> Vec<Vec<S>> {
    let settings = crate::Settings { slot, ..settings() };
    on_hosts(places, settings, |group| {
        let mut mine: Vec<(u32, Vec<T>)> = (0..lanes)
            .filter(|lane| rank_of(*lane) == group.rank())
            .map(|lane| (lane as u32, (0..count).map(|at| make(lane, at)).collect()))
            .collect();
        let mut views: Vec<(u32, &mut [T])> = mine
            .iter_mut()
            .map(|(lane, buffer)| (*lane, buffer.as_mut_slice()))
            .collect();
        group.all_reduce_lanes(&mut views, Op::Sum).unwrap();
        mine.iter().map(|(_, sum)| show(sum)).collect()
    })
}

/// 64 elements of so many lanes are more than a slot.
#[test]
fn many_scattered_lanes_stay_in_their_slot() {
    const LANES: usize = 10_000;
    let rank_of = |lane: usize| match lane % 2 {
        0 => 0,
        _ if lane < 1200 => 1,
        _ => 2,
    };
    let total: f64 = (0..LANES).map(|lane| lane as f64).sum();
    let right = |sum: &[f64]| {
        let mut expected = (0..100).map(|at| total + (LANES * at) as f64);
        sum.iter().all(|value| Some(*value) == expected.next())
    };
    let make = |lane: usize, at: usize| (lane + at) as f64;
    for sums in sums((&[1, 1, 2], 0), (LANES, 100), rank_of, make, right) {
        assert!(sums.into_iter().all(|right| right), "a wrong sum");
    }
}

/// Hosts of the members, bytes of a slot, lanes, and whose each is.
type Deal = (&'static [u64], usize, usize, fn(usize) -> usize);

/// Sums in single precision travel beside half floats, an odd number of them: all lie where their type may lie.
#[test]
fn half_floats_beside_their_partial_sums_have_the_bits_of_one_member() {
    let make = |lane: usize, at: usize| bf16::from_f32(value(lane, at));
    let bits = |sum: &[bf16]| sum.iter().map(|value| value.to_bits()).collect::<Vec<u16>>();
    let count = 100_001;
    let deals: [Deal; 3] = [
        // One host brings lane 0 and the sum of lanes 2 and 3.
        (&[1, 2], 0, 4, |lane| usize::from(lane == 1)),
        (&[1, 1, 2], 0, 8, |lane| [0, 2, 1, 1, 2, 0, 0, 0][lane]),
        // Slots so small that turns have an odd number of elements.
        (&[1, 1], 4096, 80, |lane| lane / 2 % 2),
    ];
    for (places, slot, lanes, rank_of) in deals {
        let one = sums((&[1], 0), (lanes, count), |_| 0, make, bits);
        for sums in sums((places, slot), (lanes, count), rank_of, make, bits) {
            assert!(sums.iter().all(|sum| *sum == one[0][0]), "{places:?}");
        }
    }
}
