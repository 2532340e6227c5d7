//! The coordinator simulated: one thread, one event queue, one seed.
//!
//! A `Schedule` is drawn from a seed: how many members, launched or awaited, which limits, what the user asks
//! for, and which faults come when. The `World` plays it: simulated processes that join, beat, work, fail,
//! freeze and die; links that are first in, first out, but late; a launcher whose reports come in any order
//! or not at all; a user with little patience; a driver that may itself be away. Every input goes through the
//! real [`grampus_cluster::coordinator::step`], and after every step the `Ledger`, which keeps its own books,
//! checks CO-1 to CO-13.
//!
//! Nothing here asks a clock or a source of randomness other than the seed, so a seed says all: the same
//! seed takes the same steps on every machine. Steps are recorded only in a second run of a seed that broke
//! something, which keeps the first run fast.
//!
//! What the simulation takes for granted, and the driver must keep:
//! - the messages of one link arrive in order, and a link that broke says so at most once, after them;
//! - a refusal goes to the link on which the process asked, not to a member of the same id;
//! - `Tick` is repeated until `Idle`, comes no later than `State::deadline`, and after what arrived before it;
//! - `Kill` closes the link too, and a process whose link was closed ends by itself.

mod coverage;
mod elastic;
mod fault;
mod invariants;
mod ledger;
mod process;
mod queue;
mod report;
mod schedule;
mod verdict;
mod world;

use grampus_cluster::coordinator::Bug;

pub use coverage::Coverage;
pub use report::{Broken, Violation};

use schedule::Schedule;
use world::World;

/// Plays the schedule of one seed, with a planted bug or without, and counts what it saw.
///
/// # Errors
/// The invariant that broke, with the steps that led to it.
pub fn run(seed: u64, bug: Option<Bug>, coverage: &mut Coverage) -> Result<(), Broken> {
    let Err(violation) = World::new(Schedule::of(seed, bug), false).play(coverage) else {
        return Ok(());
    };
    let steps = steps(seed, bug);
    Err(Broken {
        seed,
        violation,
        steps,
    })
}

/// Every step of one seed, as text.
pub fn steps(seed: u64, bug: Option<Bug>) -> Vec<String> {
    let mut world = World::new(Schedule::of(seed, bug), true);
    // How it ended is known to whoever asks for the steps.
    let _ = world.play(&mut Coverage::default());
    world.into_steps()
}
