//! The sum over lanes, whoever drives which: all tell their lanes first, then the sum goes its way.

use std::sync::Arc;

use super::reduce::Column;
use super::{Deck, Exchange, Place, Posted, Receivers, Reduce, Shape, Step};
use crate::CollectiveError;
use crate::numerics::{DType, Finish, Input, Node, Op, Program, subtrees};

/// Words before the lanes that a member tells: their number, their type, and the elements of each.
const HEAD: usize = 4;

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
        if (self.mine.len() + HEAD) * 4 > deck.room() {
            return Err(CollectiveError::Argument(format!(
                "{} lanes are more than one member can drive: use fewer",
                self.mine.len()
            )));
        }
        let slot = deck.slot(deck.me).cast::<u32>();
        let count = self.count as u64;
        let head = [
            self.mine.len() as u32,
            self.dtype as u32,
            count as u32,
            (count >> 32) as u32,
        ];
        let lanes = self.mine.iter().map(|(lane, _)| *lane);
        for (index, value) in head.into_iter().chain(lanes).enumerate() {
            // SAFETY: this member's slot is free since the turn began, and large enough.
            unsafe { slot.add(index).write(value) };
        }
        Ok(())
    }

    /// The lanes of all ranks. A member that has none learns type and count here.
    fn hear(&mut self, deck: &Deck<'_>) -> Result<Vec<Vec<u32>>, CollectiveError> {
        let mut first = None;
        let mut dealt = Vec::new();
        for rank in 0..deck.ranks {
            let slot = deck.slot(rank).cast::<u32>();
            // SAFETY: written before the meeting; whoever wrote a length wrote as many lanes.
            let read = |index: usize| unsafe { slot.add(index).read() };
            let lanes: Vec<u32> = (0..read(0) as usize).map(|index| read(HEAD + index)).collect();
            let what = (read(1), u64::from(read(2)) | u64::from(read(3)) << 32);
            if !lanes.is_empty() && *first.get_or_insert(what) != what {
                return Err(CollectiveError::Lanes(format!(
                    "rank {rank} passed lanes of another type or length than the ranks before it"
                )));
            }
            dealt.push(lanes);
        }
        if let Some((code, count)) = first {
            self.dtype = DType::from_code(code as u8).unwrap_or(self.dtype);
            self.count = count as usize;
        }
        Ok(dealt)
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
            deck.turn_over(Posted::Front((self.mine.len() + HEAD) * 4));
            self.tell(deck)?;
            self.told = true;
            return Ok(Step::Meet);
        }
        if self.reduce.is_none() {
            let dealt = self.hear(deck)?;
            let reduce = self.plan(&dealt, deck.me)?;
            if !reduce.fits(deck) {
                return Err(CollectiveError::Argument(
                    "a member drives too many lanes that are not neighbours: deal lanes in runs, or use larger \
                     slots"
                        .into(),
                ));
            }
            self.reduce = Some(reduce);
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
