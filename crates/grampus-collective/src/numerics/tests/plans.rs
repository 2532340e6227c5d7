//! What can be planned, and what is refused and how.

use crate::numerics::{DType, Finish, Input, Node, Op, PlanError, Program, check, root};

fn inputs(nodes: &[(u32, u8)]) -> Vec<Input> {
    nodes
        .iter()
        .map(|&(first, level)| Input {
            node: Node { first, level },
            partial: true,
        })
        .collect()
}

fn plan(total: u32, nodes: &[(u32, u8)], output: Node) -> Result<Program, PlanError> {
    Program::new(
        DType::F32,
        Op::Sum,
        total,
        &inputs(nodes),
        output,
        Finish::Partial,
    )
}

#[test]
fn exact_covers_are_planned() {
    assert!(plan(3, &[(2, 0), (0, 1)], root(3)).is_ok());
    // Nodes that stick out over the last lane are the same as their left halves.
    assert!(plan(3, &[(2, 1), (0, 1)], root(3)).is_ok());
    assert!(plan(5, &[(4, 2), (0, 2)], root(5)).is_ok());
    assert!(plan(8, &[(4, 1), (6, 0), (7, 0)], Node { first: 4, level: 2 }).is_ok());
    assert!(plan(u32::MAX, &[(0, 32)], root(u32::MAX)).is_ok());
    assert!(plan(u32::MAX, &[(0, 31), (1 << 31, 31)], root(u32::MAX)).is_ok());
}

#[test]
fn missing_doubled_and_foreign_lanes_are_named() {
    assert_eq!(
        plan(8, &[(0, 1), (4, 2)], root(8)).unwrap_err(),
        PlanError::Missing(2..4)
    );
    assert_eq!(plan(6, &[(0, 2)], root(6)).unwrap_err(), PlanError::Missing(4..6));
    assert_eq!(plan(2, &[], root(2)).unwrap_err(), PlanError::Missing(0..2));
    assert_eq!(
        plan(8, &[(0, 2), (2, 1), (4, 2)], root(8)).unwrap_err(),
        PlanError::Doubled(2..4)
    );
    assert_eq!(
        plan(2, &[(0, 1), (0, 1)], root(2)).unwrap_err(),
        PlanError::Doubled(0..2)
    );
    let right = Node { first: 4, level: 2 };
    assert_eq!(
        plan(8, &[(2, 1), (4, 2)], right).unwrap_err(),
        PlanError::Outside(2..4)
    );
    let message = plan(8, &[(0, 1), (4, 2)], root(8)).unwrap_err().to_string();
    assert_eq!(
        message,
        "no input has lanes 2 to 3, which the output needs: add the inputs that have them"
    );
}

#[test]
fn nodes_that_do_not_exist_are_refused() {
    for node in [(1, 1), (8, 0), (0, 33), (4, 255)] {
        let error = plan(8, &[node], root(8)).unwrap_err();
        assert_eq!(
            error,
            PlanError::NoSuchNode {
                first: node.0,
                level: node.1,
                total: 8
            }
        );
    }
    assert!(matches!(plan(0, &[], root(0)), Err(PlanError::NoSuchNode { .. })));
}

#[test]
fn operations_without_meaning_are_refused() {
    let refused = |op, dtype| check(op, dtype).unwrap_err().to_string();
    assert!(refused(Op::Mean, DType::I32).contains("there is no mean of i32 elements: convert to a float"));
    assert!(refused(Op::Mean, DType::Bool).contains("share of true ones"));
    assert!(refused(Op::And, DType::Bf16).contains("convert to bool or to an integer type first"));
    let planned = Program::new(DType::I8, Op::Mean, 1, &inputs(&[(0, 0)]), root(1), Finish::Whole);
    assert!(matches!(planned, Err(PlanError::Unsupported(_))));
}

#[test]
fn codes_and_names_are_their_own() {
    for (code, dtype) in DType::ALL.into_iter().enumerate() {
        assert_eq!(DType::from_code(code as u8), Some(dtype));
        assert_eq!(dtype as usize, code);
        assert_eq!(dtype.to_string(), format!("{dtype:?}").to_lowercase());
    }
    for (code, op) in Op::ALL.into_iter().enumerate() {
        assert_eq!(Op::from_code(code as u8), Some(op));
        assert_eq!(op.to_string(), format!("{op:?}").to_lowercase());
    }
    assert_eq!((DType::from_code(9), Op::from_code(7)), (None, None));
}
