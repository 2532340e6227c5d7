//! The sum over several hosts, for much.
//!
//! Each rank owns a slice. On every host the owner's stand-in adds up the host's columns of that slice, as far as they
//! make complete subtrees, and sends these sums; the owner adds all up and sends the result back, block by block while
//! more is still coming. Inside a host all goes through slots, as on one host alone.

use std::ops::Range;
use std::sync::Arc;

use super::reduce::{Column, Receivers, Shape, form, room, slice};
use super::{Deck, Exchange, Place, Posted, Step, copy};
use crate::CollectiveError;
use crate::across::{Expect, Head, MessageKind, Stream, Topology};
use crate::numerics::{DType, Finish, Input, Program, root, subtrees};

/// Elements that are summed and sent on at a time.
const BLOCK: usize = 64 << 10;
/// Bytes of a turn where no slot limits it.
const TURN: usize = 32 << 20;
const GRAIN: usize = 64;

/// Bytes at an address that suits elements of every type.
#[derive(Default)]
struct Aligned(Vec<u64>);

impl Aligned {
    fn zeroed(bytes: usize) -> Self {
        Self(vec![0; bytes.div_ceil(size_of::<u64>())])
    }

    /// Makes it at least so large.
    fn grow(&mut self, bytes: usize) {
        let words = bytes.div_ceil(size_of::<u64>());
        self.0.resize(words.max(self.0.len()), 0);
    }

    fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// What is to be summed.
pub(crate) struct Sum {
    pub dtype: DType,
    pub shape: Arc<Shape>,
    pub mine: Vec<Column>,
    pub receivers: Receivers,
    pub targets: Vec<Place>,
    pub count: usize,
}

/// One sum that this host sends for a slice: of these columns of its ranks.
struct Outgoing {
    columns: Vec<(usize, usize)>,
    /// `None` where one column goes as it is.
    program: Option<Program>,
    size: usize,
}

/// A slice that is being summed here, with what other hosts send for it.
struct Own {
    range: Range<usize>,
    /// Stand-in of each other host, sizes of its sums, and their bytes.
    hosts: Vec<(usize, Vec<usize>, Aligned)>,
    summed: usize,
}

pub(crate) struct Spread {
    sum: Sum,
    /// Ranks of this host.
    locals: Vec<usize>,
    outgoing: Vec<Outgoing>,
    /// Stand-in and sizes of the sums of every other host.
    incoming: Vec<(usize, Vec<usize>)>,
    /// From the columns of this host and the sums of the others to the whole.
    whole: Program,
    own: Own,
    /// Sums on their way to their owners, kept until they are sent.
    sent: Vec<Aligned>,
    /// Results where no slot and no target takes them.
    result: Aligned,
    done: usize,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Begin,
    Posted,
    Exchange,
    Collect,
}

impl Spread {
    pub fn new(sum: Sum, deck: &Deck<'_>) -> Result<Self, CollectiveError> {
        let topology = deck.topology;
        let locals = topology.locals().to_vec();
        let mut inputs: Vec<Input> = locals
            .iter()
            .flat_map(|rank| sum.shape.inputs[*rank].clone())
            .collect();
        let mut incoming = Vec::new();
        for host in topology.others() {
            let sums = host_sums(&sum, topology, host);
            let sizes = sums.iter().map(|input| form(sum.dtype, input).size()).collect();
            inputs.extend(sums);
            incoming.push((topology.stand_in(deck.me, host), sizes));
        }
        let (dtype, op, total) = (sum.dtype, sum.shape.op, sum.shape.total);
        let outgoing: Result<Vec<Outgoing>, _> = host_sums(&sum, topology, topology.here())
            .iter()
            .map(|input| outgoing(&sum, &locals, input))
            .collect();
        Ok(Self {
            whole: Program::new(dtype, op, total, &inputs, root(total), Finish::Whole)?,
            outgoing: outgoing?,
            incoming,
            locals,
            own: Own {
                range: 0..0,
                hosts: Vec::new(),
                summed: 0,
            },
            sent: Vec::new(),
            result: Aligned::default(),
            done: 0,
            stage: Stage::Begin,
            sum,
        })
    }

    fn alone(&self) -> bool {
        self.locals.len() == 1
    }

    /// Elements of a turn. Equal on all hosts, so it depends on nothing that differs between them.
    fn room(&self, deck: &Deck<'_>) -> usize {
        let widest = self
            .sum
            .shape
            .sizes
            .iter()
            .map(|sizes| sizes.iter().sum::<usize>());
        let bytes = widest.max().unwrap_or(0) + self.sum.dtype.size();
        // Where nothing is posted, no slot limits it.
        let posts = self.sum.shape.inputs.iter().flatten().any(|input| input.partial);
        let limit = if deck.topology.is_one_each() && !posts {
            TURN
        } else {
            deck.room()
        };
        room(limit, bytes, self.sum.dtype)
    }

    fn chunk(&self, deck: &Deck<'_>) -> usize {
        self.room(deck).min(self.sum.count - self.done)
    }

    /// Where a column of a rank of this host lies, `from` elements into the turn.
    fn column(&self, deck: &Deck<'_>, rank: usize, column: usize, from: usize) -> *mut u8 {
        let size = self.sum.shape.sizes[rank][column];
        if rank == deck.me
            && let Column {
                program: None,
                sources,
            } = &self.sum.mine[column]
        {
            return sources[0].add((self.done + from) * size);
        }
        self.posted(deck, rank, column).wrapping_add(from * size)
    }

    fn posted(&self, deck: &Deck<'_>, rank: usize, column: usize) -> *mut u8 {
        let before: usize = self.sum.shape.sizes[rank][..column].iter().sum();
        deck.slot(rank)
            .wrapping_add((self.sum.dtype.size() + before) * self.room(deck))
    }

    /// Writes this member's columns into its slot, where others read them or they must be summed first.
    fn post(&self, deck: &Deck<'_>) {
        let chunk = self.chunk(deck);
        for (index, column) in self.sum.mine.iter().enumerate() {
            let to = self.posted(deck, deck.me, index);
            let size = self.sum.dtype.size();
            let sources: Vec<*const u8> = column
                .sources
                .iter()
                .map(|source| source.add(self.done * size).cast_const())
                .collect();
            // SAFETY: this member's slot is free since the turn began; sources are the caller's.
            unsafe {
                match &column.program {
                    Some(program) => program.run(&sources, &[to], chunk),
                    None if self.alone() => {}
                    None => copy(sources[0], to, chunk * size),
                }
            }
        }
    }

    /// Where the result of an element goes first: what is sent on or fetched by others is read there.
    fn landing(&mut self, deck: &Deck<'_>, from: usize) -> *mut u8 {
        let size = self.sum.dtype.size();
        if !deck.topology.is_one_each() {
            return deck.slot(deck.me).wrapping_add(from * size);
        }
        match self.sum.targets.first() {
            Some(target) if self.sum.receivers.include(deck.me) => target.add((self.done + from) * size),
            _ => {
                self.result.grow(self.chunk(deck) * size);
                self.result.start().wrapping_add(from * size)
            }
        }
    }

    fn begin_exchange(&mut self, deck: &mut Deck<'_>) {
        let (chunk, size) = (self.chunk(deck), self.sum.dtype.size());
        let own = slice(chunk, deck.ranks, deck.me, GRAIN);
        let mut hosts = Vec::new();
        for (stand_in, sizes) in &self.incoming {
            let len = sizes.iter().sum::<usize>() * own.len();
            let mut bytes = Aligned::zeroed(len);
            deck.post.expect(
                *stand_in,
                Stream::Bulk,
                Expect {
                    kind: MessageKind::Partial,
                    call: *deck.call,
                    into: vec![(Place(bytes.start()), len)],
                },
            );
            let head = head(deck.call, MessageKind::Sum, own.len() * size);
            deck.post.announce(*stand_in, Stream::Sums, &head);
            hosts.push((*stand_in, sizes.clone(), bytes));
        }
        self.own = Own {
            range: own,
            hosts,
            summed: 0,
        };
        let wards: Vec<usize> = deck.topology.wards().collect();
        for ward in wards {
            let range = slice(chunk, deck.ranks, ward, GRAIN);
            self.send_sums(deck, ward, &range);
            let into = Place(self.landing(deck, range.start));
            deck.post.expect(
                ward,
                Stream::Sums,
                Expect {
                    kind: MessageKind::Sum,
                    call: *deck.call,
                    into: vec![(into, range.len() * size)],
                },
            );
        }
    }

    /// Sends this host's sums of a slice to its owner, block by block.
    fn send_sums(&mut self, deck: &mut Deck<'_>, owner: usize, range: &Range<usize>) {
        let width: usize = self.outgoing.iter().map(|sum| sum.size).sum();
        let message = head(deck.call, MessageKind::Partial, width * range.len());
        deck.post.announce(owner, Stream::Bulk, &message);
        if let [
            Outgoing {
                columns,
                program: None,
                ..
            },
        ] = &self.outgoing[..]
        {
            let (rank, column) = columns[0];
            let from = Place(self.column(deck, rank, column, range.start));
            return deck.post.send(owner, Stream::Bulk, from, width * range.len());
        }
        let len = width * range.len();
        let mut bytes = Aligned::zeroed(len);
        let mut at = 0;
        for start in range.clone().step_by(BLOCK) {
            let count = BLOCK.min(range.end - start);
            for sum in &self.outgoing {
                let inputs: Vec<*const u8> = sum
                    .columns
                    .iter()
                    .map(|(rank, column)| self.column(deck, *rank, *column, start).cast_const())
                    .collect();
                let to = bytes.start().wrapping_add(at);
                // SAFETY: columns are posted before the meeting; the bytes are as long as all sums.
                unsafe {
                    match &sum.program {
                        Some(program) => program.run(&inputs, &[to], count),
                        None => copy(inputs[0], to, count * sum.size),
                    }
                }
                at += count * sum.size;
            }
        }
        deck.post.send(owner, Stream::Bulk, Place(bytes.start()), len);
        self.sent.push(bytes);
    }

    /// Sums the blocks that have come from all hosts, and sends the results.
    fn sum_blocks(&mut self, deck: &mut Deck<'_>) {
        let (len, size) = (self.own.range.len(), self.sum.dtype.size());
        while self.own.summed < len {
            let count = BLOCK.min(len - self.own.summed);
            let end = self.own.summed + count;
            let here = |(stand_in, sizes, _): &(usize, Vec<usize>, Aligned)| {
                deck.post.got(*stand_in, Stream::Bulk) >= end * sizes.iter().sum::<usize>()
            };
            if !self.own.hosts.iter().all(here) {
                return;
            }
            let start = self.own.range.start + self.own.summed;
            let result = self.sum_block(deck, start, count);
            for (stand_in, _, _) in &self.own.hosts {
                deck.post
                    .send(*stand_in, Stream::Sums, Place(result), count * size);
            }
            self.own.summed = end;
        }
    }

    fn sum_block(&mut self, deck: &Deck<'_>, start: usize, count: usize) -> *mut u8 {
        let mut inputs: Vec<*const u8> = Vec::new();
        for rank in &self.locals {
            for column in 0..self.sum.shape.sizes[*rank].len() {
                inputs.push(self.column(deck, *rank, column, start).cast_const());
            }
        }
        for (_, sizes, bytes) in &self.own.hosts {
            let mut at = self.own.summed * sizes.iter().sum::<usize>();
            for size in sizes {
                inputs.push(bytes.0.as_ptr().cast::<u8>().wrapping_add(at));
                at += size * count;
            }
        }
        let landing = self.landing(deck, start);
        let mut outputs = vec![landing];
        outputs.extend(
            self.outputs(deck, start)
                .into_iter()
                .filter(|output| *output != landing),
        );
        // SAFETY: columns are posted before the meeting, sums have come; outputs are free, or inputs themselves.
        unsafe { self.whole.run(&inputs, &outputs, count) };
        landing
    }

    fn outputs(&self, deck: &Deck<'_>, from: usize) -> Vec<*mut u8> {
        if !self.sum.receivers.include(deck.me) {
            return Vec::new();
        }
        let bytes = (self.done + from) * self.sum.dtype.size();
        self.sum.targets.iter().map(|target| target.add(bytes)).collect()
    }

    /// Fetches the slices that this member did not sum itself.
    fn collect(&mut self, deck: &Deck<'_>) {
        let (chunk, size) = (self.chunk(deck), self.sum.dtype.size());
        for owner in (0..deck.ranks).filter(|rank| *rank != deck.me) {
            let range = slice(chunk, deck.ranks, owner, GRAIN);
            let keeper = deck.topology.stand_in(owner, deck.topology.here());
            let from = if keeper == deck.me {
                self.landing(deck, range.start)
            } else {
                deck.slot(keeper).wrapping_add(range.start * size)
            };
            for output in self.outputs(deck, range.start) {
                // SAFETY: results were written before the meeting; outputs are the caller's.
                unsafe { copy(from, output, range.len() * size) };
            }
        }
    }
}

impl Exchange for Spread {
    fn step(&mut self, deck: &mut Deck<'_>) -> Result<Step, CollectiveError> {
        loop {
            match self.stage {
                Stage::Begin => {
                    deck.turn_over(Posted::NOTHING);
                    self.post(deck);
                    self.stage = Stage::Posted;
                    return Ok(Step::MeetHere);
                }
                Stage::Posted => {
                    self.begin_exchange(deck);
                    self.stage = Stage::Exchange;
                }
                Stage::Exchange => {
                    self.sum_blocks(deck);
                    if self.own.summed < self.own.range.len() || !deck.post.is_quiet() {
                        return Ok(Step::Post);
                    }
                    self.sent.clear();
                    self.stage = Stage::Collect;
                    return Ok(Step::MeetHere);
                }
                Stage::Collect => {
                    self.collect(deck);
                    self.done += self.chunk(deck);
                    if self.done == self.sum.count {
                        return Ok(Step::Done);
                    }
                    self.stage = Stage::Begin;
                }
            }
        }
    }
}

/// The sums that a host sends: of the largest complete subtrees that its lanes make.
fn host_sums(sum: &Sum, topology: &Topology, host: usize) -> Vec<Input> {
    let total = sum.shape.total;
    let columns = topology
        .ranks(host)
        .iter()
        .flat_map(|rank| &sum.shape.inputs[*rank]);
    let mut lanes: Vec<u32> = columns.flat_map(|input| input.node.lanes(total)).collect();
    lanes.sort_unstable();
    let input = |node: crate::numerics::Node| Input {
        node,
        partial: node.lanes(total).len() > 1,
    };
    let mut sums: Vec<Input> = subtrees(&lanes, total).into_iter().map(input).collect();
    // They travel one after the other, the wider ones first: so all lie at addresses that suit their elements.
    sums.sort_by_key(|sum| !sum.partial);
    sums
}

fn outgoing(sum: &Sum, locals: &[usize], input: &Input) -> Result<Outgoing, CollectiveError> {
    let total = sum.shape.total;
    let lanes = input.node.lanes(total);
    let mut columns = Vec::new();
    let mut inputs = Vec::new();
    for rank in locals {
        for (column, part) in sum.shape.inputs[*rank].iter().enumerate() {
            if lanes.contains(&part.node.lanes(total).start) {
                columns.push((*rank, column));
                inputs.push(*part);
            }
        }
    }
    let program = match inputs.len() {
        1 => None,
        _ => Some(Program::new(
            sum.dtype,
            sum.shape.op,
            total,
            &inputs,
            input.node,
            Finish::Partial,
        )?),
    };
    Ok(Outgoing {
        columns,
        program,
        size: form(sum.dtype, input).size(),
    })
}

fn head(call: &crate::call::Call, kind: MessageKind, len: usize) -> Head {
    Head {
        kind,
        call: *call,
        len: len as u64,
    }
}
