//! A plan, compiled once and run on block after block.

use std::mem::MaybeUninit;

use super::dtype::{DType, Op};
use super::kernel::{Call, Extra, MAX_OPERANDS, Scale};
use super::level::Level;
use super::plan::{Finish, Input, PlanError, Purpose, Source, Step, Target, steps};
use super::tree::Node;

/// Bytes of a slot. A few of them, and what they are made of, stay in the smallest cache.
const SLOT_BYTES: usize = 4096;
/// Slots of the small stack frame; it does for some hundred lanes.
const FEW_SLOTS: usize = 4;
/// Slots of the large one: no tree is deeper.
const MANY_SLOTS: usize = Node::MAX_LEVEL as usize;

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
    /// For each input, whether it is in the form of users' buffers, and the bytes of an element.
    inputs: Vec<(bool, usize)>,
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
            inputs: inputs
                .iter()
                .map(|input| (!input.partial, form(input.partial).size()))
                .collect(),
            output_size: form(finish == Finish::Partial).size(),
            block: SLOT_BYTES / dtype.partial().size(),
            scale: scale(op, total),
        })
    }

    /// Run on `count` elements of every input, in the order in which `new` was given them.
    ///
    /// # Safety
    /// There are as many inputs as `new` was given; each is good for reads, and each output for writes, of
    /// `count` elements of its form, and nobody else writes the one or touches the other meanwhile. An output
    /// may be exactly the address of an input whose elements are no smaller, but not overlap one otherwise,
    /// nor another output. No alignment is needed.
    pub unsafe fn run(&self, inputs: &[*const u8], outputs: &[*mut u8], count: usize) {
        debug_assert_eq!(inputs.len(), self.inputs.len(), "one pointer for each input");
        let buffers = Buffers { inputs, outputs };
        // SAFETY: the caller's promise is passed on; each frame has as many slots as the steps use.
        unsafe {
            if outputs.is_empty() {
            } else if self.slots == 0 && outputs.len() <= 2 {
                self.run_block(buffers, &mut [], 0, count);
            } else if self.slots <= FEW_SLOTS {
                self.run_blocks::<FEW_SLOTS>(buffers, count);
            } else {
                self.run_blocks::<MANY_SLOTS>(buffers, count);
            }
        }
    }

    /// # Safety
    /// As for `run`; the steps use at most `SLOTS` slots.
    unsafe fn run_blocks<const SLOTS: usize>(&self, buffers: Buffers<'_>, count: usize) {
        let mut slots = [Slot(MaybeUninit::uninit()); SLOTS];
        for at in (0..count).step_by(self.block) {
            // SAFETY: the block lies below the count and fits a slot.
            unsafe { self.run_block(buffers, &mut slots, at, self.block.min(count - at)) };
        }
    }

    /// # Safety
    /// As for `run`, for elements `at` to `at + count`; these fit a slot if there are slots.
    unsafe fn run_block(&self, buffers: Buffers<'_>, slots: &mut [Slot], at: usize, count: usize) {
        let Buffers { inputs, outputs } = buffers;
        // One pointer for all slots: a step may read and write the same one.
        let slots = slots.as_mut_ptr();
        // SAFETY: the plan names only inputs and slots that exist; `at` is within every buffer.
        unsafe {
            let source = |source: Source| match source {
                Source::Input(input) => inputs[input].add(at * self.inputs[input].1),
                Source::Slot(slot) => slots.add(slot).cast::<u8>().cast_const(),
            };
            let output = |index: usize| outputs[index].add(at * self.output_size);
            for step in &self.steps {
                let mut operands = [std::ptr::null(); MAX_OPERANDS];
                for (operand, &from) in operands.iter_mut().zip(&step.operands[..step.count]) {
                    *operand = source(from);
                }
                let extra = match step.extra {
                    None => Extra::Nothing,
                    Some(Source::Input(input)) if self.inputs[input].0 => {
                        Extra::Native(source(Source::Input(input)))
                    }
                    Some(partial) => Extra::Partial(source(partial)),
                };
                let (out, second) = match step.target {
                    Target::Slot(slot) => (slots.add(slot).cast::<u8>(), std::ptr::null_mut()),
                    Target::Outputs if outputs.len() < 2 => (output(0), std::ptr::null_mut()),
                    Target::Outputs => (output(0), output(1)),
                };
                (step.kernel)(&Call {
                    operands,
                    extra,
                    out,
                    second,
                    count,
                    scale: self.scale,
                });
            }
            for index in 2..outputs.len() {
                std::ptr::copy_nonoverlapping(output(0), output(index), count * self.output_size);
            }
        }
    }
}

/// Dividing by a power of two and multiplying by its inverse round the same exact value, so they are equal.
fn scale(op: Op, total: u32) -> Scale {
    match op {
        Op::Mean if total.is_power_of_two() => Scale::Multiply(1.0 / f64::from(total)),
        Op::Mean => Scale::Divide(f64::from(total)),
        _ => Scale::Nothing,
    }
}
