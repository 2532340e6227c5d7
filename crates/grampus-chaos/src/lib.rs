//! Faults on purpose. Here the coordinator meets, under a seed, what a real cluster meets once a year:
//! deaths, partitions, delays, late joiners, a launcher that lies still. Test only.

pub mod simulation;
