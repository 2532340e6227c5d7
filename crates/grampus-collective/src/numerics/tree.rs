//! The tree of lanes: its nodes, its root, and the subtrees that a set of lanes makes.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A node of the tree of lanes: it covers those of the 2^level lanes from `first` on that exist.
///
/// `first` is a multiple of 2^level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Node {
    /// The first lane.
    pub first: u32,
    /// How many additions deep the node is, were all its lanes there.
    pub level: u8,
}

impl Node {
    /// The highest level that any number of lanes needs.
    pub const MAX_LEVEL: u8 = 32;

    /// The node of one lane.
    pub const fn leaf(lane: u32) -> Self {
        Self {
            first: lane,
            level: 0,
        }
    }

    /// The lanes of the node, of `total` that exist; empty if it lies behind them.
    pub fn lanes(self, total: u32) -> Range<u32> {
        let end = u64::from(self.first)
            .saturating_add(self.width())
            .min(u64::from(total));
        self.first..u32::try_from(end).unwrap_or(total)
    }

    /// Whether `first` and `level` belong together and at least the first lane exists.
    pub fn is_valid(self, total: u32) -> bool {
        self.level <= Self::MAX_LEVEL
            && self.first < total
            && u64::from(self.first).is_multiple_of(self.width())
    }

    /// The first lane of the right half, whether it exists or not. The node must not be a leaf.
    pub(super) fn middle(self) -> u64 {
        u64::from(self.first) + self.width() / 2
    }

    fn width(self) -> u64 {
        1_u64.checked_shl(u32::from(self.level)).unwrap_or(u64::MAX)
    }
}

/// The node that covers all lanes.
pub fn root(total: u32) -> Node {
    let level = u64::from(total).next_power_of_two().trailing_zeros();
    Node {
        first: 0,
        level: u8::try_from(level).unwrap_or(Node::MAX_LEVEL),
    }
}

/// The largest complete subtrees that a set of lanes makes, in the order of the lanes.
///
/// The lanes are sorted, distinct and below `total`. A subtree that sticks out over the last lane is complete
/// when all its existing lanes are there. What a member may add up beforehand is exactly this: anything larger
/// needs lanes of others, and adding in any other order gives other bits.
pub fn subtrees(lanes: &[u32], total: u32) -> Vec<Node> {
    let top = u32::from(root(total).level);
    let mut nodes = Vec::new();
    for run in lanes.chunk_by(|left, right| left + 1 == *right) {
        let (Some(&first), Some(&last)) = (run.first(), run.last()) else {
            continue;
        };
        // Lanes that do not exist cannot be missing: a run up to the last lane goes on for ever.
        let end = if last + 1 == total {
            u64::MAX
        } else {
            u64::from(last) + 1
        };
        let mut at = u64::from(first);
        while at <= u64::from(last) {
            let aligned = at.trailing_zeros().min(top);
            let fits = (end - at).ilog2();
            let level = aligned.min(fits);
            nodes.push(Node {
                first: at as u32,
                level: level as u8,
            });
            at += 1 << level;
        }
    }
    nodes
}
