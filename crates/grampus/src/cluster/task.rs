//! What workers can be asked to do, and what they answer.

use std::sync::Arc;

use bytes::Bytes;
use grampus_cluster::Payload;
use grampus_collective::Group;
use grampus_native::Shape;
use grampus_net::Memory;
use grampus_train::fit::{Position, Record};
use grampus_train::native::{
    self, Array, Evaluation, Event, FitJob, Fitted, Hooks, Kept, PassJob, Prediction, RunError, Seat, State,
};
use grampus_train::whereabouts::Whereabouts;
use serde::{Deserialize, Serialize};

/// Something that all workers do together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    Fit(Box<FitJob>),
    /// Brings home what is left of a run that has failed.
    HandOver(Box<FitJob>),
    Evaluate(Box<PassJob>),
    Predict(Box<PassJob>),
}

/// What a worker answers.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// What was trained; the first tells it for all.
    Fit(Option<Box<Trained>>),
    Evaluate(Evaluation),
    Predict(Vec<Prediction<f32>>),
}

/// What came out of training.
#[derive(Clone, Debug)]
pub(crate) struct Trained {
    pub told: Told,
    pub state: State,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    pub at: Position,
    pub records: Vec<Record>,
    pub reason: String,
    /// Why the run could not be saved, where it could not.
    pub unsaved: Option<String>,
}

/// What an answer says about the bytes beside it.
#[derive(Serialize, Deserialize)]
enum Header {
    Nothing,
    Trained(Told),
    Evaluation(Evaluation),
    Predictions(Vec<Place>),
}

#[derive(Serialize, Deserialize)]
struct Place {
    batch: u64,
    lane: u32,
    rows: usize,
    shapes: Vec<Shape>,
}

/// A task and a state, ready to travel.
pub(crate) fn packed(task: &Task, state: Option<&State>) -> Result<Payload, RunError> {
    let text = serde_json::to_vec(task).map_err(unreadable)?;
    let memory = state.map(|state| held(&state.to_bytes()?)).transpose()?;
    Ok(Payload {
        parts: vec![Bytes::from(text)],
        memory,
    })
}

/// What [`packed`] has packed.
pub(super) fn opened(payload: &Payload) -> Result<(Task, Option<State>), RunError> {
    let text = payload.parts.first().map_or(&[][..], |part| part);
    let task = serde_json::from_slice(text).map_err(unreadable)?;
    let state = payload.memory.as_ref().map(read).transpose()?;
    let state = state.map(|bytes| State::from_bytes(&bytes)).transpose()?;
    Ok((task, state))
}

impl Answer {
    pub(super) fn trained(fitted: Option<Fitted>) -> Self {
        Self::Fit(fitted.map(|fitted| {
            let Fitted {
                state,
                at,
                records,
                reason,
                unsaved,
            } = fitted;
            let told = Told {
                at,
                records,
                reason,
                unsaved,
            };
            Box::new(Trained { told, state })
        }))
    }

    /// Ready to travel; what all have, the first sends.
    pub(super) fn sent(self, leads: bool) -> Result<Payload, RunError> {
        match self {
            Self::Fit(_) if !leads => Self::Fit(None).packed(),
            other => other.packed(),
        }
    }

    /// What each rank answers, in order.
    pub(super) fn gathered(self, group: &Group) -> Result<Vec<Self>, RunError> {
        let Payload { parts, memory } = self.packed()?;
        let texts = group.gather_bytes(parts.first().map_or(&[][..], |part| part))?;
        let bytes = group.gather_bytes(&memory.as_ref().map(read).transpose()?.unwrap_or_default())?;
        let both = texts.into_iter().zip(bytes);
        both.map(|(text, bytes)| Self::made(&text, &bytes)).collect()
    }

    fn packed(self) -> Result<Payload, RunError> {
        let (header, bytes) = match self {
            Self::Fit(None) => (Header::Nothing, None),
            Self::Fit(Some(trained)) => (Header::Trained(trained.told), Some(trained.state.to_bytes()?)),
            Self::Evaluate(found) => (Header::Evaluation(found), None),
            Self::Predict(parts) => {
                let places = parts.iter().map(|part| Place {
                    batch: part.batch,
                    lane: part.lane,
                    rows: part.rows,
                    shapes: part.outputs.iter().map(|output| output.shape.clone()).collect(),
                });
                let places = places.collect();
                let outputs = parts.iter().flat_map(|part| &part.outputs);
                let numbers = outputs.flat_map(|output| &output.values);
                let bytes = numbers.flat_map(|number| number.to_le_bytes()).collect();
                (Header::Predictions(places), Some(bytes))
            }
        };
        let text = postcard::to_stdvec(&header).map_err(unreadable)?;
        Ok(Payload {
            parts: vec![Bytes::from(text)],
            memory: bytes.map(|bytes| held(&bytes)).transpose()?,
        })
    }

    pub fn opened(payload: &Payload) -> Result<Self, RunError> {
        let text = payload.parts.first().map_or(&[][..], |part| part);
        let bytes = payload.memory.as_ref().map(read).transpose()?.unwrap_or_default();
        Self::made(text, &bytes)
    }

    fn made(text: &[u8], bytes: &[u8]) -> Result<Self, RunError> {
        Ok(match postcard::from_bytes(text).map_err(unreadable)? {
            Header::Nothing => Self::Fit(None),
            Header::Trained(told) => Self::Fit(Some(Box::new(Trained {
                told,
                state: State::from_bytes(bytes)?,
            }))),
            Header::Evaluation(found) => Self::Evaluate(found),
            Header::Predictions(places) => {
                let mut numbers = bytes.as_chunks().0.iter().map(|raw| f32::from_le_bytes(*raw));
                let parts = places.into_iter().map(|place| Prediction {
                    batch: place.batch,
                    lane: place.lane,
                    rows: place.rows,
                    outputs: place
                        .shapes
                        .into_iter()
                        .map(|shape| Array {
                            values: numbers.by_ref().take(place.rows * shape.size()).collect(),
                            shape,
                        })
                        .collect(),
                });
                Self::Predict(parts.collect())
            }
        })
    }
}

fn held(bytes: &[u8]) -> Result<Memory, RunError> {
    let make = || -> Result<Memory, grampus_net::NetError> {
        let memory = Memory::create(bytes.len() as u64)?;
        memory.write_at(bytes, 0)?;
        Ok(memory)
    };
    make().map_err(|error| RunError::Asked(error.to_string()))
}

fn read(memory: &Memory) -> Result<Vec<u8>, RunError> {
    let mut bytes = vec![0; memory.len() as usize];
    memory
        .read_at(&mut bytes, 0)
        .map_err(|error| RunError::Asked(error.to_string()))?;
    Ok(bytes)
}

fn unreadable(error: impl std::fmt::Display) -> RunError {
    RunError::Asked(format!("a task cannot be read: {error}"))
}

/// A worker that does a task.
pub(super) struct Performed<'a> {
    pub group: Arc<Group>,
    pub gives_up: Arc<dyn Fn() -> bool + Send + Sync>,
    pub tell: &'a dyn Fn(&Event),
    pub wants_to_stop: Box<dyn Fn() -> bool>,
    pub here: &'a Whereabouts,
    pub kept: &'a mut Option<Kept>,
}

impl Performed<'_> {
    pub fn perform(self, task: Task, state: Option<State>) -> Result<Answer, RunError> {
        let layout = match &task {
            Task::Fit(job) | Task::HandOver(job) => job.layout.clone(),
            Task::Evaluate(job) | Task::Predict(job) => job.layout.clone(),
        };
        let seat = Seat::new(self.group, layout, self.gives_up);
        Ok(match task {
            Task::Fit(job) => {
                let hooks = Hooks {
                    tell: self.tell,
                    wants_to_stop: self.wants_to_stop,
                    here: self.here,
                };
                let fitted = native::fit::<f32>(*job, state, &seat, hooks, self.kept)?;
                Answer::trained(Some(fitted))
            }
            Task::HandOver(job) => Answer::trained(native::hand_over::<f32>(*job, &seat, self.kept)?),
            Task::Evaluate(job) => Answer::Evaluate(native::evaluate::<f32>(*job, state.as_ref(), &seat)?),
            Task::Predict(job) => Answer::Predict(native::predict(*job, state.as_ref(), &seat)?),
        })
    }
}
