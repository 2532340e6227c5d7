//! The one loop of Grampus for fit, evaluate and predict, and what it needs: metrics, checkpoints, logs.

pub mod checkpoint;
pub mod events;
pub mod metrics;
pub mod trigger;
