//! Rows that threads read from files ahead of their use.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use grampus_collective::Element;
use grampus_data::batch::Output;
use grampus_data::loader::{Blocks, Depth, Held, Loader, Sequence, Stream};
use grampus_data::source::find;
use grampus_data::table::parquet::Dataset;
use grampus_native::{Real, Shape};

use super::error::RunError;
use super::rows::{Array, LaneBatch, append};
use super::seat::Seat;

/// Batches that are made ready at most: more hide no wait that these do not.
const AHEAD: usize = 16;
/// How often a thread that waits looks whether it still should.
const LOOK: Duration = Duration::from_millis(50);

pub(super) struct Loaded {
    loader: Loader,
    depth: Depth,
    window: Option<usize>,
    /// What is to be asked for, the next first.
    waiting: VecDeque<Range<u64>>,
}

impl Loaded {
    pub fn open(
        paths: &[String],
        outputs: Vec<Output>,
        window: Option<usize>,
        threads: usize,
    ) -> Result<Self, RunError> {
        let files = find(paths, &["parquet", "pq"])?;
        let mut blocks: Box<dyn Blocks> = Box::new(Stream::new(Dataset::open(&files)?, outputs, false));
        if window.is_none() {
            blocks = Box::new(Held::read(blocks.as_ref())?);
        }
        let loader = Loader::new(blocks, threads, AHEAD)
            .map_err(|error| RunError::Asked(format!("no thread that reads could be started: {error}")))?;
        Ok(Self {
            loader,
            depth: Depth::new(AHEAD),
            window,
            waiting: VecDeque::new(),
        })
    }

    pub fn total(&self) -> u64 {
        self.loader.sizes().iter().sum()
    }

    /// From now on these places are read, in this order.
    pub fn begin(&mut self, seed: u64, epoch: u64, shuffled: bool, places: VecDeque<Range<u64>>) {
        let sizes = self.loader.sizes();
        self.loader.begin(match (shuffled, self.window) {
            (false, _) => Sequence::in_order(seed, epoch, sizes),
            (true, None) => Sequence::shuffled(seed, epoch, sizes),
            (true, Some(window)) => Sequence::windows(seed, epoch, sizes, window),
        });
        self.waiting = places;
    }

    /// The next of them.
    pub fn read<T: Real + Element>(&mut self, inputs: usize, seat: &Seat) -> Result<LaneBatch<T>, RunError> {
        let pending = self.loader.pending();
        let room = self
            .depth
            .now()
            .saturating_sub(pending)
            .max(usize::from(pending == 0));
        for places in self.waiting.drain(..room.min(self.waiting.len())) {
            self.loader.ask(places);
        }
        self.depth.asked(!self.loader.is_ready());
        loop {
            match self.loader.next(LOOK) {
                Some(Ok(batch)) => {
                    let arrays = batch.parts.into_iter().map(|part| {
                        let mut values = Vec::with_capacity(part.shape.iter().product());
                        append(&mut values, part.buffer.bytes(), part.kind);
                        Array {
                            values,
                            shape: Shape::from(part.shape.get(1..).unwrap_or_default()),
                        }
                    });
                    return Ok(LaneBatch::of(arrays.collect(), inputs, batch.rows));
                }
                Some(Err(error)) => return Err(RunError::Data(error)),
                None if seat.gives_up() => return Err(RunError::Interrupted),
                None if self.loader.pending() == 0 => {
                    return Err(RunError::Asked("no batch was asked for".into()));
                }
                None => {}
            }
        }
    }
}
