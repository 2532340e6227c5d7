//! The hot loops of a reduction, alone.
//!
//! `kernels WHICH` measures one against `memcpy` for sizes from the second cache to main memory, in bytes read
//! and written. `kernels WHICH ELEMENTS TIMES` only runs it, for callgrind: what one run more costs is the
//! difference of two counts of instructions. WHICH is one of sum2, sum4, sum8, sum16, mean2, bf16_sum2,
//! bf16_sum16, f16_sum2, norm.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use grampus_collective::numerics::{
    DType, Finish, Input, NORM_BLOCK, Node, Op, Program, norm, root, square_sums,
};

/// All buffers start on a page, as they do in shared memory: the hardest case for the caches.
const PAGE: usize = 4096;
/// Bytes of all buffers together: within the second cache, within the third, and far outside both.
const SIZES: [usize; 4] = [384 << 10, 6 << 20, 24 << 20, 768 << 20];
/// Long enough to be measured well.
const MEASURED: Duration = Duration::from_millis(300);
const ROUNDS: usize = 5;

/// One loop to measure.
#[derive(Clone, Copy)]
struct Which {
    dtype: DType,
    op: Op,
    /// None for the norm.
    lanes: Option<u32>,
}

fn named(name: &str) -> Option<Which> {
    let (dtype, op, lanes) = match name {
        "sum2" => (DType::F32, Op::Sum, Some(2)),
        "sum4" => (DType::F32, Op::Sum, Some(4)),
        "sum8" => (DType::F32, Op::Sum, Some(8)),
        "sum16" => (DType::F32, Op::Sum, Some(16)),
        "mean2" => (DType::F32, Op::Mean, Some(2)),
        "bf16_sum2" => (DType::Bf16, Op::Sum, Some(2)),
        "bf16_sum16" => (DType::Bf16, Op::Sum, Some(16)),
        "f16_sum2" => (DType::F16, Op::Sum, Some(2)),
        "norm" => (DType::F32, Op::Sum, None),
        _ => return None,
    };
    Some(Which { dtype, op, lanes })
}

/// Equal buffers, one behind the other; the last is the output.
struct Buffers {
    memory: Vec<u8>,
    offset: usize,
    stride: usize,
}

impl Buffers {
    fn new(buffers: usize, bytes: usize) -> Self {
        let stride = bytes.next_multiple_of(PAGE);
        // 0x3c makes small, normal floats of every width.
        let memory = vec![0x3c; buffers * stride + PAGE];
        let offset = memory.as_ptr().align_offset(PAGE);
        Self {
            memory,
            offset,
            stride,
        }
    }

    fn at(&mut self, index: usize) -> *mut u8 {
        self.memory[self.offset + index * self.stride..].as_mut_ptr()
    }
}

/// The loop over `count` elements.
fn prepare(which: Which, count: usize) -> Result<Box<dyn FnMut()>, String> {
    let bytes = count * which.dtype.size();
    let Some(lanes) = which.lanes else {
        let mut buffers = Buffers::new(1, bytes);
        let mut sums = vec![0.0; count.div_ceil(NORM_BLOCK)];
        let run = move || {
            // SAFETY: the buffer has `count` elements, and there is a sum for each block.
            unsafe { square_sums(which.dtype, buffers.at(0), count, &mut sums) };
            std::hint::black_box(norm(&sums));
        };
        return Ok(Box::new(run));
    };
    let inputs: Vec<Input> = (0..lanes)
        .map(|lane| Input {
            node: Node::leaf(lane),
            partial: false,
        })
        .collect();
    let program = Program::new(which.dtype, which.op, lanes, &inputs, root(lanes), Finish::Whole)
        .map_err(|error| error.to_string())?;
    let mut buffers = Buffers::new(lanes as usize + 1, bytes);
    let from: Vec<*const u8> = (0..lanes as usize)
        .map(|lane| buffers.at(lane).cast_const())
        .collect();
    let to = [buffers.at(lanes as usize)];
    // SAFETY: all buffers, which the closure owns through `buffers`, have `count` elements.
    let run = move || unsafe {
        program.run(&from, &to, count);
        std::hint::black_box(&buffers.memory);
    };
    Ok(Box::new(run))
}

/// The best time of one run.
#[expect(clippy::disallowed_methods, reason = "a measurement needs the real time")]
fn seconds(run: &mut dyn FnMut()) -> f64 {
    run();
    let start = Instant::now();
    run();
    let times = (MEASURED.as_secs_f64() / start.elapsed().as_secs_f64().max(1e-9)).ceil() as u32;
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..times).for_each(|_| run());
            start.elapsed().as_secs_f64() / f64::from(times)
        })
        .fold(f64::INFINITY, f64::min)
}

fn compare(name: &str, which: Which) -> Result<(), String> {
    for size in SIZES {
        let buffers = which.lanes.map_or(1, |lanes| lanes as usize + 1);
        let count = size / buffers / which.dtype.size() / NORM_BLOCK * NORM_BLOCK;
        let mut run = prepare(which, count)?;
        let moved = count * which.dtype.size() * buffers;
        let speed = moved as f64 / seconds(&mut run) / 1e9;
        drop(run);
        let mut copied = Buffers::new(2, moved / 2);
        let (from, to) = (copied.at(0).cast_const(), copied.at(1));
        // SAFETY: both buffers have half the bytes.
        let mut copy = || unsafe {
            std::ptr::copy_nonoverlapping(from, to, moved / 2);
            std::hint::black_box(&copied.memory);
        };
        let memcpy = moved as f64 / seconds(&mut copy) / 1e9;
        println!(
            "{name:<10} {:>9} KiB in all: {speed:6.1} GB/s, memcpy {memcpy:6.1} GB/s, {:.2} of it",
            moved >> 10,
            speed / memcpy
        );
    }
    Ok(())
}

fn start(arguments: &[String]) -> Result<(), String> {
    let usage = || "usage: kernels sum2|sum16|bf16_sum2|norm [ELEMENTS TIMES]".to_owned();
    let name = arguments.first().ok_or_else(usage)?;
    let which = named(name).ok_or_else(usage)?;
    match arguments {
        [_] => compare(name, which),
        [_, elements, times] => {
            let number = |text: &String| text.parse::<usize>().map_err(|_| usage());
            let mut run = prepare(which, number(elements)?)?;
            (0..number(times)?).for_each(|_| run());
            Ok(())
        }
        _ => Err(usage()),
    }
}

fn main() -> ExitCode {
    match start(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
