//! Who runs where: the coordinator, the agent inside every worker, the supervisor that owns the processes
//! of a host, and the launchers that start them.

pub mod agent;
pub mod coordinator;
pub mod driver;
mod ended;
pub mod host;
pub mod jobdir;
pub mod keyfile;
pub mod launch;
pub mod launcher;
pub mod node;
mod patience;
mod payload;
mod rankfile;
mod rest;
pub mod supervisor;
pub mod tunnel;

pub use payload::Payload;
