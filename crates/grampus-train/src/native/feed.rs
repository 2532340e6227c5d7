//! Batches of this worker's lanes, in the order that the formula gives.

use std::ops::Range;

use grampus_collective::Element;
use grampus_core::Order;
use grampus_native::{Loss, Real};

use super::error::RunError;
use super::job::{Data, Source};
use super::loaded::Loaded;
use super::packed::Packed;
use super::rows::LaneBatch;
use super::seat::Seat;
use crate::fit::{Batch, Feed, Part, Total};
use crate::plan::rows_of;

enum Reader {
    Packed(Packed),
    Loaded(Loaded),
}

/// Reads the rows of some data for a native model.
pub struct RowsFeed<T> {
    reader: Reader,
    seat: Seat,
    inputs: usize,
    size: u64,
    shuffled: bool,
    /// The loss, where rows do not all count the same in it.
    weighs: Option<Loss>,
    order: Option<Order>,
    step: u64,
    kind: std::marker::PhantomData<T>,
}

impl<T: Real + Element> RowsFeed<T> {
    /// Shuffled to train, as they come to measure.
    pub fn open(data: Data, seat: &Seat, loss: Option<&Loss>, shuffled: bool) -> Result<Self, RunError> {
        let reader = match data.source {
            Source::Packed { path, arrays } => Reader::Packed(Packed::open(&path, arrays)?),
            Source::Files {
                paths,
                outputs,
                window,
            } => {
                let threads = seat.layout.threads as usize;
                Reader::Loaded(Loaded::open(&paths, outputs, window, threads)?)
            }
        };
        let feed = Self {
            reader,
            seat: seat.clone(),
            inputs: data.inputs,
            size: data.batch_size,
            shuffled,
            weighs: loss.filter(|loss| loss.weighs()).cloned(),
            order: None,
            step: 0,
            kind: std::marker::PhantomData,
        };
        match feed.total() {
            0 => Err(RunError::Asked("there are no rows: give at least one".into())),
            _ => Ok(feed),
        }
    }

    /// How many rows there are.
    pub fn total(&self) -> u64 {
        match &self.reader {
            Reader::Packed(packed) => packed.total(),
            Reader::Loaded(loaded) => loaded.total(),
        }
    }

    /// Rows of a batch.
    pub fn batch_size(&self) -> u64 {
        self.size
    }

    fn count(&self) -> u64 {
        self.total().div_ceil(self.size)
    }

    /// Rows of the batch at a step.
    fn rows(&self, step: u64) -> u64 {
        self.size.min(self.total() - step * self.size)
    }

    /// Lanes of this worker, with the places of their rows at a step.
    fn places(&self, step: u64) -> impl Iterator<Item = (u32, Range<u64>)> {
        let (first, rows, size, lanes) = (
            step * self.size,
            self.rows(step),
            self.size,
            self.seat.layout.lanes,
        );
        self.seat.mine.clone().map(move |lane| {
            let places = rows_of(lane, lanes, size, rows);
            (lane, first + places.start..first + places.end)
        })
    }

    fn read(&mut self, places: Range<u64>) -> Result<LaneBatch<T>, RunError> {
        match &mut self.reader {
            Reader::Packed(packed) => {
                let rows = match &self.order {
                    Some(order) => places.map(|place| order.row(place)).collect(),
                    None => places.collect(),
                };
                Ok(packed.read(rows, self.inputs))
            }
            Reader::Loaded(loaded) => loaded.read(self.inputs, &self.seat),
        }
    }

    fn part(&mut self, lane: u32, places: Range<u64>) -> Result<Part<LaneBatch<T>>, RunError> {
        if places.is_empty() {
            return Ok(Part {
                lane,
                rows: 0,
                weight: 0.0,
                batch: None,
            });
        }
        let batch = self.read(places)?;
        let rows = batch.rows.len();
        let weight = match (&self.weighs, &batch.target) {
            (Some(loss), Some(target)) => loss.weight(&target.values, rows),
            _ => rows as f64,
        };
        Ok(Part {
            lane,
            rows: rows as u64,
            weight,
            batch: Some(batch),
        })
    }
}

impl<T: Real + Element> Feed for RowsFeed<T> {
    type Batch = LaneBatch<T>;
    type Error = RunError;

    fn steps(&mut self, _epoch: u64) -> Result<Option<u64>, RunError> {
        Ok(Some(self.count()))
    }

    fn open(&mut self, epoch: u64, step: u64) -> Result<(), RunError> {
        let (seed, total) = (self.seat.layout.seed, self.total());
        self.step = step;
        self.order = self.shuffled.then(|| Order::new(seed, epoch, total));
        if matches!(self.reader, Reader::Packed(_)) {
            return Ok(());
        }
        let places = (step..self.count()).flat_map(|step| self.places(step).map(|(_, places)| places));
        let places = places.filter(|places| !places.is_empty()).collect();
        if let Reader::Loaded(loaded) = &mut self.reader {
            loaded.begin(seed, epoch, self.shuffled, places);
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Batch<LaneBatch<T>>>, RunError> {
        if self.step == self.count() {
            return Ok(None);
        }
        let lanes: Vec<_> = self.places(self.step).collect();
        let mut parts = Vec::with_capacity(lanes.len());
        for (lane, places) in lanes {
            parts.push(self.part(lane, places)?);
        }
        let rows = self.rows(self.step);
        self.step += 1;
        Ok(Some(Batch {
            // Nobody knows alone what all lanes weigh together.
            total: self.weighs.is_none().then_some(Total {
                rows,
                weight: rows as f64,
            }),
            parts,
        }))
    }
}
