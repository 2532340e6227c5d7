//! Every kernel against a naive reference, and every dealing of lanes against every other, to the bit.

mod conversions;
mod dealings;
mod kernels;
mod norms;
mod plans;
mod reference;
mod trees;

use super::level::Level;
use super::plan::Purpose;
use super::{DType, Finish, Input, Node, Op, Program, root};

/// A buffer of elements that starts a given number of elements behind an aligned address, with a guard behind it.
#[derive(Clone)]
struct Buffer {
    memory: Vec<u64>,
    offset: usize,
    bytes: usize,
}

const GUARD: u8 = 0xa5;

impl Buffer {
    fn new(dtype: DType, count: usize, shift: usize) -> Self {
        let (offset, bytes) = (shift * dtype.size(), count * dtype.size());
        Self {
            memory: vec![u64::from_ne_bytes([GUARD; 8]); (offset + bytes) / 8 + 9],
            offset,
            bytes,
        }
    }

    fn filled(dtype: DType, bytes: &[u8], shift: usize) -> Self {
        let mut buffer = Self::new(dtype, bytes.len() / dtype.size(), shift);
        // SAFETY: the buffer was made with room for these bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.pointer(), bytes.len()) };
        buffer
    }

    fn pointer(&mut self) -> *mut u8 {
        // SAFETY: the offset is within the memory.
        unsafe { self.memory.as_mut_ptr().cast::<u8>().add(self.offset) }
    }

    /// The elements, after a look at the guards on both sides of them.
    fn bytes(&self) -> Vec<u8> {
        let all: Vec<u8> = self.memory.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let (before, rest) = all.split_at(self.offset);
        let (inside, after) = rest.split_at(self.bytes);
        assert!(
            before.iter().chain(after).all(|&byte| byte == GUARD),
            "written outside the buffer"
        );
        inside.to_vec()
    }
}

/// What there is of a node: the input and its elements.
#[derive(Clone)]
struct Part {
    input: Input,
    bytes: Vec<u8>,
}

fn lanes_as_parts(lanes: &[Vec<u8>]) -> Vec<Part> {
    let part = |(lane, bytes): (usize, &Vec<u8>)| Part {
        input: Input {
            node: Node::leaf(lane as u32),
            partial: false,
        },
        bytes: bytes.clone(),
    };
    lanes.iter().enumerate().map(part).collect()
}

/// Run a program over parts, each at an alignment of its own, into some outputs; all must be equal.
fn reduce(purpose: Purpose, parts: &[Part], output: Node, count: usize, outputs: usize) -> Vec<u8> {
    let form = |partial: bool| {
        if partial {
            purpose.dtype.partial()
        } else {
            purpose.dtype
        }
    };
    let inputs: Vec<Input> = parts.iter().map(|part| part.input).collect();
    let program = Program::for_purpose(purpose, &inputs, output).unwrap();
    let mut from: Vec<Buffer> = parts
        .iter()
        .enumerate()
        .map(|(index, part)| Buffer::filled(form(part.input.partial), &part.bytes, index % 5))
        .collect();
    let out_type = form(purpose.finish == Finish::Partial);
    let mut to: Vec<Buffer> = (0..outputs)
        .map(|index| Buffer::new(out_type, count, index + 1))
        .collect();
    let sources: Vec<*const u8> = from
        .iter_mut()
        .map(|buffer| buffer.pointer().cast_const())
        .collect();
    let targets: Vec<*mut u8> = to.iter_mut().map(Buffer::pointer).collect();
    // SAFETY: all buffers have `count` elements of their form.
    unsafe { program.run(&sources, &targets, count) };
    let result = to[0].bytes();
    assert!(
        to.iter().all(|buffer| buffer.bytes() == result),
        "the outputs differ"
    );
    for (buffer, part) in from.iter().zip(parts) {
        assert_eq!(buffer.bytes(), part.bytes, "an input was written");
    }
    result
}

/// The whole result of all lanes at the widest level.
fn whole(dtype: DType, op: Op, lanes: &[Vec<u8>]) -> Vec<u8> {
    let total = lanes.len() as u32;
    let purpose = Purpose {
        level: Level::detect(),
        dtype,
        op,
        total,
        finish: Finish::Whole,
    };
    reduce(
        purpose,
        &lanes_as_parts(lanes),
        root(total),
        lanes[0].len() / dtype.size(),
        1,
    )
}

/// All that goes together.
fn supported() -> impl Iterator<Item = (Op, DType)> {
    let pairs = Op::ALL
        .into_iter()
        .flat_map(|op| DType::ALL.map(|dtype| (op, dtype)));
    pairs.filter(|&(op, dtype)| super::check(op, dtype).is_ok())
}
