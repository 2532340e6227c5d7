//! The sum, for everyone or for the root.
//!
//! Each rank brings one or more columns: sums of complete subtrees of the lane tree, over all elements. Three ways
//! on one host, and a fourth between hosts, for much (see `spread`):
//! - flat, for little: everyone reads all columns and sums for itself; all meet once.
//! - owned, for much: in every turn each rank sums one slice for all; all meet twice a turn.
//! - in place, for much that lies in the arena: each rank sums its slice of the whole and writes it to everyone.

use std::ops::Range;
use std::sync::Arc;

use super::seal::Seals;
use super::spread::{Spread, Sum};
use super::{Deck, Exchange, Place, Posted, Step, copy};
use crate::CollectiveError;
use crate::numerics::{DType, Finish, Input, Node, Op, Program, root};

/// Slices begin at multiples of this many elements: no two ranks write one cache line.
const GRAIN: usize = 64;
/// In place, slices begin at multiples of this many elements: no two ranks write one page.
const PAGE_GRAIN: usize = 4096;
/// In place, a member shows after so many elements that it lives: gigabytes take seconds.
const PIECE: usize = 1 << 24;

/// Who gets the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receivers {
    Everyone,
    Root(usize),
}

impl Receivers {
    pub fn include(self, rank: usize) -> bool {
        match self {
            Self::Everyone => true,
            Self::Root(root) => rank == root,
        }
    }
}

/// One column of this member: a buffer as it is, or the sum of several that a program makes.
pub(crate) struct Column {
    /// Sums the sources; `None` where there is one, which then travels as it is.
    pub program: Option<Program>,
    pub sources: Vec<Place>,
}

/// What all ranks bring.
pub(crate) struct Shape {
    pub op: Op,
    /// Lanes of all ranks together.
    pub total: u32,
    /// The columns of every rank.
    pub inputs: Vec<Vec<Input>>,
    /// Bytes of an element of every column of every rank.
    pub sizes: Vec<Vec<usize>>,
    /// Makes the sum of all columns, rank by rank.
    pub whole: Program,
}

impl Shape {
    /// One lane of every rank.
    pub fn plain(dtype: DType, op: Op, ranks: usize) -> Result<Self, CollectiveError> {
        let leaf = |lane| Input {
            node: Node::leaf(lane),
            partial: false,
        };
        let inputs = (0..ranks as u32).map(|lane| vec![leaf(lane)]).collect();
        Self::new(dtype, op, ranks as u32, inputs)
    }

    /// The given columns of every rank.
    pub fn new(dtype: DType, op: Op, total: u32, inputs: Vec<Vec<Input>>) -> Result<Self, CollectiveError> {
        let all: Vec<Input> = inputs.iter().flatten().copied().collect();
        let size = |input: &Input| form(dtype, input).size();
        Ok(Self {
            op,
            total,
            sizes: inputs
                .iter()
                .map(|columns| columns.iter().map(size).collect())
                .collect(),
            whole: Program::new(dtype, op, total, &all, root(total), Finish::Whole)?,
            inputs,
        })
    }
}

/// The type in which a column travels.
pub(crate) fn form(dtype: DType, input: &Input) -> DType {
    if input.partial { dtype.partial() } else { dtype }
}

pub(crate) struct Reduce {
    dtype: DType,
    shape: Arc<Shape>,
    mine: Vec<Column>,
    receivers: Receivers,
    targets: Vec<Place>,
    count: usize,
    done: usize,
    stage: Stage,
    /// What this member's slice of each turn held at first: it is read last.
    seals: Seals,
    turns: usize,
    /// The way between hosts, where there are several.
    spread: Option<Box<Spread>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Begin,
    Intent,
    Flat,
    Posted,
    Summed,
    InPlace,
    Spread,
}

impl Reduce {
    /// One lane of every rank.
    pub fn plain(dtype: DType, shape: Arc<Shape>, receivers: Receivers, buffer: Place, count: usize) -> Self {
        let column = Column {
            program: None,
            sources: vec![buffer],
        };
        Self::new(dtype, shape, vec![column], receivers, vec![buffer], count)
    }

    /// `targets` are this member's; all get the sum, where it is among the receivers.
    pub fn new(
        dtype: DType,
        shape: Arc<Shape>,
        mine: Vec<Column>,
        receivers: Receivers,
        targets: Vec<Place>,
        count: usize,
    ) -> Self {
        Self {
            dtype,
            shape,
            mine,
            receivers,
            targets,
            count,
            done: 0,
            stage: Stage::Begin,
            seals: Seals::default(),
            turns: 0,
            spread: None,
        }
    }

    /// Elements of a turn: the widest rank's columns and the sum itself must fit into a slot.
    fn room(&self, deck: &Deck<'_>) -> usize {
        let widest = self.shape.sizes.iter().map(|sizes| sizes.iter().sum::<usize>());
        let bytes = widest.max().unwrap_or(0) + self.dtype.size();
        room(deck.room(), bytes, self.dtype)
    }

    /// Whether a slot takes at least one element of every column.
    pub fn fits(&self, deck: &Deck<'_>) -> bool {
        self.room(deck) > 0
    }

    fn chunk(&self, room: usize) -> usize {
        room.min(self.count - self.done)
    }

    /// Where a column of a rank begins in its slot.
    fn column(&self, deck: &Deck<'_>, room: usize, rank: usize, column: usize) -> *mut u8 {
        let before: usize = self.shape.sizes[rank][..column].iter().sum();
        deck.slot(rank).wrapping_add((self.dtype.size() + before) * room)
    }

    /// Writes this member's columns into its slot, all but `left_out`, which others need not read.
    fn post(&self, deck: &Deck<'_>, room: usize, left_out: &Range<usize>) {
        let chunk = self.chunk(room);
        for (index, column) in self.mine.iter().enumerate() {
            let size = self.shape.sizes[deck.me][index];
            let to = self.column(deck, room, deck.me, index);
            match &column.program {
                // A sum of several is always posted whole: this member reads it from there as well.
                Some(program) => {
                    let sources: Vec<_> = self.sources(column, self.done);
                    // SAFETY: this member's slot is free since the turn began; sources are the caller's.
                    unsafe { program.run(&sources, &[to], chunk) };
                }
                None => {
                    let from = column.sources[0].add(self.done * size);
                    for part in [0..left_out.start, left_out.end..chunk] {
                        let (start, len) = (part.start * size, part.len() * size);
                        // SAFETY: as above.
                        unsafe { copy(from.wrapping_add(start), to.wrapping_add(start), len) };
                    }
                }
            }
        }
    }

    fn sources(&self, column: &Column, from: usize) -> Vec<*const u8> {
        let size = self.dtype.size();
        column
            .sources
            .iter()
            .map(|source| source.add(from * size).cast_const())
            .collect()
    }

    /// All columns of all ranks, `from` elements into the present turn. `places` are buffers that were not posted.
    fn inputs(&self, deck: &Deck<'_>, room: usize, from: usize, places: &[Option<Place>]) -> Vec<*const u8> {
        let mut inputs = Vec::with_capacity(deck.ranks);
        for (rank, sizes) in self.shape.sizes.iter().enumerate() {
            for (column, size) in sizes.iter().enumerate() {
                let mine = (rank == deck.me).then(|| &self.mine[column]);
                let place = places.get(rank).copied().flatten();
                let input = match (mine, place) {
                    (
                        Some(Column {
                            program: None,
                            sources,
                        }),
                        _,
                    ) => sources[0].add((self.done + from) * size),
                    (_, Some(place)) => place.add(from * size),
                    _ => self.column(deck, room, rank, column).wrapping_add(from * size),
                };
                inputs.push(input.cast_const());
            }
        }
        inputs
    }

    /// This member's targets, `from` elements into the present turn.
    fn outputs(&self, deck: &Deck<'_>, from: usize) -> Vec<*mut u8> {
        if !self.receivers.include(deck.me) {
            return Vec::new();
        }
        let bytes = (self.done + from) * self.dtype.size();
        self.targets.iter().map(|target| target.add(bytes)).collect()
    }

    fn sum_all(&self, deck: &Deck<'_>, room: usize) {
        // SAFETY: slots are written before the meeting; targets are the caller's, and its sources or apart from them.
        unsafe {
            self.shape.whole.run(
                &self.inputs(deck, room, 0, &[]),
                &self.outputs(deck, 0),
                self.chunk(room),
            );
        }
    }

    fn sum_own(&self, deck: &Deck<'_>, room: usize, places: &[Option<Place>]) {
        let own = slice(self.chunk(room), deck.ranks, deck.me, GRAIN);
        let mut outputs = self.outputs(deck, own.start);
        // Others fetch it from the front of this member's slot, where no column lies.
        outputs.insert(0, deck.slot(deck.me).wrapping_add(own.start * self.dtype.size()));
        // SAFETY: as above; a slice of the slots is read by its owner alone.
        unsafe {
            self.shape
                .whole
                .run(&self.inputs(deck, room, own.start, places), &outputs, own.len());
        }
    }

    fn collect(&self, deck: &Deck<'_>, room: usize) {
        let size = self.dtype.size();
        for rank in (0..deck.ranks).filter(|rank| *rank != deck.me) {
            let owned = slice(self.chunk(room), deck.ranks, rank, GRAIN);
            let from = deck.slot(rank).wrapping_add(owned.start * size);
            for target in self.outputs(deck, owned.start) {
                // SAFETY: owners write before the meeting; targets are the caller's.
                unsafe { copy(from, target, owned.len() * size) };
            }
        }
    }

    /// The buffers of all ranks that lie in the arena.
    fn places(&self, deck: &Deck<'_>) -> Result<Vec<Option<Place>>, CollectiveError> {
        let bytes = self.count * self.dtype.size();
        (0..deck.ranks).map(|rank| deck.placed(rank, bytes)).collect()
    }

    fn sum_in_place(&self, deck: &Deck<'_>, buffers: &[*mut u8], grain: usize) {
        let own = slice(self.count, deck.ranks, deck.me, grain);
        for first in own.clone().step_by(PIECE) {
            self.sum_piece(buffers, first..own.end.min(first + PIECE));
            deck.segment.beat();
        }
    }

    fn sum_piece(&self, buffers: &[*mut u8], piece: Range<usize>) {
        let start = piece.start * self.dtype.size();
        let inputs: Vec<_> = buffers
            .iter()
            .map(|buffer| buffer.wrapping_add(start).cast_const())
            .collect();
        let outputs: Vec<_> = buffers
            .iter()
            .enumerate()
            .filter(|(rank, _)| self.receivers.include(*rank))
            .map(|(_, buffer)| buffer.wrapping_add(start))
            .collect();
        // SAFETY: all buffers lie in the arena and belong to this call on all ranks; slices do not overlap.
        unsafe { self.shape.whole.run(&inputs, &outputs, piece.len()) };
    }

    fn begin(&mut self, deck: &mut Deck<'_>, room: usize) -> Result<Step, CollectiveError> {
        let columns: usize = self.shape.sizes.iter().flatten().sum();
        if columns * self.count <= deck.flat && self.count <= room {
            // Close together, since all of it may go to other hosts.
            let (room, mine) = (self.flat_room(room), &self.shape.sizes[deck.me]);
            deck.turn_over(Posted::Front(
                (self.dtype.size() + mine.iter().sum::<usize>()) * room,
            ));
            self.post(deck, room, &(0..0));
            self.stage = Stage::Flat;
            return Ok(Step::Meet);
        }
        if !deck.topology.is_one_host() {
            let spread = Spread::new(self.take_sum(), deck)?;
            self.stage = Stage::Spread;
            return self.spread.insert(Box::new(spread)).step(deck);
        }
        if self.count > room {
            // All must know where all buffers lie before anyone copies.
            self.stage = Stage::Intent;
            return Ok(Step::MeetHere);
        }
        Ok(self.next_turn(deck, room))
    }

    fn flat_room(&self, room: usize) -> usize {
        self.count.next_multiple_of(GRAIN).min(room)
    }

    fn take_sum(&mut self) -> Sum {
        Sum {
            dtype: self.dtype,
            shape: Arc::clone(&self.shape),
            mine: std::mem::take(&mut self.mine),
            receivers: self.receivers,
            targets: std::mem::take(&mut self.targets),
            count: self.count,
        }
    }

    /// This member's slice of the turn that begins at element `done`, as it lies in the caller's memory.
    fn own_piece(&self, deck: &Deck<'_>, room: usize, done: usize) -> (Place, usize) {
        let own = slice(room.min(self.count - done), deck.ranks, deck.me, GRAIN);
        let size = self.dtype.size();
        match self.mine.first() {
            Some(Column {
                program: None,
                sources,
            }) => (Place(sources[0].add((done + own.start) * size)), own.len() * size),
            _ => (Place(std::ptr::null_mut()), 0),
        }
    }

    fn next_turn(&mut self, deck: &mut Deck<'_>, room: usize) -> Step {
        deck.turn_over(Posted::NOTHING);
        let own = slice(self.chunk(room), deck.ranks, deck.me, GRAIN);
        // In a single turn all see at its meeting what lies in the arena, and read it there.
        if !deck.is_placed || self.count > room {
            self.post(deck, room, &own);
        }
        self.stage = Stage::Posted;
        Step::MeetHere
    }
}

impl Exchange for Reduce {
    fn step(&mut self, deck: &mut Deck<'_>) -> Result<Step, CollectiveError> {
        let room = self.room(deck);
        Ok(match self.stage {
            Stage::Begin => {
                let starts = (0..self.count).step_by(room.max(1));
                self.seals = Seals::keep(starts.map(|done| self.own_piece(deck, room, done)));
                self.begin(deck, room)?
            }
            Stage::Intent => {
                if let Some(buffers) = all_of(&self.places(deck)?) {
                    self.sum_in_place(deck, &buffers, PAGE_GRAIN);
                    self.stage = Stage::InPlace;
                    Step::MeetHere
                } else {
                    self.next_turn(deck, room)
                }
            }
            Stage::Flat => {
                self.sum_all(deck, self.flat_room(room));
                Step::Done
            }
            Stage::Posted => {
                self.seals
                    .check(self.turns, self.own_piece(deck, room, self.done))?;
                self.turns += 1;
                let places = if self.count > room {
                    Vec::new()
                } else {
                    self.places(deck)?
                };
                self.stage = match all_of(&places) {
                    Some(buffers) => {
                        self.sum_in_place(deck, &buffers, GRAIN);
                        Stage::InPlace
                    }
                    None => {
                        self.sum_own(deck, room, &places);
                        Stage::Summed
                    }
                };
                Step::MeetHere
            }
            Stage::Summed => {
                self.collect(deck, room);
                self.done += self.chunk(room);
                if self.done == self.count {
                    Step::Done
                } else {
                    self.next_turn(deck, room)
                }
            }
            Stage::InPlace => Step::Done,
            Stage::Spread => match &mut self.spread {
                Some(spread) => spread.step(deck)?,
                None => Step::Done,
            },
        })
    }
}

/// All of them, where there are some and none is missing.
fn all_of(places: &[Option<Place>]) -> Option<Vec<*mut u8>> {
    let all: Option<Vec<*mut u8>> = places.iter().map(|place| place.map(|place| place.0)).collect();
    all.filter(|all| !all.is_empty())
}

/// Elements of a turn, where `bytes` of each are to fit into `limit`.
pub(crate) fn room(limit: usize, bytes: usize, dtype: DType) -> usize {
    // Sums of half floats travel in single precision behind them: an even number keeps them aligned.
    let step = dtype.partial().size() / dtype.size();
    match limit / bytes {
        // Many columns in a small slot: a slow turn is better than none.
        few @ 0..GRAIN => few / step * step,
        room => room / GRAIN * GRAIN,
    }
}

/// The slice of `count` elements that a rank owns; slices begin at multiples of `grain`.
pub(crate) fn slice(count: usize, ranks: usize, rank: usize, grain: usize) -> Range<usize> {
    let grains = count.div_ceil(grain);
    let start = |rank: usize| (grains * rank / ranks * grain).min(count);
    start(rank)..start(rank + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_a_partition() {
        for count in [0, 1, 63, 64, 65, 1000, 4096 * 7 + 5] {
            for ranks in 1..9 {
                let mut end = 0;
                for rank in 0..ranks {
                    let slice = slice(count, ranks, rank, GRAIN);
                    assert_eq!(slice.start, end);
                    assert!(slice.start.is_multiple_of(GRAIN) || slice.start == count);
                    end = slice.end;
                }
                assert_eq!(end, count);
            }
        }
    }
}
