//! Faults on purpose. Test only.
//!
//! In [`simulation`] the coordinator meets, under a seed, what a real cluster meets once a year: deaths,
//! partitions, delays, late joiners, a launcher that lies still. In [`real`] the faults, drawn from a seed as
//! well, come to processes that train, and what comes out is held against an undisturbed run.

pub mod real;
pub mod simulation;
