//! What a member process does: it forms groups when told to, and makes calls until one fails.

use std::io::Write;
use std::time::Duration;

use grampus_collective::{Card, CollectiveError, Group, Lobby, Op, Settings, SharedBuffer};
use grampus_core::{JobId, JobKey};

use crate::support::{id, random};

pub fn say(text: &str) {
    let mut output = std::io::stdout().lock();
    // A line of its own, whatever the test harness has printed.
    writeln!(output, "\n@{text}").unwrap();
    output.flush().unwrap();
}

/// The next command; nothing when the test has ended.
pub fn told() -> Option<String> {
    let mut line = String::new();
    let bytes = std::io::stdin().read_line(&mut line).unwrap();
    (bytes > 0).then(|| line.trim_end().to_owned())
}

pub fn run() {
    // Nobody is left behind when the test itself is killed.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let lobby = Lobby::open(
        JobId(9),
        JobKey::from_bytes([9; 32]),
        "here",
        std::net::Ipv4Addr::LOCALHOST.into(),
    )
    .unwrap();
    let card = lobby.card().to_bytes();
    say(&format!(
        "card {}",
        card.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    ));
    while let Some(line) = told() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<u64>().unwrap();
        match words[0] {
            "form" => {
                let cards: Vec<Card> = words[5].split(',').map(read_card).collect();
                let settings = Settings {
                    silence: Duration::from_millis(number(3)),
                    forming: Duration::from_secs(15),
                    ..Settings::default()
                };
                let error = member(
                    &lobby,
                    number(1) as usize,
                    number(2),
                    &cards,
                    &settings,
                    number(4),
                );
                // Calls that were in flight behind the one that failed tell of it in their own words.
                match error {
                    CollectiveError::Ended { why } => say(&format!("error {why}")),
                    error => say(&format!("error {error}")),
                }
            }
            "exit" => return,
            other => panic!("told to {other:?}"),
        }
    }
}

fn read_card(hex: &str) -> Card {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    Card::from_bytes(&(0..hex.len()).step_by(2).map(byte).collect::<Vec<u8>>()).unwrap()
}

/// The error that ended it. A wrong result ends the process.
fn member(
    lobby: &Lobby,
    rank: usize,
    generation: u64,
    cards: &[Card],
    settings: &Settings,
    seed: u64,
) -> CollectiveError {
    let group = match lobby.form(&id(generation), rank, cards, settings) {
        Ok(group) => group,
        Err(error) => return error,
    };
    if let Err(error) = small(&group, 0).and_then(|()| crate::forks::play(&group, seed)) {
        return error;
    }
    say("formed .");
    if let Some(error) = crate::zombies::play(&group, seed) {
        return error;
    }
    let mut shared = group.shared::<f32>(100_000).unwrap();
    for step in 1.. {
        if let Err(error) = call(&group, &mut shared, random(seed, step), step) {
            return error;
        }
    }
    unreachable!()
}

fn mine(group: &Group, step: u64) -> f32 {
    (group.rank() as u64 + step % 13) as f32
}

/// The sum of what all members bring.
fn check(group: &Group, step: u64, values: &[f32]) {
    let sum: u64 = (0..group.size() as u64).map(|rank| rank + step % 13).sum();
    assert!(
        values.iter().all(|value| *value == sum as f32),
        "a wrong sum in step {step}"
    );
}

fn small(group: &Group, step: u64) -> Result<(), CollectiveError> {
    let mut buffer = [mine(group, step); 100];
    group.all_reduce(&mut buffer, Op::Sum)?;
    check(group, step, &buffer);
    Ok(())
}

/// One call of a kind that the random number chooses, equal on all members.
fn call(
    group: &Group,
    shared: &mut SharedBuffer<f32>,
    random: u64,
    step: u64,
) -> Result<(), CollectiveError> {
    match random % 7 {
        0 => return small(group, step),
        1 => {
            let mut buffer = vec![mine(group, step); 30_000];
            group.all_reduce(&mut buffer, Op::Sum)?;
            check(group, step, &buffer);
        }
        2 => {
            shared.fill(mine(group, step));
            group.all_reduce(shared, Op::Sum)?;
            check(group, step, shared);
        }
        3 => started(group, step)?,
        4 => {
            let mut buffer = vec![mine(group, step) as i64; 20_000];
            group.broadcast(&mut buffer, (step % 4) as u32)?;
            assert!(
                buffer.iter().all(|value| *value == (step % 4 + step % 13) as i64),
                "a wrong broadcast"
            );
        }
        5 => {
            let sent = vec![group.rank() as i32; 5000];
            let mut taken = vec![vec![0; 5000]; group.size()];
            let mut targets: Vec<&mut [i32]> = taken.iter_mut().map(Vec::as_mut_slice).collect();
            group.all_to_all(&vec![&sent[..]; group.size()], &mut targets)?;
            let right = |(rank, part): (usize, &Vec<i32>)| part.iter().all(|value| *value == rank as i32);
            assert!(taken.iter().enumerate().all(right), "a wrong part");
        }
        _ => group.barrier()?,
    }
    Ok(())
}

/// Several in flight, waited for from the last to the first.
fn started(group: &Group, step: u64) -> Result<(), CollectiveError> {
    let private = |step: u64, count: usize| group.all_reduce_async(vec![mine(group, step); count], Op::Sum);
    let first = private(step, 10)?;
    let mut buffer = group.shared::<f32>(70_000)?;
    buffer.fill(mine(group, step + 1));
    let second = group.all_reduce_async(buffer, Op::Sum)?;
    let third = private(step + 2, 20_000)?;
    let dropped = private(step + 3, 1000)?;
    check(group, step + 2, &third.wait()?);
    check(group, step + 1, &second.wait()?);
    drop(dropped);
    check(group, step, &first.wait()?);
    Ok(())
}
