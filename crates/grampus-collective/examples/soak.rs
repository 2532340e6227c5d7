//! Two processes reduce for a long time, and must not grow: `soak [SMALL_CALLS LARGE_GIB]`.
//!
//! Ten million calls of 4 bytes to 4 KiB and 200 GiB in calls of 64 MiB, unless told otherwise. Fails where private or
//! shared memory grew by more than 8 MiB after the first tenth.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use grampus_collective::{Card, Group, GroupId, Lobby, Op, Settings};
use grampus_core::{JobId, JobKey};

type Outcome<T> = Result<T, Box<dyn Error>>;

const PROCESSES: usize = 2;
const LARGE: usize = 64 << 20;
/// What may come and go, in KiB.
const ALLOWED: u64 = 8 << 10;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "member") {
        return member(&arguments[1..]);
    }
    let mut children = Vec::new();
    for rank in 0..PROCESSES {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["member", &rank.to_string()]).args(&arguments);
        children.push(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    }
    introduce(&mut children)?;
    let mut failed = false;
    for child in &mut children {
        failed |= !child.wait()?.success();
    }
    if failed {
        Err("a member failed".into())
    } else {
        Ok(())
    }
}

/// Brings the members' cards together.
fn introduce(children: &mut [Child]) -> Outcome<()> {
    let mut cards = String::new();
    for child in &mut *children {
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut cards)?;
    }
    for child in &mut *children {
        let mut input = child.stdin.take().ok_or("no input")?;
        input.write_all(cards.as_bytes())?;
    }
    Ok(())
}

fn join(rank: usize) -> Outcome<Group> {
    let lobby = Lobby::open(
        JobId(1),
        JobKey::from_bytes([7; 32]),
        "here",
        std::net::Ipv4Addr::LOCALHOST.into(),
    )?;
    let hex = |byte: &u8| format!("{byte:02x}");
    println!("{}", lobby.card().to_bytes().iter().map(hex).collect::<String>());
    let mut cards = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line?;
        let bytes: Result<Vec<u8>, _> = (0..line.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&line[at..at + 2], 16))
            .collect();
        cards.push(Card::from_bytes(&bytes?)?);
    }
    let id = GroupId {
        name: "world".into(),
        generation: 1,
    };
    Ok(lobby.form(&id, rank, &cards, &Settings::default())?)
}

fn member(arguments: &[String]) -> Outcome<()> {
    let number = |index: usize, usual: usize| arguments.get(index).map_or(Ok(usual), |word| word.parse());
    let group = join(number(0, 0)?)?;
    let small_calls = number(1, 10_000_000)?;
    let large_calls = number(2, 200)? * ((1 << 30) / LARGE);
    soak(&group, "small calls", small_calls, small)?;
    soak(&group, "large calls", large_calls, large)
}

/// Repeats a call, and compares the memory after a tenth with that at the end.
fn soak(group: &Group, what: &str, calls: usize, call: fn(&Group, usize) -> Outcome<()>) -> Outcome<()> {
    let report = |when: &str| -> Outcome<Memory> {
        // What the other still holds is mapped here too.
        group.barrier()?;
        let memory = Memory::now()?;
        if group.rank() == 0 {
            eprintln!("{what}, {when}: {memory:?}");
        }
        Ok(memory)
    };
    report("at the start")?;
    let mut early = None;
    for index in 0..calls {
        call(group, index)?;
        if index == calls / 10 {
            early = Some(report("after a tenth")?);
        }
    }
    let (Some(early), late) = (early, report("at the end")?) else {
        return Ok(());
    };
    if late.resident > early.resident + ALLOWED || late.shared > early.shared + ALLOWED {
        return Err(format!("{what}: memory grew from {early:?} to {late:?}").into());
    }
    Ok(())
}

/// One element to a thousand; every tenth is started rather than made.
fn small(group: &Group, index: usize) -> Outcome<()> {
    let mut buffer = [1.0_f32; 1024];
    let count = 1 + index * 7 % 1024;
    if index.is_multiple_of(10) {
        let summed = group
            .all_reduce_async(buffer[..count].to_vec(), Op::Sum)?
            .wait()?;
        buffer[..count].copy_from_slice(&summed);
    } else {
        group.all_reduce(&mut buffer[..count], Op::Sum)?;
    }
    right(&buffer[..count])
}

/// Private and shared buffers in turn, of slightly different sizes, new ones every time.
fn large(group: &Group, index: usize) -> Outcome<()> {
    let count = LARGE / 4 - (index % 5) * 100_000;
    if index.is_multiple_of(2) {
        let mut buffer = vec![1.0_f32; count];
        group.all_reduce(&mut buffer, Op::Sum)?;
        return right(&buffer);
    }
    let mut kept = group.shared::<f32>(1 + index * 1000 % 300_000)?;
    let mut buffer = group.shared::<f32>(count)?;
    buffer.fill(1.0);
    kept.fill(1.0);
    group.all_reduce(&mut buffer, Op::Sum)?;
    group.all_reduce(&mut kept[..1], Op::Sum)?;
    right(&buffer)
}

fn right(summed: &[f32]) -> Outcome<()> {
    match summed.iter().position(|value| *value != PROCESSES as f32) {
        None => Ok(()),
        Some(at) => Err(format!("element {at} is {}", summed[at]).into()),
    }
}

/// In KiB.
#[derive(Clone, Copy, Debug)]
struct Memory {
    resident: u64,
    shared: u64,
}

impl Memory {
    /// All that this process holds, and the part of it that is shared memory.
    fn now() -> Outcome<Self> {
        let value = |path: &str, name: &str| -> Outcome<u64> {
            let text = fs::read_to_string(path)?;
            let line = text.lines().find(|line| line.starts_with(name));
            let number = line.and_then(|line| line.split_whitespace().nth(1));
            Ok(number.ok_or(format!("{path} does not tell {name}"))?.parse()?)
        };
        Ok(Self {
            resident: value("/proc/self/smaps_rollup", "Rss:")?,
            shared: value("/proc/self/status", "RssShmem:")?,
        })
    }
}
