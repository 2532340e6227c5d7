//! A plan, compiled once and run on block after block.

use std::mem::MaybeUninit;

use super::dtype::{DType, Op};
use super::kernel::{Call, MAX_OPERANDS, Scale};
use super::level::Level;
use super::plan::{Finish, Input, MAX_SLOTS, PlanError, Purpose, Source, Step, Target, steps};
use super::tree::Node;

/// Bytes of a slot. A few of them, and what they are made of, stay in the smallest cache.
const SLOT_BYTES: usize = 4096;
/// Slots of the small stack frame, of which one is for results; it does for sums of 128 lanes.
const FEW_SLOTS: usize = 8;
/// Slots of the large one.
const MANY_SLOTS: usize = MAX_SLOTS + 1;

/// What lies between two steps, on the stack.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Slot(MaybeUninit<[u8; SLOT_BYTES]>);

/// How to make one node of the tree of lanes out of others: compiled once, run per block of elements.
#[derive(Clone, Debug)]
pub struct Program {
    steps: Vec<Step>,
    /// How many slots the steps use.
    slots: usize,
    /// For each input, bytes of an element.
    input_sizes: Vec<usize>,
    /// Bytes of an element of the outputs.
    output_size: usize,
    /// Elements that fit a slot.
    block: usize,
    scale: Scale,
}

/// The pointers of one run.
#[derive(Clone, Copy)]
struct Buffers<'a> {
    inputs: &'a [*const u8],
    outputs: &'a [*mut u8],
    /// An output is an input.
    in_place: bool,
}

impl Program {
    /// Plan how `output` is made of `inputs`, which must cover it exactly and may come in any order.
    pub fn new(
        dtype: DType,
        op: Op,
        total: u32,
        inputs: &[Input],
        output: Node,
        finish: Finish,
    ) -> Result<Self, PlanError> {
        Self::for_purpose(
            Purpose {
                level: Level::detect(),
                dtype,
                op,
                total,
                finish,
            },
            inputs,
            output,
        )
    }

    /// Plan for a given level, which the machine must have.
    pub(super) fn for_purpose(purpose: Purpose, inputs: &[Input], output: Node) -> Result<Self, PlanError> {
        let steps = steps(purpose, inputs, output)?;
        let slots = steps
            .iter()
            .map(|step| match step.target {
                Target::Slot(slot) => slot + 1,
                Target::Outputs => 0,
            })
            .max()
            .unwrap_or(0);
        let Purpose {
            dtype,
            op,
            total,
            finish,
            ..
        } = purpose;
        let form = |partial: bool| if partial { dtype.partial() } else { dtype };
        Ok(Self {
            steps,
            slots,
            input_sizes: inputs.iter().map(|input| form(input.partial).size()).collect(),
            output_size: form(finish == Finish::Partial).size(),
            block: SLOT_BYTES / dtype.partial().size(),
            scale: scale(op, total),
        })
    }

    /// Run on `count` elements of every input, in the order in which `new` was given them.
    ///
    /// # Safety
    /// There are as many inputs as `new` was given; each is good for reads, and each output for writes, of
    /// `count` elements of its form, and nobody else writes the one or touches the other meanwhile. All are
    /// aligned to their elements. An output may be exactly the address of an input whose elements are no
    /// smaller, but not overlap one otherwise, nor another output.
    pub unsafe fn run(&self, inputs: &[*const u8], outputs: &[*mut u8], count: usize) {
        debug_assert_eq!(inputs.len(), self.input_sizes.len(), "one pointer for each input");
        let in_place = outputs.iter().any(|output| inputs.contains(&output.cast_const()));
        let buffers = Buffers {
            inputs,
            outputs,
            in_place,
        };
        // SAFETY: the caller's promise is passed on; each frame has as many slots as the steps use.
        unsafe {
            match outputs {
                [] => {}
                [_] if self.slots == 0 && !in_place => self.run_block(buffers, &mut [], 0, count),
                _ if self.slots < FEW_SLOTS => self.run_blocks::<FEW_SLOTS>(buffers, count),
                _ => self.run_blocks::<MANY_SLOTS>(buffers, count),
            }
        }
    }

    /// # Safety
    /// As for `run`; the steps use fewer than `SLOTS` slots.
    unsafe fn run_blocks<const SLOTS: usize>(&self, buffers: Buffers<'_>, count: usize) {
        let mut slots = [Slot(MaybeUninit::uninit()); SLOTS];
        for at in (0..count).step_by(self.block) {
            // SAFETY: the block lies below the count and fits a slot.
            unsafe { self.run_block(buffers, &mut slots, at, self.block.min(count - at)) };
        }
    }

    /// # Safety
    /// As for `run`, for elements `at` to `at + count`; these fit a slot, and there is one more than the steps
    /// use, unless the steps use none and there is one output, which is no input.
    unsafe fn run_block(&self, buffers: Buffers<'_>, slots: &mut [Slot], at: usize, count: usize) {
        let slots: *mut Slot = slots.as_mut_ptr();
        // SAFETY: the plan names only inputs and slots that exist; `at` is within every buffer.
        unsafe {
            let slot = |index: usize| slots.add(index).cast::<u8>();
            let source = |source: Source| match source {
                Source::Input(input) => buffers.inputs[input].add(at * self.input_sizes[input]),
                Source::Slot(index) => slot(index).cast_const(),
            };
            let output = |output: *mut u8| output.add(at * self.output_size);
            // Kernels write to none of their operands, so a result that replaces an input goes there afterwards.
            let result = if buffers.in_place {
                slot(self.slots)
            } else {
                output(buffers.outputs[0])
            };
            for step in &self.steps {
                let mut operands = [std::ptr::null(); MAX_OPERANDS];
                for (operand, &from) in operands.iter_mut().zip(&step.operands[..step.count]) {
                    *operand = source(from);
                }
                let extra = step.extra.map_or(std::ptr::null(), source);
                let out = match step.target {
                    Target::Slot(index) => slot(index),
                    Target::Outputs => result,
                };
                (step.kernel)(&Call {
                    operands,
                    extra,
                    out,
                    count,
                    scale: self.scale,
                });
            }
            let copied = if buffers.in_place {
                buffers.outputs
            } else {
                &buffers.outputs[1..]
            };
            for &to in copied {
                std::ptr::copy_nonoverlapping(result, output(to), count * self.output_size);
            }
        }
    }
}

/// Dividing by a power of two and multiplying by its inverse round the same exact value, so they are equal.
fn scale(op: Op, total: u32) -> Scale {
    match op {
        Op::Mean if total.is_power_of_two() => Scale::Multiply(1.0 / f64::from(total)),
        Op::Mean => Scale::Divide(f64::from(total)),
        _ => Scale::Multiply(1.0),
    }
}
