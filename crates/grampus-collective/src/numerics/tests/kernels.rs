//! Every operation on every type, at every register width.

use half::{bf16, f16};

use super::reference::{self, Random};
use super::{Buffer, lanes_as_parts, reduce, supported, whole};
use crate::numerics::level::Level;
use crate::numerics::plan::Purpose;
use crate::numerics::{DType, Finish, Input, Node, Op, Program, root};

const COUNTS: [usize; 10] = [0, 1, 15, 16, 17, 63, 64, 65, 4095, 4097];
const TOTALS: [usize; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17];

fn compare(op: Op, dtype: DType, total: usize, count: usize, outputs: usize) {
    let mut random = Random((total * 10_000 + count) as u64);
    let lanes: Vec<Vec<u8>> = (0..total).map(|_| random.elements(dtype, count)).collect();
    let expected = reference::reduce(op, dtype, &lanes);
    for &level in Level::available() {
        let purpose = Purpose {
            level,
            dtype,
            op,
            total: total as u32,
            finish: Finish::Whole,
        };
        let result = reduce(
            purpose,
            &lanes_as_parts(&lanes),
            root(total as u32),
            count,
            outputs,
        );
        if result != expected {
            let byte = result
                .iter()
                .zip(&expected)
                .position(|(left, right)| left != right);
            panic!("{op} of {total} x {count} {dtype} at {level:?} differs from byte {byte:?} on");
        }
    }
}

#[test]
fn every_operation_equals_the_reference() {
    for (op, dtype) in supported() {
        for total in TOTALS {
            for count in COUNTS {
                compare(op, dtype, total, count, 1);
            }
        }
    }
}

#[test]
fn several_outputs_are_equal() {
    for (op, dtype) in supported() {
        for outputs in [2, 3, 5] {
            compare(op, dtype, 8, 1031, outputs);
            compare(op, dtype, 11, 4097, outputs);
        }
    }
}

#[test]
fn long_buffers_equal_the_reference() {
    for total in [2, 16, 17] {
        compare(Op::Sum, DType::F32, total, (1 << 20) / 4 + 3, 1);
    }
}

#[test]
fn many_lanes_equal_the_reference() {
    for op in [Op::Sum, Op::Mean, Op::Product] {
        for dtype in [DType::F32, DType::Bf16] {
            compare(op, dtype, 1000, 3, 1);
            compare(op, dtype, 5001, 3, 2);
        }
    }
}

#[test]
fn no_outputs_and_no_elements_are_fine() {
    let inputs = [Input {
        node: Node::leaf(0),
        partial: false,
    }];
    let program = Program::new(DType::F32, Op::Sum, 1, &inputs, root(1), Finish::Whole).unwrap();
    let mut buffer = Buffer::new(DType::F32, 4, 0);
    // SAFETY: the buffer has four elements.
    unsafe {
        program.run(&[buffer.pointer()], &[], 4);
        program.run(&[buffer.pointer()], &[buffer.pointer()], 0);
    }
    buffer.bytes();
}

/// All outputs are inputs, as in a reduction in shared memory.
#[test]
fn results_may_replace_inputs() {
    for (op, dtype) in supported() {
        for (total, count) in [(1, 17), (2, 4097), (5, 1025), (16, 2050)] {
            let mut random = Random(7);
            let lanes: Vec<Vec<u8>> = (0..total).map(|_| random.elements(dtype, count)).collect();
            let expected = reference::reduce(op, dtype, &lanes);
            let inputs: Vec<Input> = lanes_as_parts(&lanes).iter().map(|part| part.input).collect();
            let total = total as u32;
            let program = Program::new(dtype, op, total, &inputs, root(total), Finish::Whole).unwrap();
            let mut buffers: Vec<Buffer> = lanes.iter().map(|lane| Buffer::filled(dtype, lane, 1)).collect();
            let targets: Vec<*mut u8> = buffers.iter_mut().map(Buffer::pointer).collect();
            let sources: Vec<*const u8> = targets.iter().map(|target| target.cast_const()).collect();
            // SAFETY: all buffers have `count` elements, and each output is exactly an input.
            unsafe { program.run(&sources, &targets, count) };
            assert!(
                buffers.iter().all(|buffer| buffer.bytes() == expected),
                "{op} of {dtype}, {total} lanes"
            );
        }
    }
}

/// A partial result of f32 is rounded to a half float where it lies.
#[test]
fn a_smaller_result_may_replace_a_partial_one() {
    let count = 5000;
    let wide: Vec<u8> = (0..count)
        .flat_map(|at| (at as f32 / 7.0).to_ne_bytes())
        .collect();
    let inputs = [Input {
        node: root(4),
        partial: true,
    }];
    let program = Program::new(DType::Bf16, Op::Mean, 4, &inputs, root(4), Finish::Whole).unwrap();
    let mut buffer = Buffer::filled(DType::F32, &wide, 0);
    let pointer = buffer.pointer();
    // SAFETY: the buffer has `count` elements of the larger form.
    unsafe { program.run(&[pointer], &[pointer], count) };
    let expected: Vec<u8> = (0..count)
        .flat_map(|at| bf16::from_f32(at as f32 / 7.0 / 4.0).to_ne_bytes())
        .collect();
    assert_eq!(buffer.bytes()[..expected.len()], expected);
}

fn singles(lanes: &[f32]) -> Vec<Vec<u8>> {
    // More than a register of any width, and a rest.
    lanes.iter().map(|lane| lane.to_ne_bytes().repeat(37)).collect()
}

fn single(op: Op, lanes: &[f32]) -> u32 {
    let bytes = whole(DType::F32, op, &singles(lanes));
    let first: [u8; 4] = bytes[..4].try_into().unwrap();
    assert_eq!(bytes, first.repeat(37), "body and rest differ");
    u32::from_ne_bytes(first)
}

#[test]
fn nan_wins_on_either_side_and_is_canonical() {
    let odd_nan = f32::from_bits(0xffa0_1234);
    for op in [Op::Sum, Op::Mean, Op::Min, Op::Max, Op::Product] {
        for lanes in [
            [odd_nan, 1.0],
            [1.0, odd_nan],
            [odd_nan, f32::INFINITY],
            [odd_nan, -f32::NAN],
        ] {
            assert_eq!(single(op, &lanes), f32::NAN.to_bits(), "{op} of {lanes:?}");
        }
    }
    assert_eq!(single(Op::Sum, &[odd_nan]), f32::NAN.to_bits());
    assert_eq!(
        single(Op::Sum, &[f32::INFINITY, f32::NEG_INFINITY]),
        f32::NAN.to_bits()
    );
}

#[test]
fn zeros_have_a_sign_and_infinities_pass() {
    for lanes in [[0.0, -0.0], [-0.0, 0.0]] {
        assert_eq!(single(Op::Min, &lanes), (-0.0_f32).to_bits());
        assert_eq!(single(Op::Max, &lanes), 0);
        assert_eq!(single(Op::Sum, &lanes), 0);
    }
    assert_eq!(single(Op::Sum, &[-0.0, -0.0]), (-0.0_f32).to_bits());
    assert_eq!(
        single(Op::Sum, &[f32::INFINITY, 1.0, 2.0]),
        f32::INFINITY.to_bits()
    );
    assert_eq!(single(Op::Max, &[f32::NEG_INFINITY, -1.0]), (-1.0_f32).to_bits());
}

/// 2048 + 1 + 1 is 2050 in f16 only if nothing is rounded on the way.
#[test]
fn half_floats_are_rounded_once() {
    let lanes: Vec<Vec<u8>> = [2048.0, 1.0, 1.0]
        .map(|lane| f16::from_f32(lane).to_ne_bytes().to_vec())
        .to_vec();
    assert_eq!(
        whole(DType::F16, Op::Sum, &lanes),
        f16::from_f32(2050.0).to_ne_bytes()
    );
}

#[test]
fn bools_are_true_if_not_zero() {
    let lanes = vec![vec![2, 2, 0, 0], vec![1, 4, 8, 0]];
    assert_eq!(whole(DType::Bool, Op::And, &lanes), [1, 1, 0, 0]);
    assert_eq!(whole(DType::Bool, Op::Product, &lanes), [1, 1, 0, 0]);
    assert_eq!(whole(DType::Bool, Op::Sum, &lanes), [1, 1, 1, 0]);
    assert_eq!(whole(DType::Bool, Op::Max, &lanes[..1]), [1, 1, 0, 0]);
}
