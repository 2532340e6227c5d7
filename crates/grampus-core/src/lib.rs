//! The words that every other crate of Grampus speaks: ids, the join string, control messages, failures,
//! placement of ranks, time and seeded randomness. Nothing here reads a file, opens a socket or asks the
//! clock; that is what lets the coordinator be simulated.

mod clock;
mod failure;
mod id;
mod join;
mod key;
mod message;
mod order;
mod placement;
pub mod platform;
mod random;
mod windows;

pub use clock::{Clock, ManualClock, SystemClock, Time};
pub use failure::{Exit, Failure, RankFailure, TaskFailure};
pub use id::{GenerationId, JobId, Rank, TaskId, WorkerId};
pub use join::{Address, JoinError, JoinString};
pub use key::{JobKey, KeyError};
pub use message::{Generation, Join, Member, Outcome, PROTOCOL_VERSION, Task, ToCoordinator, ToWorker};
pub use order::Order;
pub use placement::{Place, PlacementError};
pub use random::Random;
pub use windows::Windows;
