//! Real processes that train, killed, stopped and cut off; `grampus-chaos` is the program around it.
//!
//! A [`Plan`] is drawn from a seed and the number of a run: which faults come after how many steps. A run is
//! one driver (`drivers/train.py`) that is struck by all of them in turn, each once the one before is made
//! good, and whose weights must be those of a run without faults. What a driver says in between is all that
//! is measured: see [`measure`].

mod driver;
mod error;
mod fault;
mod flood;
mod hosts;
mod ledger;
mod leftover;
mod logs;
pub mod measure;
mod network;
mod owner;
mod place;
mod process;
mod run;
mod strike;
mod sweep;
pub mod table;

pub use error::ChaosError;
pub use fault::{Fault, Kind, Plan};
pub use hosts::{Hosts, NoHosts};
pub use leftover::Leftovers;
pub use place::{slow_links, unavailable};
pub use run::{Made, Outcome, Repeated, Rows, Setting, play, undisturbed};
pub use sweep::{Sweeper, sweep, wait_for_end};
