//! Times all-reduce between processes of this host: `all_reduce PROCESSES [SLOT_KIB FLAT_KIB SPIN_US]`.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use grampus_collective::{Card, Group, GroupId, Lobby, Op, Settings};
use grampus_core::{Clock, JobId, JobKey, SystemClock};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "member") {
        return member(&arguments[1..]);
    }
    let processes: usize = arguments.first().map_or(Ok(2), |word| word.parse())?;
    let mut children = Vec::new();
    for rank in 0..processes {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["member", &rank.to_string(), &processes.to_string()]);
        command.args(arguments.iter().skip(1));
        children.push(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    }
    introduce(&mut children)?;
    for child in &mut children {
        child.wait()?;
    }
    Ok(())
}

/// Brings the members' cards together.
fn introduce(children: &mut [Child]) -> Result<(), Box<dyn Error>> {
    let mut cards = String::new();
    for child in &mut *children {
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?);
        lines.read_line(&mut cards)?;
    }
    for child in &mut *children {
        child
            .stdin
            .take()
            .ok_or("no input")?
            .write_all(cards.as_bytes())?;
    }
    Ok(())
}

fn member(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let number = |index: usize| arguments.get(index).map(|word| word.parse::<usize>()).transpose();
    let rank = number(0)?.ok_or("no rank")?;
    let lobby = Lobby::open(
        JobId(1),
        JobKey::from_bytes([7; 32]),
        "here",
        std::net::Ipv4Addr::LOCALHOST.into(),
    )?;
    let bytes = lobby.card().to_bytes();
    println!(
        "{}",
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    );
    let mut cards = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line?;
        let bytes: Result<Vec<u8>, _> = (0..line.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&line[at..at + 2], 16))
            .collect();
        cards.push(Card::from_bytes(&bytes?)?);
    }
    let usual = Settings::default();
    let settings = Settings {
        slot: number(2)?.map_or(usual.slot, |kib| kib << 10),
        flat: number(3)?.map_or(usual.flat, |kib| kib << 10),
        spin: number(4)?.map_or(usual.spin, |micros| Duration::from_micros(micros as u64)),
        ..usual
    };
    let id = GroupId {
        name: "world".into(),
        generation: 1,
    };
    let group = lobby.form(&id, rank, &cards, &settings)?;
    for kib in [4, 64, 256, 1024, 16 << 10, 128 << 10] {
        let count = kib << 8;
        let mut private = vec![1.0_f32; count];
        let mut shared = group.shared::<f32>(count)?;
        shared.fill(1.0);
        let copied = time(&group, &mut private, kib)?;
        let in_place = time(&group, &mut shared, kib)?;
        if rank == 0 {
            eprintln!(
                "{} processes, {kib:>7} KiB: copied {:>10.1} µs, in place {:>10.1} µs",
                group.size(),
                copied.as_secs_f64() * 1e6,
                in_place.as_secs_f64() * 1e6
            );
        }
    }
    Ok(())
}

fn time(group: &Group, buffer: &mut [f32], kib: usize) -> Result<Duration, Box<dyn Error>> {
    let repeats = (200_000 / kib).clamp(5, 5000);
    let clock = SystemClock::start();
    let mut times = Vec::new();
    for round in 0..6 {
        group.barrier()?;
        let start = clock.now();
        for _ in 0..repeats {
            group.all_reduce(buffer, Op::Mean)?;
        }
        if round > 0 {
            times.push((clock.now() - start) / repeats as u32);
        }
    }
    times.sort();
    Ok(times[times.len() / 2])
}
