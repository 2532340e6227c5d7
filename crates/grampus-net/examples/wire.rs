//! How fast a wire is: two processes exchange the same number of bytes in both directions at once.
//!
//! ```text
//! wire listen 10.0.0.1:4000 tls 128 12      the first prints medians
//! wire connect 10.0.0.1:4000 tls 128 12     (security, MiB in each direction, rounds)
//! ```
//!
//! With `add` as a last word each side also adds what it received to what it has, as an all-reduce of two does: half
//! goes over and is added, then the sums come back.

use std::error::Error;
use std::time::Duration;

use grampus_core::{Address, Clock, JobId, JobKey, JoinString, SystemClock};
use grampus_net::{Limits, Listener, Ready, Security, Wire, connect_wire, wait_ready};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: wire listen|connect HOST:PORT tls|plain MIB ROUNDS [add]";
/// The example's own key: it measures, it protects nothing.
const KEY: [u8; 32] = [7; 32];
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [side, address, security, size, rounds, rest @ ..] = arguments.as_slice() else {
        return Err(USAGE.into());
    };
    let security = match security.as_str() {
        "tls" => Security::Tls,
        "plain" => Security::Plain,
        _ => return Err(USAGE.into()),
    };
    let (size, rounds) = (size.parse::<usize>()? << 20, rounds.parse::<usize>()?);
    let listens = side == "listen";
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut wire = runtime.block_on(open(listens, address, security))?;
    drop(runtime);

    let clock = SystemClock::start();
    let mut mine = vec![1f32; size / 4];
    let mut theirs = vec![0f32; size / 4];
    let (mut times, mut busies) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        exchange(&mut wire, &[1], &mut [0])?;
        let (start, busy) = (clock.now(), processor_time());
        if rest.is_empty() {
            exchange(&mut wire, bytes(&mine), bytes_mut(&mut theirs))?;
        } else {
            reduce(&mut wire, &mut mine, &mut theirs, listens)?;
        }
        times.push(clock.now() - start);
        busies.push(processor_time().saturating_sub(busy));
    }
    wire.close();
    if listens {
        report(security, size, &mut times, &mut busies);
    }
    Ok(())
}

fn report(security: Security, size: usize, times: &mut [Duration], busies: &mut [Duration]) {
    let millis = |time: &Duration| time.as_secs_f64() * 1e3;
    times.sort();
    busies.sort();
    let (least, median) = (&times[0], &times[times.len() / 2]);
    println!(
        "{security} {} MiB: median {:.1} ms ({:.2} GB/s each way), least {:.1} ms; processor {:.1} ms",
        size >> 20,
        millis(median),
        size as f64 / median.as_secs_f64() / 1e9,
        millis(least),
        millis(&busies[busies.len() / 2]),
    );
}

/// What this process has used, which says more than the wall clock on a machine that does other work too.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

async fn open(listens: bool, address: &str, security: Security) -> Result<Wire> {
    let (job, key, limits) = (JobId(1), JobKey::from_bytes(KEY), Limits::default());
    if listens {
        let listener = Listener::tcp(address, job, key, &limits).await?;
        return Ok(listener.accept().await?.wire(security).await?);
    }
    let address: Address = format!("tcp:{address}").parse()?;
    let join = JoinString { job, key, address };
    let clock = SystemClock::start();
    let start = clock.now();
    loop {
        match connect_wire("coordinator", &join, "worker-1", security, &limits).await {
            Err(error) if error.is_transient() && clock.now() - start < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            made => return Ok(made?),
        }
    }
}

/// Sends and receives at once: the pattern for every user of a wire.
fn exchange(wire: &mut Wire, mut out: &[u8], mut into: &mut [u8]) -> Result<()> {
    loop {
        let sent = wire.send(out)?;
        out = &out[sent..];
        let received = wire.receive(into)?;
        into = &mut into[received..];
        if out.is_empty() && into.is_empty() && wire.flush()? {
            return Ok(());
        }
        if sent == 0 && received == 0 {
            let want = Ready {
                read: !into.is_empty(),
                write: !out.is_empty(),
            };
            if !wait_ready(&[(wire, want)], PATIENCE)?[0].any() {
                return Err("the other side is silent".into());
            }
        }
    }
}

/// Each owns a half: the other's half goes out, the own half of the other is added, the sums are exchanged.
fn reduce(wire: &mut Wire, mine: &mut [f32], theirs: &mut [f32], first: bool) -> Result<()> {
    let middle = mine.len() / 2;
    let (low, high) = mine.split_at_mut(middle);
    let (own, other) = if first { (low, high) } else { (high, low) };
    let half = &mut theirs[..own.len()];
    exchange(wire, bytes(other), bytes_mut(half))?;
    own.iter_mut().zip(&*half).for_each(|(sum, more)| *sum += more);
    exchange(wire, bytes(own), bytes_mut(other))
}

fn bytes(values: &[f32]) -> &[u8] {
    // SAFETY: every f32 is four bytes, each of which may be read as one.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

fn bytes_mut(values: &mut [f32]) -> &mut [u8] {
    // SAFETY: as above, and every pattern of bits is an f32.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}
