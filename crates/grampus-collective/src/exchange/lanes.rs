//! The sum over lanes, whoever drives which: all tell their lanes first, then the sum goes its way.

use std::sync::Arc;

use super::reduce::Column;
use super::{Deck, Exchange, Place, Posted, Receivers, Reduce, Shape, Step};
use crate::CollectiveError;
use crate::numerics::{DType, Finish, Input, Node, Op, Program, subtrees};

pub(crate) struct Lanes {
    dtype: DType,
    op: Op,
    /// In order of lanes.
    mine: Vec<(u32, Place)>,
    count: usize,
    told: bool,
    reduce: Option<Reduce>,
}

impl Lanes {
    pub fn new(dtype: DType, op: Op, mut mine: Vec<(u32, Place)>, count: usize) -> Self {
        mine.sort_by_key(|(lane, _)| *lane);
        Self {
            dtype,
            op,
            mine,
            count,
            told: false,
            reduce: None,
        }
    }

    fn tell(&self, deck: &Deck<'_>) -> Result<(), CollectiveError> {
        if (self.mine.len() + 1) * 4 > deck.room() {
            return Err(CollectiveError::Argument(format!(
                "{} lanes are more than one member can drive: use fewer",
                self.mine.len()
            )));
        }
        let slot = deck.slot(deck.me).cast::<u32>();
        let lanes = self.mine.iter().map(|(lane, _)| *lane);
        for (index, value) in std::iter::once(self.mine.len() as u32).chain(lanes).enumerate() {
            // SAFETY: this member's slot is free since the turn began, and large enough.
            unsafe { slot.add(index).write(value) };
        }
        Ok(())
    }

    fn heard(deck: &Deck<'_>) -> Vec<Vec<u32>> {
        let hear = |rank| {
            let slot = deck.slot(rank).cast::<u32>();
            // SAFETY: written before the meeting; whoever wrote a length wrote as many lanes.
            unsafe {
                (0..slot.read() as usize)
                    .map(|index| slot.add(1 + index).read())
                    .collect()
            }
        };
        (0..deck.ranks).map(hear).collect()
    }

    fn plan(&self, dealt: &[Vec<u32>], me: usize) -> Result<Reduce, CollectiveError> {
        let total = check(dealt)?;
        let trees: Vec<Vec<Node>> = dealt.iter().map(|lanes| subtrees(lanes, total)).collect();
        let input = |node: &Node| Input {
            node: *node,
            partial: node.lanes(total).len() > 1,
        };
        let inputs = trees
            .iter()
            .map(|nodes| nodes.iter().map(input).collect())
            .collect();
        let shape = Shape::new(self.dtype, self.op, total, inputs)?;
        let mine: Result<Vec<Column>, _> = trees[me].iter().map(|node| self.column(*node, total)).collect();
        Ok(Reduce::new(
            self.dtype,
            Arc::new(shape),
            mine?,
            Receivers::Everyone,
            self.mine.iter().map(|(_, place)| *place).collect(),
            self.count,
        ))
    }

    fn column(&self, node: Node, total: u32) -> Result<Column, CollectiveError> {
        let lanes = node.lanes(total);
        let sources: Vec<Place> = self
            .mine
            .iter()
            .filter(|(lane, _)| lanes.contains(lane))
            .map(|(_, place)| *place)
            .collect();
        let leaves: Vec<Input> = lanes
            .map(|first| Input {
                node: Node::leaf(first),
                partial: false,
            })
            .collect();
        let program = match leaves.len() {
            1 => None,
            _ => Some(Program::new(
                self.dtype,
                self.op,
                total,
                &leaves,
                node,
                Finish::Partial,
            )?),
        };
        Ok(Column { program, sources })
    }
}

impl Exchange for Lanes {
    fn step(&mut self, deck: &mut Deck<'_>) -> Result<Step, CollectiveError> {
        if !self.told {
            deck.turn_over(Posted::Front((self.mine.len() + 1) * 4));
            self.tell(deck)?;
            self.told = true;
            return Ok(Step::Meet);
        }
        if self.reduce.is_none() {
            self.reduce = Some(self.plan(&Self::heard(deck), deck.me)?);
        }
        match &mut self.reduce {
            Some(reduce) => reduce.step(deck),
            None => Ok(Step::Done),
        }
    }
}

/// That every lane from 0 on is driven by exactly one rank; how many there are.
fn check(dealt: &[Vec<u32>]) -> Result<u32, CollectiveError> {
    let mut all: Vec<(u32, usize)> = dealt
        .iter()
        .enumerate()
        .flat_map(|(rank, lanes)| lanes.iter().map(move |lane| (*lane, rank)))
        .collect();
    all.sort_unstable();
    if all.is_empty() {
        return Err(CollectiveError::Lanes("no rank passed a lane".into()));
    }
    for pair in all.windows(2) {
        if pair[0].0 == pair[1].0 {
            return Err(CollectiveError::Lanes(format!(
                "lane {} was passed by rank {} and by rank {}",
                pair[0].0, pair[0].1, pair[1].1
            )));
        }
    }
    let missing = all.iter().zip(0..).find(|((lane, _), expected)| lane != expected);
    if let Some((_, expected)) = missing {
        return Err(CollectiveError::Lanes(format!(
            "lane {expected} was passed by no rank, though lane {} was: lanes count from 0",
            all.last().map_or(0, |(lane, _)| *lane)
        )));
    }
    Ok(all.len() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dealings_are_checked() {
        assert_eq!(check(&[vec![0, 3], vec![], vec![1, 2]]), Ok(4));
        let said = |dealt: &[Vec<u32>]| check(dealt).unwrap_err().to_string();
        assert!(said(&[vec![0, 1], vec![1]]).contains("lane 1 was passed by rank 0 and by rank 1"));
        assert!(said(&[vec![0], vec![2]]).contains("lane 1 was passed by no rank"));
        assert!(said(&[vec![], vec![]]).contains("no rank passed a lane"));
    }
}
