//! Reduce, gather, broadcast and the rest over a group of processes. Owns the numerics of Grampus.

pub mod numerics;
