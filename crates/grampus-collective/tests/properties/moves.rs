//! What only moves elements, and the norm.

use grampus_collective::{Group, Settings};
use half::{bf16, f16};

use crate::support::sample::{Sample, all_bits, buffer};
use crate::support::{members, small, within};

/// Parts of unequal size, some of them empty.
fn length(from: usize, to: usize, base: usize) -> usize {
    match (from + 2 * to) % 4 {
        0 => 0,
        step => base * step / 2 + from,
    }
}

fn all_gather<T: Sample>(group: &Group, base: usize) {
    let (me, size) = (group.rank(), group.size());
    let part = |rank: usize| buffer::<T>(10, rank, length(rank, 0, base));
    let mut gathered: Vec<Vec<T>> = (0..size).map(|rank| buffer(11, rank, part(rank).len())).collect();
    let mut targets: Vec<&mut [T]> = gathered.iter_mut().map(Vec::as_mut_slice).collect();
    group.all_gather(&part(me), &mut targets).unwrap();
    for (rank, got) in gathered.iter().enumerate() {
        assert!(
            all_bits(got) == all_bits(&part(rank)),
            "all_gather of {base} {}",
            T::DTYPE
        );
    }
}

fn gather_and_scatter<T: Sample>(group: &Group, count: usize) {
    let (me, size) = (group.rank(), group.size());
    let root = (count + 1) % size;
    let part = |rank: usize| buffer::<T>(12, rank, count);
    let mut gathered = vec![part(size); if me == root { size } else { 0 }];
    let mut targets: Vec<&mut [T]> = gathered.iter_mut().map(Vec::as_mut_slice).collect();
    group.gather(&part(me), &mut targets, root as u32).unwrap();
    for (rank, got) in gathered.iter().enumerate() {
        assert!(
            all_bits(got) == all_bits(&part(rank)),
            "gather of {count} {}",
            T::DTYPE
        );
    }
    let sources: Vec<&[T]> = gathered.iter().map(Vec::as_slice).collect();
    let mut mine = part(size);
    group.scatter(&sources, &mut mine, root as u32).unwrap();
    assert!(
        all_bits(&mine) == all_bits(&part(me)),
        "scatter of {count} {}",
        T::DTYPE
    );
}

fn broadcast<T: Sample>(group: &Group, count: usize) {
    let root = count % group.size();
    let mut mine = buffer::<T>(13, group.rank(), count);
    group.broadcast(&mut mine, root as u32).unwrap();
    assert!(
        all_bits(&mine) == all_bits(&buffer::<T>(13, root, count)),
        "broadcast of {count} {}",
        T::DTYPE
    );
}

fn all_to_all<T: Sample>(group: &Group, base: usize) {
    let (me, size) = (group.rank(), group.size());
    let part = |from: usize, to: usize| buffer::<T>(14 + to as u64, from, length(from, to, base));
    let sent: Vec<Vec<T>> = (0..size).map(|to| part(me, to)).collect();
    let mut taken: Vec<Vec<T>> = (0..size)
        .map(|from| buffer(30, from, part(from, me).len()))
        .collect();
    let sources: Vec<&[T]> = sent.iter().map(Vec::as_slice).collect();
    let mut targets: Vec<&mut [T]> = taken.iter_mut().map(Vec::as_mut_slice).collect();
    group.all_to_all(&sources, &mut targets).unwrap();
    for (from, got) in taken.iter().enumerate() {
        assert!(
            all_bits(got) == all_bits(&part(from, me)),
            "all_to_all of {base} {}",
            T::DTYPE
        );
    }
}

fn every_move<T: Sample>(group: &Group) {
    let line = 64 / size_of::<T>();
    for count in [0, 1, 7, line - 1, line, line + 1, 4099] {
        all_gather::<T>(group, count);
        gather_and_scatter::<T>(group, count);
        broadcast::<T>(group, count);
        all_to_all::<T>(group, count);
        group.barrier().unwrap();
    }
}

fn every_type(size: usize, settings: Settings) {
    members(size, settings, |group| {
        every_move::<f32>(group);
        every_move::<f64>(group);
        every_move::<f16>(group);
        every_move::<bf16>(group);
        every_move::<i8>(group);
        every_move::<u8>(group);
        every_move::<i32>(group);
        every_move::<i64>(group);
        every_move::<bool>(group);
    });
}

#[test]
fn arrive_as_they_were() {
    within(120, || {
        for size in 1..=8 {
            every_type(size, small());
        }
    });
}

#[test]
fn arrive_as_they_were_in_one_turn() {
    within(120, || {
        for size in [1, 2, 7] {
            every_type(size, Settings::default());
            members(size, Settings::default(), |group| {
                let count = (1 << 20) / 8 + 3;
                all_gather::<f64>(group, count);
                gather_and_scatter::<i64>(group, count);
                broadcast::<f32>(group, 2 * count);
                all_to_all::<f64>(group, count);
            });
        }
    });
}

#[test]
fn norms_do_not_depend_on_the_number_of_members() {
    fn norms<T: Sample>(group: &Group) -> Vec<u64> {
        let norm = |count: usize| group.norm(&buffer::<T>(50, 0, count)).unwrap().to_bits();
        [0, 1, 63, 4095, 4096, 4097, 100_003].map(norm).to_vec()
    }
    within(60, || {
        let all = |size, settings| {
            let each = members(size, settings, |group| {
                [
                    norms::<f32>(group),
                    norms::<f64>(group),
                    norms::<f16>(group),
                    norms::<bf16>(group),
                ]
                .concat()
            });
            assert!(each.iter().all(|norms| *norms == each[0]), "members disagree");
            each[0].clone()
        };
        let alone = all(1, Settings::default());
        for size in [2, 3, 8] {
            assert_eq!(all(size, Settings::default()), alone);
            assert_eq!(all(size, small()), alone);
        }
        let exact = members(3, small(), |group| group.norm(&[3.0_f32, 4.0]).unwrap());
        assert_eq!(exact, [5.0; 3]);
    });
}
