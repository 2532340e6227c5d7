//! Gradients of several lanes on several members, with threads for processes.
#![expect(clippy::unwrap_used, reason = "a test ends where something is wrong")]

use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;

use grampus_collective::{Card, CollectiveError, DType, Group, GroupId, Lobby, Settings};
use grampus_core::{JobId, JobKey};
use grampus_train::gradients::{Gradients, Parameter, Summed};
use grampus_train::plan::lanes_of;

/// Runs `work` on so many members of a group.
fn on_members<T: Send>(size: usize, work: impl Fn(Arc<Group>) -> T + Sync) -> Vec<T> {
    let key = JobKey::from_bytes([3; 32]);
    let lobbies: Vec<Lobby> = (0..size)
        .map(|_| Lobby::open(JobId(1), key.clone(), "here", Ipv4Addr::LOCALHOST.into()).unwrap())
        .collect();
    let cards: Vec<Card> = lobbies.iter().map(|lobby| lobby.card().clone()).collect();
    let id = GroupId {
        name: "gradients".into(),
        generation: 1,
    };
    std::thread::scope(|scope| {
        let members: Vec<_> = (0..size)
            .map(|rank| {
                let (lobby, cards, id, work) = (&lobbies[rank], &cards, &id, &work);
                scope.spawn(move || {
                    let group = lobby.form(id, rank, cards, &Settings::default()).unwrap();
                    work(Arc::new(group))
                })
            })
            .collect();
        members.into_iter().map(|member| member.join().unwrap()).collect()
    })
}

fn parameters(counts: &[usize]) -> Vec<Parameter> {
    let one = |count: &usize| Parameter {
        dtype: DType::F32,
        count: *count,
    };
    counts.iter().map(one).collect()
}

/// The lane of a member that drives the one of its rank.
fn alone(group: &Group) -> Range<u32> {
    let rank = group.rank() as u32;
    rank..rank + 1
}

fn fill(gradients: &Gradients, index: usize, parameter: usize, value: f32) {
    let place = gradients.places()[parameter].clone();
    let memory = gradients.memory(index).unwrap();
    // SAFETY: the place lies in the memory, and no sum is on its way.
    let values = unsafe {
        let start = memory.as_ptr().add(place.start).cast::<f32>();
        std::slice::from_raw_parts_mut(start, place.len() / 4)
    };
    values.fill(value);
}

fn read(gradients: &Gradients, parameter: usize) -> Vec<f32> {
    let place = gradients.places()[parameter].clone();
    let memory = gradients.memory(0).unwrap();
    // SAFETY: as above; all sums are through.
    unsafe { std::slice::from_raw_parts(memory.as_ptr().add(place.start).cast::<f32>(), place.len() / 4) }
        .to_vec()
}

/// One step in which lane `l` has gradients of `0.1 * (l + 1)`, and parameter 1 is used by lane 2 alone.
fn step(
    group: &Arc<Group>,
    lanes: u32,
    counts: &[usize],
) -> Result<(Summed, Vec<Vec<f32>>), CollectiveError> {
    let mut gradients = Gradients::new(
        Arc::clone(group),
        lanes_of(group.rank(), group.size(), lanes),
        lanes,
        &parameters(counts),
    )?;
    for (index, lane) in gradients.lanes().enumerate() {
        gradients.begin(index)?;
        let value = 0.1 * (lane + 1) as f32;
        for parameter in 0..counts.len() {
            if parameter != 1 || lane == 2 {
                fill(&gradients, index, parameter, value);
                gradients.ready(parameter)?;
            }
        }
        gradients.end(value, 5.0, false);
    }
    let summed = gradients.finish(&|| false)?;
    let sums = (0..counts.len())
        .map(|parameter| read(&gradients, parameter))
        .collect();
    Ok((summed, sums))
}

#[test]
fn sums_have_equal_bits_at_any_number_of_members() {
    // The last one fills several buckets.
    for counts in [&[3, 5, 1][..], &[2_000_000, 7, 2_500_000, 1_000_000, 33]] {
        let alone = on_members(1, |group| step(&group, 4, counts).unwrap()).remove(0);
        assert_eq!(alone.0.said, 5.0);
        assert!((alone.0.loss - 1.0).abs() < 1e-6);
        assert!(
            (alone.1[1][0] - 0.3).abs() < 1e-6,
            "what one lane uses is its own"
        );
        for size in [2, 3, 4] {
            for (rank, found) in on_members(size, |group| step(&group, 4, counts).unwrap())
                .into_iter()
                .enumerate()
            {
                assert!(found == alone, "rank {rank} of {size} differs");
            }
        }
    }
}

#[test]
fn what_no_lane_uses_is_told() {
    let told = on_members(2, |group| step(&group, 2, &[3, 5, 1]).unwrap().0);
    assert_eq!(told[0].unused, [1]);
    assert_eq!(told[0], told[1]);
}

#[test]
fn a_lane_without_rows_counts_as_zero_and_one_that_is_missing_is_an_error() {
    let told = on_members(2, |group| {
        let mut gradients = Gradients::new(Arc::clone(&group), alone(&group), 2, &parameters(&[4])).unwrap();
        gradients.skip(0).unwrap();
        let first = gradients.finish(&|| false).unwrap();
        gradients.begin(0).unwrap();
        if group.rank() == 0 {
            gradients.end(1.0, 0.0, false);
        }
        (first, gradients.finish(&|| false).unwrap_err().to_string())
    });
    assert_eq!(told[0].0.unused, [0]);
    assert_eq!(told[0].0.loss, 0.0);
    for (_, error) in told {
        assert!(error.contains("lane 1 did not come whole"), "{error}");
    }
}

#[test]
fn lanes_must_be_enough_for_all() {
    let said = on_members(3, |group| {
        Gradients::new(Arc::clone(&group), alone(&group), 2, &parameters(&[4]))
            .err()
            .map(|error| error.to_string())
    });
    assert!(
        said[0]
            .as_ref()
            .unwrap()
            .contains("at least as many lanes as workers")
    );
}

#[test]
fn a_gradient_that_comes_after_its_sum_began_is_an_error() {
    let said = on_members(2, |group| {
        let counts = [3_000_000, 8];
        let mut gradients =
            Gradients::new(Arc::clone(&group), alone(&group), 2, &parameters(&counts)).unwrap();
        gradients.begin(0).unwrap();
        gradients.ready(0).unwrap();
        gradients.ready(0).unwrap();
        gradients.ready(1).unwrap();
        gradients.end(1.0, 0.0, false);
        gradients.finish(&|| false).unwrap_err().to_string()
    });
    for error in said {
        assert!(error.contains("second gradient"), "{error}");
    }
}
