//! Real processes that train, killed, stopped and cut off; `grampus-chaos` is the program around it.
//!
//! A [`Plan`] is drawn from a seed and the number of a run: which faults come after how many steps. A run is
//! one driver (`drivers/train.py`) that is struck by all of them in turn, each once the one before is made
//! good, and whose weights must be those of a run without faults. What a driver says in between is all that
//! is measured: see [`measure`].

mod driver;
mod error;
mod fault;
mod leftover;
pub mod measure;
mod place;
mod process;
mod run;
mod strike;
pub mod table;

pub use error::ChaosError;
pub use fault::{Fault, Kind, Plan};
pub use place::unavailable;
pub use run::{Made, Outcome, Repeated, Rows, Setting, play, undisturbed};
