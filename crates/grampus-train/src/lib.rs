//! The one loop of Grampus for fit, evaluate and predict, and what it needs: lanes, gradients, metrics, checkpoints, logs, ledgers.

pub mod checkpoint;
pub mod events;
pub mod fit;
pub mod gradients;
pub mod ledger;
pub mod metrics;
pub mod native;
pub mod plan;
pub mod trigger;
pub mod whereabouts;
