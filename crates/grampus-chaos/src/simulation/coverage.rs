//! What the schedules reached.

use std::fmt;
use std::time::Duration;

use grampus_cluster::coordinator::Transition;

/// How often each arc of the state machine was taken, and how much was simulated.
#[derive(Clone, Debug)]
pub struct Coverage {
    counts: [u64; Transition::ALL.len()],
    /// Schedules played.
    pub schedules: u64,
    /// Steps of the coordinator.
    pub steps: u64,
    /// Time that passed for the simulated clusters.
    pub simulated: Duration,
}

impl Default for Coverage {
    fn default() -> Self {
        Self {
            counts: [0; Transition::ALL.len()],
            schedules: 0,
            steps: 0,
            simulated: Duration::ZERO,
        }
    }
}

impl Coverage {
    pub(super) fn count(&mut self, transition: Transition) {
        self.steps += 1;
        self.counts[transition as usize] += 1;
    }

    pub(super) fn add(&mut self, other: &Coverage) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.schedules += other.schedules;
        self.steps += other.steps;
        self.simulated += other.simulated;
    }

    /// The arcs that no schedule took.
    pub fn missed(&self) -> Vec<Transition> {
        let never = |transition: &Transition| self.counts[*transition as usize] == 0;
        Transition::ALL.iter().copied().filter(never).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.simulated.as_secs_f64() / 3600.0;
        writeln!(
            f,
            "{} schedules, {} steps, {hours:.1} simulated hours",
            self.schedules, self.steps
        )?;
        for row in Transition::ALL.chunks(3) {
            for transition in row {
                let count = self.counts[*transition as usize];
                write!(f, "  {:<16}{count:>10}", format!("{transition:?}"))?;
            }
            writeln!(f)?;
        }
        let reached = Transition::ALL.len() - self.missed().len();
        write!(f, "{reached} of {} transitions taken", Transition::ALL.len())
    }
}
