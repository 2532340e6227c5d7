//! A call with the memory that it works on.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::CollectiveError;
use crate::call::{Call, Kind};
use crate::exchange::{
    AllToAll, Barrier, Broadcast, Deck, Exchange, Gather, Lanes, Norm, Place, Receivers, Reduce,
    ReduceScatter, Scatter, Shape, Step,
};
use crate::numerics::{DType, Op, check};
use crate::overlap::{Span, check_apart, span};

/// Memory and how many elements lie there.
pub type RawPart = (*mut u8, usize);

/// One collective call on raw memory, for front ends that hold buffers of other languages. Rust code calls the
/// methods of [`crate::Group`].
#[derive(Debug)]
pub enum Request {
    /// Everyone's buffer becomes the sum.
    AllReduce {
        /// Type of the elements.
        dtype: DType,
        /// How they are combined.
        op: Op,
        /// In and out.
        buffer: RawPart,
    },
    /// Every lane's buffer becomes the sum over all lanes.
    AllReduceLanes {
        /// Type of the elements.
        dtype: DType,
        /// How they are combined.
        op: Op,
        /// This member's lanes; all hold `count` elements.
        lanes: Vec<(u32, *mut u8)>,
        /// Elements of a lane.
        count: usize,
    },
    /// The root's buffer becomes the sum.
    Reduce {
        /// Type of the elements.
        dtype: DType,
        /// How they are combined.
        op: Op,
        /// In, and at the root out.
        buffer: RawPart,
        /// Who gets it.
        root: u32,
    },
    /// The target becomes this rank's part of the sum.
    ReduceScatter {
        /// Type of the elements.
        dtype: DType,
        /// How they are combined.
        op: Op,
        /// As many parts as ranks, one after the other.
        source: *mut u8,
        /// One part; may be this rank's part of the source.
        target: RawPart,
    },
    /// The targets become all ranks' parts.
    AllGather {
        /// Type of the elements.
        dtype: DType,
        /// This rank's part.
        source: RawPart,
        /// Where each rank's part goes, with its size.
        targets: Vec<RawPart>,
    },
    /// At the root, the targets become all ranks' parts.
    Gather {
        /// Type of the elements.
        dtype: DType,
        /// This rank's part; all parts are of equal size.
        source: RawPart,
        /// Where each rank's part goes; empty but at the root.
        targets: Vec<*mut u8>,
        /// Who gets them.
        root: u32,
    },
    /// The target becomes this rank's part of what the root holds.
    Scatter {
        /// Type of the elements.
        dtype: DType,
        /// Each rank's part; empty but at the root.
        sources: Vec<*mut u8>,
        /// One part.
        target: RawPart,
        /// Who has them.
        root: u32,
    },
    /// Everyone's buffer becomes the root's.
    Broadcast {
        /// Type of the elements.
        dtype: DType,
        /// At the root in, elsewhere out.
        buffer: RawPart,
        /// Who has it.
        root: u32,
    },
    /// The targets become each rank's part for this one.
    AllToAll {
        /// Type of the elements.
        dtype: DType,
        /// A part for every rank.
        sources: Vec<RawPart>,
        /// A part from every rank.
        targets: Vec<RawPart>,
    },
    /// Everyone waits for everyone.
    Barrier,
    /// The norm of a buffer that is equal on all ranks.
    Norm {
        /// Type of the elements, a float.
        dtype: DType,
        /// What all hold.
        buffer: RawPart,
        /// Takes the bits of the result.
        answer: Arc<AtomicU64>,
    },
}

/// An exchange of any kind, without a box.
pub(crate) enum Work {
    Reduce(Reduce),
    Lanes(Lanes),
    ReduceScatter(ReduceScatter),
    Gather(Gather),
    Scatter(Scatter),
    Broadcast(Broadcast),
    AllToAll(AllToAll),
    Barrier(Barrier),
    Norm(Norm),
}

impl Exchange for Work {
    fn step(&mut self, deck: &mut Deck<'_>) -> Result<Step, CollectiveError> {
        match self {
            Self::Reduce(exchange) => exchange.step(deck),
            Self::Lanes(exchange) => exchange.step(deck),
            Self::ReduceScatter(exchange) => exchange.step(deck),
            Self::Gather(exchange) => exchange.step(deck),
            Self::Scatter(exchange) => exchange.step(deck),
            Self::Broadcast(exchange) => exchange.step(deck),
            Self::AllToAll(exchange) => exchange.step(deck),
            Self::Barrier(exchange) => exchange.step(deck),
            Self::Norm(exchange) => exchange.step(deck),
        }
    }
}

/// What a request needs of its group.
pub(crate) struct Terms<'a> {
    pub me: usize,
    pub ranks: usize,
    /// One lane of every rank; made once for each type and operation.
    pub shape: &'a dyn Fn(DType, Op) -> Result<Arc<Shape>, CollectiveError>,
}

impl Request {
    /// What the others see of it.
    /// Which operation it is.
    pub fn kind(&self) -> Kind {
        self.call(0).kind
    }

    pub(crate) fn call(&self, me: usize) -> Call {
        match self {
            Self::AllReduce { dtype, op, buffer } => Call {
                op: *op,
                ..plain(Kind::AllReduce, *dtype, buffer.1)
            },
            Self::AllReduceLanes { op, lanes, .. } if lanes.is_empty() => Call {
                op: *op,
                count: Call::NO_LANES,
                ..plain(Kind::AllReduceLanes, DType::U8, 0)
            },
            Self::AllReduceLanes { dtype, op, count, .. } => Call {
                op: *op,
                ..plain(Kind::AllReduceLanes, *dtype, *count)
            },
            Self::Reduce {
                dtype,
                op,
                buffer,
                root,
            } => Call {
                op: *op,
                root: *root,
                ..plain(Kind::Reduce, *dtype, buffer.1)
            },
            Self::ReduceScatter {
                dtype, op, target, ..
            } => Call {
                op: *op,
                ..plain(Kind::ReduceScatter, *dtype, target.1)
            },
            _ => self.moving_call(me),
        }
    }

    fn moving_call(&self, me: usize) -> Call {
        match self {
            Self::AllGather { dtype, targets, .. } => Call {
                parts: checksum(targets.iter().map(|target| target.1)),
                ..plain(
                    Kind::AllGather,
                    *dtype,
                    targets.get(me).map_or(0, |target| target.1),
                )
            },
            Self::Gather {
                dtype, source, root, ..
            } => Call {
                root: *root,
                parts: checksum(std::iter::once(source.1)),
                ..plain(Kind::Gather, *dtype, source.1)
            },
            Self::Scatter {
                dtype, target, root, ..
            } => Call {
                root: *root,
                ..plain(Kind::Scatter, *dtype, target.1)
            },
            Self::Broadcast { dtype, buffer, root } => Call {
                root: *root,
                ..plain(Kind::Broadcast, *dtype, buffer.1)
            },
            Self::AllToAll { dtype, sources, .. } => {
                plain(Kind::AllToAll, *dtype, sources.iter().map(|part| part.1).sum())
            }
            Self::Norm { dtype, buffer, .. } => plain(Kind::Norm, *dtype, buffer.1),
            _ => plain(Kind::Barrier, DType::U8, 0),
        }
    }

    /// The buffer that may be reduced where it lies.
    pub(crate) fn in_place(&self) -> Option<(*mut u8, usize)> {
        match self {
            Self::AllReduce { dtype, buffer, .. } | Self::Reduce { dtype, buffer, .. } => {
                Some((buffer.0, buffer.1 * dtype.size()))
            }
            _ => None,
        }
    }

    /// Checks what this member alone can check, and plans the exchange.
    pub(crate) fn plan(self, terms: &Terms<'_>) -> Result<Work, CollectiveError> {
        self.check(terms)?;
        self.check_memory(terms)?;
        Ok(match self {
            Self::AllReduce { dtype, op, buffer } => {
                Work::Reduce(reduce(dtype, op, buffer, Receivers::Everyone, terms)?)
            }
            Self::Reduce {
                dtype,
                op,
                buffer,
                root,
            } => Work::Reduce(reduce(dtype, op, buffer, Receivers::Root(root as usize), terms)?),
            Self::AllReduceLanes {
                dtype,
                op,
                lanes,
                count,
            } => {
                let lanes = lanes.into_iter().map(|(lane, place)| (lane, Place(place)));
                Work::Lanes(Lanes::new(dtype, op, lanes.collect(), count))
            }
            Self::ReduceScatter {
                dtype,
                op,
                source,
                target,
            } => {
                let shape = (terms.shape)(dtype, op)?;
                Work::ReduceScatter(ReduceScatter::new(
                    shape,
                    dtype,
                    Place(source),
                    Place(target.0),
                    target.1,
                ))
            }
            moving => moving.plan_moving(terms.ranks),
        })
    }

    /// Plans what only moves elements.
    fn plan_moving(self, ranks: usize) -> Work {
        match self {
            Self::AllGather {
                dtype,
                source,
                targets,
            } => {
                let sizes = targets.iter().map(|target| target.1 * dtype.size()).collect();
                let targets = targets.into_iter().map(|target| Place(target.0)).collect();
                Work::Gather(Gather::new(Place(source.0), sizes, targets))
            }
            Self::Gather {
                dtype,
                source,
                targets,
                ..
            } => {
                let sizes = vec![source.1 * dtype.size(); ranks];
                let targets = targets.into_iter().map(Place).collect();
                Work::Gather(Gather::new(Place(source.0), sizes, targets))
            }
            Self::Scatter {
                dtype,
                sources,
                target,
                root,
            } => {
                let sources = sources.into_iter().map(Place).collect();
                let bytes = target.1 * dtype.size();
                Work::Scatter(Scatter::new(sources, Place(target.0), bytes, root as usize))
            }
            Self::Broadcast { dtype, buffer, root } => {
                let bytes = buffer.1 * dtype.size();
                Work::Broadcast(Broadcast::new(Place(buffer.0), bytes, root as usize))
            }
            Self::AllToAll {
                dtype,
                sources,
                targets,
            } => {
                let parts =
                    |parts: Vec<RawPart>| parts.into_iter().map(|part| (Place(part.0), part.1)).collect();
                Work::AllToAll(AllToAll::new(dtype, parts(sources), parts(targets)))
            }
            Self::Norm {
                dtype,
                buffer,
                answer,
            } => Work::Norm(Norm::new(dtype, Place(buffer.0), buffer.1, answer)),
            _ => Work::Barrier(Barrier::default()),
        }
    }

    /// Buffers that a call works on at once must not be each other's, but for this rank's own part.
    fn check_memory(&self, terms: &Terms<'_>) -> Result<(), CollectiveError> {
        let (written, read, own) = self.memory(terms);
        check_apart(self.kind(), written, &read, own)
    }

    /// What a call writes and reads, where that is more than one buffer, and what it may read and write in one place.
    fn memory(&self, terms: &Terms<'_>) -> (Vec<Span>, Vec<Span>, Option<Span>) {
        let Terms { me, ranks, .. } = *terms;
        match self {
            Self::AllReduceLanes {
                dtype, lanes, count, ..
            } => {
                let places: Vec<*mut u8> = lanes.iter().map(|lane| lane.1).collect();
                (equal_spans(&places, *count, *dtype), Vec::new(), None)
            }
            Self::ReduceScatter {
                dtype,
                source,
                target,
                ..
            } => {
                let part = target.1 * dtype.size();
                let whole = span((*source, target.1 * ranks), dtype.size());
                let own = (whole.0 + me * part, whole.0 + (me + 1) * part);
                (spans(&[*target], *dtype), vec![whole], Some(own))
            }
            Self::AllGather {
                dtype,
                source,
                targets,
            } => gathering(spans(targets, *dtype), span(*source, dtype.size())),
            Self::Gather {
                dtype,
                source,
                targets,
                ..
            } => gathering(
                equal_spans(targets, source.1, *dtype),
                span(*source, dtype.size()),
            ),
            Self::Scatter {
                dtype,
                sources,
                target,
                ..
            } => {
                let sources = equal_spans(sources, target.1, *dtype);
                let own = sources.get(me).copied();
                (spans(&[*target], *dtype), sources, own)
            }
            Self::AllToAll {
                dtype,
                sources,
                targets,
            } => {
                let (sources, targets) = (spans(sources, *dtype), spans(targets, *dtype));
                let own = sources
                    .get(me)
                    .copied()
                    .filter(|own| targets.get(me) == Some(own));
                (targets, sources, own)
            }
            _ => (Vec::new(), Vec::new(), None),
        }
    }

    fn check(&self, terms: &Terms<'_>) -> Result<(), CollectiveError> {
        let wrong = |text: String| Err(CollectiveError::Argument(text));
        let Terms { me, ranks, .. } = *terms;
        match self {
            Self::AllReduce { dtype, op, .. }
            | Self::AllReduceLanes { dtype, op, .. }
            | Self::Reduce { dtype, op, .. }
            | Self::ReduceScatter { dtype, op, .. } => check(*op, *dtype)?,
            Self::Norm { dtype, .. } if !dtype.is_float() => {
                return wrong(format!("the norm of {dtype} is not defined: convert to a float"));
            }
            Self::AllGather { targets, source, .. }
                if targets.len() != ranks || targets[me].1 != source.1 =>
            {
                return wrong(format!(
                    "all_gather needs a target for each of {ranks} ranks, this rank's of {} elements",
                    source.1
                ));
            }
            Self::AllToAll { sources, targets, .. } if sources.len() != ranks || targets.len() != ranks => {
                return wrong(format!(
                    "all_to_all needs a part for and from each of {ranks} ranks"
                ));
            }
            _ => {}
        }
        match self {
            Self::Reduce { root, .. } | Self::Broadcast { root, .. } => check_root(*root, ranks),
            Self::Gather {
                root, targets: parts, ..
            }
            | Self::Scatter {
                root, sources: parts, ..
            } => {
                check_root(*root, ranks)?;
                let needed = if me == *root as usize { ranks } else { 0 };
                if parts.len() != needed {
                    return wrong(format!("rank {me} must pass {needed} parts, not {}", parts.len()));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// A source may be one of the targets.
fn gathering(targets: Vec<Span>, source: Span) -> (Vec<Span>, Vec<Span>, Option<Span>) {
    (targets, vec![source], Some(source))
}

fn spans(parts: &[RawPart], dtype: DType) -> Vec<Span> {
    parts.iter().map(|part| span(*part, dtype.size())).collect()
}

/// Of parts that are all of one size.
fn equal_spans(places: &[*mut u8], count: usize, dtype: DType) -> Vec<Span> {
    let parts: Vec<RawPart> = places.iter().map(|place| (*place, count)).collect();
    spans(&parts, dtype)
}

fn plain(kind: Kind, dtype: DType, count: usize) -> Call {
    Call {
        kind,
        dtype,
        op: Op::Sum,
        count: count as u64,
        root: 0,
        parts: 0,
        number: 0,
    }
}

fn check_root(root: u32, ranks: usize) -> Result<(), CollectiveError> {
    if (root as usize) < ranks {
        return Ok(());
    }
    Err(CollectiveError::Argument(format!(
        "there is no root {root} in a group of {ranks}: ranks count from 0"
    )))
}

fn reduce(
    dtype: DType,
    op: Op,
    buffer: RawPart,
    receivers: Receivers,
    terms: &Terms<'_>,
) -> Result<Reduce, CollectiveError> {
    let shape = (terms.shape)(dtype, op)?;
    Ok(Reduce::plain(dtype, shape, receivers, Place(buffer.0), buffer.1))
}

/// FNV-1a over the sizes.
fn checksum(sizes: impl Iterator<Item = usize>) -> u32 {
    sizes
        .flat_map(|size| (size as u64).to_le_bytes())
        .fold(0x811c_9dc5, |sum: u32, byte| {
            (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
}
