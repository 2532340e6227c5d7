//! Native models in the loop: what one lane does with its rows, what a step does with the sum, and whole runs of them.
//!
//! A worker has a [`Seat`], reads rows with a [`RowsFeed`], and does what a job says: [`fit`], [`evaluate`] or [`predict`].

mod error;
mod feed;
mod job;
mod kept;
mod learner;
mod loaded;
mod memory;
mod model;
mod packed;
mod pass;
mod rows;
mod run;
mod saving;
mod seat;
mod sharing;
mod state;
mod watch;

pub use error::{NOT_FINITE, RunError};
pub use feed::RowsFeed;
pub use job::{Data, Event, FitJob, Layout, Named, PassJob, Saving, Source, Spec};
pub use kept::{Has, Kept};
pub use learner::{Bounds, Judging, LaneRows, LayerGroup, LearnError, Learner, row_shape};
pub use memory::{Memory, Sum};
pub use packed::PackedArray;
pub use pass::{Evaluation, Figure, Prediction};
pub use rows::{Array, LaneBatch};
pub use run::{Fitted, Hooks, evaluate, fit, hand_over, predict};
pub use saving::{Resumed, resumed};
pub use seat::Seat;
pub use sharing::{Held, Share};
pub use state::State;
