//! However lanes are dealt to members and members to hosts, the result is equal to the bit.

use proptest::prelude::*;

use super::reference::{self, Random};
use super::{Part, lanes_as_parts, reduce};
use crate::numerics::level::Level;
use crate::numerics::plan::Purpose;
use crate::numerics::{DType, Finish, Input, Op, root, subtrees};

const COUNT: usize = 37;

/// Add up beforehand what the lanes of these parts allow.
fn gather(purpose: Purpose, parts: Vec<Part>) -> Vec<Part> {
    let total = purpose.total;
    let mut lanes: Vec<u32> = parts
        .iter()
        .flat_map(|part| part.input.node.lanes(total))
        .collect();
    lanes.sort_unstable();
    let purpose = Purpose {
        finish: Finish::Partial,
        ..purpose
    };
    let gathered = subtrees(&lanes, total).into_iter().map(|node| {
        let covered = node.lanes(total);
        let inside = |part: &&Part| covered.contains(&part.input.node.first);
        let own: Vec<Part> = parts.iter().filter(inside).cloned().collect();
        match own.as_slice() {
            // A lane alone travels as it is.
            [only] => only.clone(),
            _ => Part {
                input: Input { node, partial: true },
                bytes: reduce(purpose, &own, node, COUNT, 1),
            },
        }
    });
    gathered.collect()
}

fn dealt(parts: &[Part], owners: &[usize], total: u32) -> Vec<Vec<Part>> {
    let owner_of = |part: &Part| owners[part.input.node.first as usize % owners.len()];
    let of_owner = |owner: usize| {
        parts
            .iter()
            .filter(|part| owner_of(part) == owner)
            .cloned()
            .collect()
    };
    (0..total as usize).map(of_owner).collect()
}

fn any_work() -> impl Strategy<Value = (DType, Op)> {
    const DTYPES: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::Bf16];
    (
        prop::sample::select(&DTYPES),
        prop::sample::select(&[Op::Sum, Op::Mean, Op::Product, Op::Min]),
    )
}

proptest! {
    #[test]
    fn every_dealing_gives_equal_bits(
        (dtype, op) in any_work(),
        total in 1_u32..40,
        members in prop::collection::vec(0_usize..6, 40),
        hosts in prop::collection::vec(0_usize..3, 6),
        level in 0_usize..3,
        seed: u64,
    ) {
        let mut random = Random(seed);
        let lanes: Vec<Vec<u8>> = (0..total).map(|_| random.elements(dtype, COUNT)).collect();
        let level = Level::available()[level % Level::available().len()];
        let purpose = Purpose { level, dtype, op, total, finish: Finish::Whole };
        let mut parts = Vec::new();
        let by_member = dealt(&lanes_as_parts(&lanes), &members, total.max(6));
        for host in 0..3 {
            let on_host = by_member.iter().enumerate().filter(|(member, _)| hosts[*member % 6] == host);
            let gathered: Vec<Part> = on_host.flat_map(|(_, own)| gather(purpose, own.clone())).collect();
            parts.extend(gather(purpose, gathered));
        }
        // The order in which parts arrive does not matter either.
        parts.reverse();
        let result = reduce(purpose, &parts, root(total), COUNT, 1);
        prop_assert_eq!(result, reference::reduce(op, dtype, &lanes));
    }
}
