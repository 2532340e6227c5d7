//! The shape of the tree and of its parts.

use proptest::prelude::*;

use crate::numerics::{Node, root, subtrees};

fn found(lanes: &[u32], total: u32) -> Vec<(u32, u8)> {
    subtrees(lanes, total)
        .into_iter()
        .map(|node| (node.first, node.level))
        .collect()
}

#[test]
fn the_root_covers_all_lanes() {
    let levels = [
        (1, 0),
        (2, 1),
        (3, 2),
        (4, 2),
        (5, 3),
        (8, 3),
        (9, 4),
        (1 << 31, 31),
        (u32::MAX, 32),
    ];
    for (total, level) in levels {
        assert_eq!(root(total), Node { first: 0, level });
        assert_eq!(root(total).lanes(total), 0..total);
    }
}

#[test]
fn subtrees_are_the_largest_that_are_complete() {
    assert_eq!(found(&[], 4), []);
    assert_eq!(found(&[0, 1, 2, 3], 4), [(0, 2)]);
    assert_eq!(found(&[1, 2, 3], 4), [(1, 0), (2, 1)]);
    assert_eq!(found(&[0, 1, 2, 5, 6, 7], 8), [(0, 1), (2, 0), (5, 0), (6, 1)]);
    // Lanes that do not exist are not missing.
    assert_eq!(found(&[0, 1, 2], 3), [(0, 2)]);
    assert_eq!(found(&[2], 3), [(2, 1)]);
    assert_eq!(found(&[4], 5), [(4, 2)]);
    assert_eq!(found(&[3, 4], 5), [(3, 0), (4, 2)]);
    assert_eq!(found(&[u32::MAX - 1], u32::MAX), [(u32::MAX - 1, 1)]);
}

proptest! {
    #[test]
    fn subtrees_cover_their_lanes_and_cannot_grow(total in 1_u32..70, mask: u128) {
        let lanes: Vec<u32> = (0..total).filter(|lane| mask >> lane & 1 == 1).collect();
        let nodes = subtrees(&lanes, total);
        let covered: Vec<u32> = nodes.iter().flat_map(|node| node.lanes(total)).collect();
        prop_assert_eq!(&covered, &lanes);
        for node in nodes {
            prop_assert!(node.is_valid(total));
            let level = node.level + 1;
            let parent = Node { first: node.first >> level << level, level };
            let complete = parent.lanes(total).all(|lane| lanes.contains(&lane));
            prop_assert!(node == root(total) || !complete, "{:?} is not the largest", node);
        }
    }
}
