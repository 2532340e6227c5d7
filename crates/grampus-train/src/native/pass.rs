//! One pass over rows: to measure a model, or to hear its answers.

use std::collections::BTreeMap;

use grampus_collective::Element;
use grampus_native::{Network, Real};
use serde::{Deserialize, Serialize};

use super::error::RunError;
use super::feed::RowsFeed;
use super::job::Named;
use super::learner::{Judging, LaneRows};
use super::model::located;
use super::rows::LaneBatch;
use super::seat::Seat;
use crate::fit::Feed;
use crate::metrics::{State, Value, Values};

/// What was measured over all rows, each counted once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The mean loss.
    pub loss: f64,
    /// The metrics by name, in the order in which they were asked for.
    pub metrics: Vec<(String, Figure)>,
    /// How many rows there were.
    pub num_samples: u64,
}

impl Evaluation {
    /// A metric that is one number, or the loss.
    pub fn get(&self, name: &str) -> Option<f64> {
        if name == "loss" {
            return Some(self.loss);
        }
        let found = self.metrics.iter().find(|(known, _)| known == name);
        found.and_then(|(_, figure)| figure.number())
    }
}

/// The value of a metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Figure {
    /// One number; nothing where no row was seen.
    Number(f64),
    /// The arrays of a curve by name.
    Arrays(Vec<(String, Vec<f64>)>),
}

impl Figure {
    /// Where it is one number.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Arrays(_) => None,
        }
    }
}

impl From<Value> for Figure {
    fn from(value: Value) -> Self {
        match value {
            Value::Number(number) => Self::Number(number),
            Value::Arrays(arrays) => Self::Arrays(
                arrays
                    .into_iter()
                    .map(|(name, array)| (name.to_owned(), array))
                    .collect(),
            ),
        }
    }
}

/// What a model says to some rows: its outputs, row behind row, and in which batch and lane they were.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction<T> {
    /// The number of the batch.
    pub batch: u64,
    /// The lane.
    pub lane: u32,
    /// How many rows.
    pub rows: usize,
    /// The numbers of each output, and the shape of one row of it.
    pub outputs: Vec<super::rows::Array<T>>,
}

/// What the rows of a lane add up to; the loss is multiplied by what they weigh.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Sums {
    loss: f64,
    weight: f64,
    rows: u64,
    metrics: Vec<Vec<u8>>,
}

/// All parts of this worker's lanes, from the first row to the last, each with the number of its batch.
fn each_part<T: Real + Element>(
    feed: &mut RowsFeed<T>,
    seat: &Seat,
    mut use_part: impl FnMut(u64, u32, &LaneBatch<T>) -> Result<(), RunError>,
) -> Result<(), RunError> {
    feed.open(0, 0)?;
    let mut number = 0;
    while let Some(batch) = feed.next()? {
        if seat.gives_up() {
            return Err(RunError::Interrupted);
        }
        for part in &batch.parts {
            if let Some(rows) = &part.batch {
                use_part(number, part.lane, rows)?;
            }
        }
        number += 1;
    }
    Ok(())
}

/// Loss and metrics over all rows: the same on every worker.
pub(super) fn judge<T: Real + Element>(
    judging: &mut Judging<T>,
    feed: &mut RowsFeed<T>,
    metrics: &[Named],
    seat: &Seat,
) -> Result<Evaluation, RunError> {
    let mut lanes: BTreeMap<u32, (Sums, Vec<State>)> = BTreeMap::new();
    for lane in seat.mine.clone() {
        let states = metrics.iter().map(|named| named.metric.state()).collect();
        lanes.insert(lane, (Sums::default(), states));
    }
    each_part(feed, seat, |_, lane, batch| {
        let Some((sums, states)) = lanes.get_mut(&lane) else {
            return Ok(());
        };
        judge_part(judging, batch, sums, states).map_err(|error| located(error, lane, batch, None))
    })?;
    let mut mine: BTreeMap<u32, Sums> = BTreeMap::new();
    for (lane, (mut sums, states)) in lanes {
        sums.metrics = states.iter().map(State::to_bytes).collect::<Result<_, _>>()?;
        mine.insert(lane, sums);
    }
    let told = seat.gather(&postcard::to_stdvec(&mine).map_err(unreadable)?)?;
    let mut all: BTreeMap<u32, Sums> = BTreeMap::new();
    for part in &told {
        all.extend(postcard::from_bytes::<BTreeMap<u32, Sums>>(part).map_err(unreadable)?);
    }
    merged(metrics, all.into_values())
}

fn unreadable(error: postcard::Error) -> RunError {
    RunError::Asked(format!("what another worker measured cannot be read: {error}"))
}

fn judge_part<T: Real + Element>(
    judging: &mut Judging<T>,
    batch: &LaneBatch<T>,
    sums: &mut Sums,
    states: &mut [State],
) -> Result<(), RunError> {
    let Some(target) = &batch.target else {
        return Err(RunError::Asked(
            "the rows have no target: name the columns that should come out".into(),
        ));
    };
    let rows = batch.rows.len();
    let inputs: Vec<_> = batch.inputs.iter().map(|array| array.rows()).collect();
    let lane = LaneRows {
        inputs: &inputs,
        target: target.rows(),
        rows,
    };
    let loss = judging.judge(lane, false, 1.0, 0)?;
    let weight = judging.loss.weight(&target.values, rows);
    // The mean over rows that count for nothing is not a number.
    if weight != 0.0 {
        sums.loss += loss * weight;
    }
    sums.weight += weight;
    sums.rows += rows as u64;
    if states.is_empty() {
        return Ok(());
    }
    let Some((output, shape)) = judging.network.output(&inputs, 0) else {
        return Ok(());
    };
    let (said, wanted) = (with_rows(rows, shape), with_rows(rows, &target.shape));
    let (said, wanted) = (Values::of(&said, output)?, Values::of(&wanted, &target.values)?);
    for state in states {
        state.update(&said, &wanted)?;
    }
    Ok(())
}

fn with_rows(rows: usize, shape: &grampus_native::Shape) -> Vec<usize> {
    [&[rows], shape.axes()].concat()
}

fn merged(metrics: &[Named], lanes: impl Iterator<Item = Sums>) -> Result<Evaluation, RunError> {
    let mut whole = Sums::default();
    let mut states: Vec<State> = metrics.iter().map(|named| named.metric.state()).collect();
    for lane in lanes {
        whole.loss += lane.loss;
        whole.weight += lane.weight;
        whole.rows += lane.rows;
        for (state, bytes) in states.iter_mut().zip(&lane.metrics) {
            state.merge(&State::from_bytes(bytes)?)?;
        }
    }
    let figures = states.iter().map(|state| Figure::from(state.value()));
    Ok(Evaluation {
        loss: whole.loss / whole.weight,
        metrics: metrics
            .iter()
            .map(|named| named.name.clone())
            .zip(figures)
            .collect(),
        num_samples: whole.rows,
    })
}

/// The answers of this worker's lanes.
pub(super) fn answer<T: Real + Element>(
    network: &mut Network<T>,
    feed: &mut RowsFeed<T>,
    seat: &Seat,
) -> Result<Vec<Prediction<T>>, RunError> {
    let mut all = Vec::new();
    each_part(feed, seat, |number, lane, batch| {
        let rows = batch.rows.len();
        let inputs: Vec<_> = batch.inputs.iter().map(|array| array.rows()).collect();
        network
            .forward(&inputs, rows, false, 0)
            .map_err(|error| located(error.into(), lane, batch, None))?;
        let outputs = (0..).map_while(|place| network.output(&inputs, place));
        let outputs = outputs.map(|(values, shape)| super::rows::Array {
            values: values.to_vec(),
            shape: shape.clone(),
        });
        all.push(Prediction {
            batch: number,
            lane,
            rows,
            outputs: outputs.collect(),
        });
        Ok(())
    })?;
    Ok(all)
}
