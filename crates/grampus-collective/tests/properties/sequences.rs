//! Random sequences of calls on one group, some of them in flight while others are made.

use grampus_collective::{Group, Handle, Op, Settings, SharedBuffer};
use proptest::prelude::*;

use crate::support::sample::{all_bits, buffer, reduced};
use crate::support::{members, random, small, within};

#[derive(Clone, Debug)]
enum Call {
    AllReduce(usize),
    Reduce(usize, usize),
    ReduceScatter(usize),
    Start(usize),
    StartShared(usize),
    /// Waits for one that is in flight; which one is another on every member.
    Wait,
    Drop,
    AllGather(usize),
    AllToAll(usize),
    Broadcast(usize, usize),
    Norm(usize),
    Barrier,
}

fn call() -> impl Strategy<Value = Call> {
    let count = || prop_oneof![0..200_usize, Just(1500), Just(5000)];
    prop_oneof![
        1 => count().prop_map(Call::AllReduce),
        1 => (count(), 0..8_usize).prop_map(|(count, root)| Call::Reduce(count, root)),
        1 => count().prop_map(Call::ReduceScatter),
        4 => count().prop_map(Call::Start),
        2 => count().prop_map(Call::StartShared),
        3 => Just(Call::Wait),
        1 => Just(Call::Drop),
        1 => count().prop_map(Call::AllGather),
        1 => count().prop_map(Call::AllToAll),
        1 => (count(), 0..8_usize).prop_map(|(count, root)| Call::Broadcast(count, root)),
        1 => count().prop_map(Call::Norm),
        1 => Just(Call::Barrier),
    ]
}

enum Flight {
    Private(Handle<Vec<f32>>, Vec<f32>),
    Shared(Handle<SharedBuffer<f32>>, Vec<f32>),
}

impl Flight {
    fn land(self) {
        match self {
            Self::Private(handle, expected) => {
                assert!(all_bits(&handle.wait().unwrap()) == all_bits(&expected))
            }
            Self::Shared(handle, expected) => {
                assert!(all_bits(&handle.wait().unwrap()) == all_bits(&expected))
            }
        }
    }
}

struct Player<'a> {
    group: &'a Group,
    flights: Vec<Flight>,
}

impl Player<'_> {
    fn inputs(&self, step: usize, count: usize) -> Vec<Vec<f32>> {
        (0..self.group.size())
            .map(|rank| buffer(step as u64, rank, count))
            .collect()
    }

    fn play(&mut self, step: usize, call: &Call) {
        let (group, me, size) = (self.group, self.group.rank(), self.group.size());
        match call {
            Call::AllReduce(count) => {
                let inputs = self.inputs(step, *count);
                let mut mine = inputs[me].clone();
                group.all_reduce(&mut mine, Op::Mean).unwrap();
                assert!(all_bits(&mine) == all_bits(&reduced(&inputs, Op::Mean)));
            }
            Call::Reduce(count, root) => {
                let inputs = self.inputs(step, *count);
                let mut mine = inputs[me].clone();
                group.reduce(&mut mine, Op::Max, (root % size) as u32).unwrap();
                let expected = if me == root % size {
                    reduced(&inputs, Op::Max)
                } else {
                    inputs[me].clone()
                };
                assert!(all_bits(&mine) == all_bits(&expected));
            }
            Call::ReduceScatter(count) => {
                let inputs = self.inputs(step, count * size);
                let mut mine = vec![0.5; *count];
                group.reduce_scatter(&inputs[me], &mut mine, Op::Sum).unwrap();
                assert!(all_bits(&mine) == all_bits(&reduced(&inputs, Op::Sum)[me * count..][..*count]));
            }
            Call::Start(count) => {
                let inputs = self.inputs(step, *count);
                let handle = group.all_reduce_async(inputs[me].clone(), Op::Sum).unwrap();
                self.flights
                    .push(Flight::Private(handle, reduced(&inputs, Op::Sum)));
            }
            Call::StartShared(count) => {
                let inputs = self.inputs(step, *count);
                let mut shared = group.shared(*count).unwrap();
                shared.copy_from_slice(&inputs[me]);
                let handle = group.all_reduce_async(shared, Op::Min).unwrap();
                self.flights
                    .push(Flight::Shared(handle, reduced(&inputs, Op::Min)));
            }
            Call::Wait | Call::Drop if self.flights.is_empty() => {}
            Call::Wait => {
                let which = random(me as u64, step as u64) as usize % self.flights.len();
                self.flights.remove(which).land();
            }
            Call::Drop => drop(self.flights.pop()),
            _ => self.move_about(step, call),
        }
    }

    fn move_about(&self, step: usize, call: &Call) {
        let (group, me, size) = (self.group, self.group.rank(), self.group.size());
        let part = |from: usize, to: usize, count: usize| {
            buffer::<f32>((step + 1000 * to) as u64, from, count * ((from + to) % 3) / 2)
        };
        match call {
            Call::AllGather(count) => {
                let parts: Vec<Vec<f32>> = (0..size).map(|rank| part(rank, 0, *count)).collect();
                let mut taken: Vec<Vec<f32>> = parts.iter().map(|part| vec![0.0; part.len()]).collect();
                let mut targets: Vec<&mut [f32]> = taken.iter_mut().map(Vec::as_mut_slice).collect();
                group.all_gather(&parts[me], &mut targets).unwrap();
                assert!(
                    parts
                        .iter()
                        .zip(&taken)
                        .all(|(part, got)| all_bits(part) == all_bits(got))
                );
            }
            Call::AllToAll(count) => {
                let sent: Vec<Vec<f32>> = (0..size).map(|to| part(me, to, *count)).collect();
                let wanted: Vec<Vec<f32>> = (0..size).map(|from| part(from, me, *count)).collect();
                let mut taken: Vec<Vec<f32>> = wanted.iter().map(|part| vec![0.0; part.len()]).collect();
                let sources: Vec<&[f32]> = sent.iter().map(Vec::as_slice).collect();
                let mut targets: Vec<&mut [f32]> = taken.iter_mut().map(Vec::as_mut_slice).collect();
                group.all_to_all(&sources, &mut targets).unwrap();
                assert!(
                    wanted
                        .iter()
                        .zip(&taken)
                        .all(|(part, got)| all_bits(part) == all_bits(got))
                );
            }
            Call::Broadcast(count, root) => {
                let mut mine = buffer::<f32>(step as u64, me, *count);
                group.broadcast(&mut mine, (root % size) as u32).unwrap();
                assert!(all_bits(&mine) == all_bits(&buffer::<f32>(step as u64, root % size, *count)));
            }
            Call::Norm(count) => {
                let squares = (0..*count).map(|index| (index * index) as f64).sum::<f64>();
                let norm = group
                    .norm(&(0..*count).map(|index| index as f64).collect::<Vec<_>>())
                    .unwrap();
                assert!((norm - squares.sqrt()).abs() <= 1e-9 * norm);
            }
            _ => group.barrier().unwrap(),
        }
    }
}

fn play(size: usize, settings: Settings, calls: &[Call]) {
    members(size, settings, |group| {
        let mut player = Player {
            group,
            flights: Vec::new(),
        };
        for (step, call) in calls.iter().enumerate() {
            player.play(step, call);
        }
        player.flights.into_iter().rev().for_each(Flight::land);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_time: 60_000, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_calls_gives_what_it_should(
        size in 1..=6_usize,
        in_small_slots in any::<bool>(),
        calls in prop::collection::vec(call(), 1..60),
    ) {
        let settings = if in_small_slots { small() } else { Settings::default() };
        within(60, move || play(size, settings, &calls));
    }
}

/// Calls of several threads of a member have no order between them; alike ones may still be made.
#[test]
fn threads_of_a_member_may_share_a_group() {
    within(60, || {
        members(2, small(), |group| {
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        for _ in 0..100 {
                            let mut ones = vec![1_i32; 700];
                            group.all_reduce(&mut ones, Op::Sum).unwrap();
                            assert!(ones.iter().all(|one| *one == 2));
                        }
                    });
                }
            });
        });
    });
}
