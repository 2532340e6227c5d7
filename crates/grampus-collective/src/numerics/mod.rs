//! Sums whose bits depend on neither who adds nor how wide the machine's registers are.
//!
//! The lanes of a run are combined in one binary tree whose shape depends on their number alone: lanes 2k and
//! 2k+1 meet at level 1, and so on; a node without a right half passes through. A [`Program`] makes any node of
//! that tree out of any set of nodes that covers it, so every dealing of lanes to members gives equal bits.
//!
//! What else decides the bits:
//! - f16 and bf16 are widened to f32, combined in f32 through the whole tree, and rounded once at the end.
//! - No fused multiply-add anywhere, and no operation of an element's tree is ever moved.
//! - A NaN in a whole result is always the one canonical NaN of its type. Which of two NaNs survives an addition
//!   is up to the order in which the compiler passes the operands; that there is one is not.

mod convert;
mod dtype;
mod element;
#[cfg(target_arch = "x86_64")]
mod f16c;
mod kernel;
mod level;
mod norm;
mod plan;
mod program;
mod tree;

#[cfg(test)]
mod tests;

pub use dtype::{DType, Op, Unsupported, check};
pub use norm::{NORM_BLOCK, norm, square_sums};
pub use plan::{Finish, Input, PlanError};
pub use program::Program;
pub use tree::{Node, root, subtrees};
