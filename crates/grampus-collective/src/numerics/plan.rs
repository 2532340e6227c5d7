//! From the nodes that are there to the node that is wanted: which kernels, in which order, on what.

use std::ops::Range;

use thiserror::Error;

use super::dtype::{DType, Op, Unsupported, check};
use super::kernel::{Kernel, MAX_OPERANDS, Wanted, find, fuses};
use super::level::Level;
use super::tree::Node;

/// A node that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// Which node of the tree of lanes it is.
    pub node: Node,
    /// It comes in the form of partial results (`dtype.partial()`) rather than of users' buffers.
    pub partial: bool,
}

/// In which form the result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// As a partial result (`dtype.partial()`), for another program to go on with.
    Partial,
    /// As users get it: divided by the number of lanes if it is a mean, and rounded to the type.
    Whole,
}

/// Why there is no program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// The operation has no meaning for the type.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A node that the tree does not have.
    #[error(
        "lane {first} at level {level} is no node of a tree of {total} lanes: take nodes from `subtrees` or `root`"
    )]
    NoSuchNode {
        /// The first lane of the node.
        first: u32,
        /// Its level.
        level: u8,
        /// The number of lanes.
        total: u32,
    },
    /// Lanes of the output that no input has.
    #[error("no input has lanes {} to {}, which the output needs: add the inputs that have them", .0.start, .0.end - 1)]
    Missing(Range<u32>),
    /// Lanes that two inputs have.
    #[error("two inputs have lanes {} to {}: give every lane once", .0.start, .0.end - 1)]
    Doubled(Range<u32>),
    /// Lanes of an input that the output does not have.
    #[error("lanes {} to {} are no part of the output: leave these inputs out", .0.start, .0.end - 1)]
    Outside(Range<u32>),
}

/// Where a step reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Input(usize),
    Slot(usize),
}

/// Where a step writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Outputs,
    Slot(usize),
}

/// How many more slots a tree may need than its halves: one for each of them.
const SLOTS_PER_LEVEL: usize = 2;
/// No tree needs more slots.
pub(super) const MAX_SLOTS: usize = SLOTS_PER_LEVEL * Node::MAX_LEVEL as usize;

/// One run of a kernel over a block.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub kernel: Kernel,
    pub operands: [Source; MAX_OPERANDS],
    /// How many of the operands count.
    pub count: usize,
    pub extra: Option<Source>,
    pub target: Target,
}

/// What a program is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Purpose {
    pub level: Level,
    pub dtype: DType,
    pub op: Op,
    pub total: u32,
    pub finish: Finish,
}

/// The steps, the last of which writes the outputs.
pub(super) fn steps(purpose: Purpose, inputs: &[Input], output: Node) -> Result<Vec<Step>, PlanError> {
    check(purpose.op, purpose.dtype)?;
    let order = in_order(inputs, output, purpose.total)?;
    let mut planner = Planner {
        purpose,
        inputs,
        steps: Vec::new(),
    };
    let tree = tree_of(&order, inputs, output);
    planner.emit(&tree, Target::Outputs, 0);
    Ok(planner.steps)
}

/// Check that the inputs cover the output exactly, and give them in the order of their lanes.
fn in_order(inputs: &[Input], output: Node, total: u32) -> Result<Vec<usize>, PlanError> {
    for node in inputs.iter().map(|input| input.node).chain([output]) {
        if !node.is_valid(total) {
            return Err(PlanError::NoSuchNode {
                first: node.first,
                level: node.level,
                total,
            });
        }
    }
    let mut order: Vec<usize> = (0..inputs.len()).collect();
    order.sort_by_key(|&index| inputs[index].node.first);
    let wanted = output.lanes(total);
    let mut next = wanted.start;
    for &index in &order {
        let lanes = inputs[index].node.lanes(total);
        if lanes.start < wanted.start || lanes.end > wanted.end {
            return Err(PlanError::Outside(lanes));
        }
        if lanes.start > next {
            return Err(PlanError::Missing(next..lanes.start));
        }
        if lanes.start < next {
            return Err(PlanError::Doubled(lanes.start..lanes.end.min(next)));
        }
        next = lanes.end;
    }
    if next < wanted.end {
        Err(PlanError::Missing(next..wanted.end))
    } else {
        Ok(order)
    }
}

/// What is to be combined with what.
enum Tree {
    Leaf(usize),
    Pair(Box<Tree>, Box<Tree>),
}

/// The tree of a node over the inputs that cover it, of which there is at least one.
fn tree_of(order: &[usize], inputs: &[Input], node: Node) -> Tree {
    if let [only] = order {
        return Tree::Leaf(*only);
    }
    let middle = node.middle();
    let split = order.partition_point(|&index| u64::from(inputs[index].node.first) < middle);
    let (left, right) = order.split_at(split);
    let level = node.level - 1;
    let left_node = Node {
        first: node.first,
        level,
    };
    if right.is_empty() {
        // The right half has no lanes: the node passes through.
        return tree_of(left, inputs, left_node);
    }
    let right_node = Node {
        first: middle as u32,
        level,
    };
    Tree::Pair(
        Box::new(tree_of(left, inputs, left_node)),
        Box::new(tree_of(right, inputs, right_node)),
    )
}

impl Tree {
    /// The leaves, if all branches are equally long.
    fn perfect(&self) -> Option<Vec<usize>> {
        match self {
            Self::Leaf(input) => Some(vec![*input]),
            Self::Pair(left, right) => {
                let (mut left, right) = (left.perfect()?, right.perfect()?);
                if left.len() != right.len() || left.len() >= MAX_OPERANDS {
                    return None;
                }
                left.extend(right);
                Some(left)
            }
        }
    }
}

struct Planner<'a> {
    purpose: Purpose,
    inputs: &'a [Input],
    steps: Vec<Step>,
}

impl Planner<'_> {
    /// Add the steps that make a tree, with slots from `free` on, which the target is none of, for what lies between.
    ///
    /// A tree that no kernel makes in one pass is cut at its root: one half goes to a slot, and the kernel that
    /// makes the other half combines the two. Going down a level takes at most `SLOTS_PER_LEVEL`.
    fn emit(&mut self, tree: &Tree, target: Target, free: usize) {
        if let Some(operands) = self.fused(tree) {
            return self.push(&operands, None, target);
        }
        let Tree::Pair(left, right) = tree else { return };
        // An input is the cheapest extra operand, then what needs a slot in any case.
        let aside_rank = |half: &Tree| match (half, self.fused(half)) {
            (Tree::Leaf(_), _) => 0,
            (_, None) => 1,
            (_, Some(_)) => 2,
        };
        let (aside, rest) = if aside_rank(left) <= aside_rank(right) {
            (left, right)
        } else {
            (right, left)
        };
        let (extra, free) = match self.as_extra(aside) {
            Some(input) => (input, free),
            None => {
                self.emit(aside, Target::Slot(free), free + 1);
                (Source::Slot(free), free + 1)
            }
        };
        match self.fused(rest) {
            Some(operands) => self.push(&operands, Some(extra), target),
            None => {
                self.emit(rest, Target::Slot(free), free + 1);
                self.push(&[Source::Slot(free)], Some(extra), target);
            }
        }
    }

    /// The operands of the kernel that makes the tree in one pass, if there is one.
    fn fused(&self, tree: &Tree) -> Option<Vec<Source>> {
        let leaves = tree.perfect()?;
        let form = self.is_native(Source::Input(*leaves.first()?));
        let alike = leaves
            .iter()
            .all(|&leaf| self.is_native(Source::Input(leaf)) == form);
        let fused = alike && fuses(self.purpose.op, self.purpose.dtype, leaves.len());
        fused.then(|| leaves.into_iter().map(Source::Input).collect())
    }

    /// The input that the tree is, if it has the form of partial results: kernels take extra operands in no other.
    fn as_extra(&self, tree: &Tree) -> Option<Source> {
        match tree {
            Tree::Leaf(input) if self.inputs[*input].partial || self.has_one_form() => {
                Some(Source::Input(*input))
            }
            _ => None,
        }
    }

    fn push(&mut self, operands: &[Source], extra: Option<Source>, target: Target) {
        let Purpose {
            level,
            dtype,
            op,
            finish,
            ..
        } = self.purpose;
        let whole = target == Target::Outputs && finish == Finish::Whole;
        let native = operands.first().is_some_and(|&operand| self.is_native(operand));
        let kernel = find(Wanted {
            level,
            dtype,
            op,
            operands: operands.len(),
            native,
            whole,
        });
        let mut padded = [Source::Slot(0); MAX_OPERANDS];
        padded[..operands.len()].copy_from_slice(operands);
        self.steps.push(Step {
            kernel,
            operands: padded,
            count: operands.len(),
            extra,
            target,
        });
    }

    /// Whether what lies there has the form of users' buffers. Types of one form count as native.
    fn is_native(&self, source: Source) -> bool {
        let partial = match source {
            Source::Input(input) => self.inputs[input].partial,
            Source::Slot(_) => true,
        };
        !partial || self.has_one_form()
    }

    fn has_one_form(&self) -> bool {
        self.purpose.dtype.partial() == self.purpose.dtype
    }
}
