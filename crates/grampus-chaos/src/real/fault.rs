//! Which faults there are, and which come when: drawn from a seed before the run begins.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use grampus_core::Random;

/// What is done to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub enum Kind {
    /// A worker is killed.
    Kill,
    /// A worker is stopped for good: it does not end, and says nothing any more.
    Stop,
    /// A worker is stopped for less than its silence is noticed: nothing may happen.
    Pause,
    /// Two workers are killed at once.
    DoubleKill,
    /// A second worker is killed while the run recovers from the loss of a first.
    KillInRecovery,
    /// The driver is killed; another goes on from the checkpoint.
    DriverKill,
    /// The disk of the checkpoints is full for a while.
    DiskFull,
    /// A host is cut off for longer than silence is borne.
    Partition,
    /// What a host sends comes late.
    Delay,
    /// Some of what a host sends is lost.
    PacketLoss,
    /// A worker takes longer for a step than a sum bears silence: all must wait for it.
    Late,
    /// A file to which the output of a worker goes takes nothing for a while: the run must go on.
    StalledLog,
    /// A host hears nothing, or is not heard, for longer than silence is borne.
    OneWayCut,
    /// All processes of a host are killed, its supervisor among them.
    HostKill,
    /// Idle connections to the coordinator's port; a worker is killed meanwhile, and another must find its way in.
    Flood,
    /// A host is cut off and never comes back: always the last fault of a run.
    CutForGood,
}

impl Kind {
    /// Whether it needs hosts with a network between them.
    pub fn is_network(self) -> bool {
        use Kind::{CutForGood, Delay, Flood, HostKill, OneWayCut, PacketLoss, Partition};
        matches!(
            self,
            Partition | Delay | PacketLoss | OneWayCut | HostKill | Flood | CutForGood
        )
    }

    /// Whether workers are lost by it, and the run has to recover.
    pub fn loses_workers(self) -> bool {
        use Kind::{
            CutForGood, DoubleKill, Flood, HostKill, Kill, KillInRecovery, OneWayCut, Partition, Stop,
        };
        matches!(
            self,
            Kill | Stop | DoubleKill | KillInRecovery | Partition | OneWayCut | HostKill | Flood | CutForGood
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// One fault of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is done.
    pub kind: Kind,
    /// Steps after the fault before is made good.
    pub after_steps: u64,
    /// And this long after that step, so that any moment of a step is hit.
    pub delay: Duration,
    /// How long it lasts, or after which time the second part comes.
    pub length: Duration,
    /// Which of the workers, or hosts, are hit: they are counted round from here.
    pub first: u64,
}

/// The silence after which a worker is given up in the runs for which lengths are drawn.
pub(super) const DRAWN_FOR: Duration = Duration::from_millis(1_500);
/// The most steps between two faults.
const MOST_STEPS: u64 = 30;
/// A step ends within this, mostly.
const STEP: Duration = Duration::from_millis(40);

/// All faults of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which they come.
    pub faults: Vec<Fault>,
    /// Whether the workers are on hosts of their own.
    pub network: bool,
}

impl Plan {
    /// The plan of a run: the same for the same numbers and kinds. A run has faults of one machine, or of a network.
    ///
    /// ```
    /// use grampus_chaos::real::{Kind, Plan};
    /// let plan = Plan::draw(1, 7, &[Kind::Kill, Kind::Stop], 10);
    /// assert_eq!(plan.faults.len(), 10);
    /// assert_eq!(plan, Plan::draw(1, 7, &[Kind::Kill, Kind::Stop], 10));
    /// assert_ne!(plan, Plan::draw(1, 8, &[Kind::Kill, Kind::Stop], 10));
    /// ```
    pub fn draw(seed: u64, run: u64, kinds: &[Kind], count: usize) -> Plan {
        let mut random = Random::from_parts(&[seed, run]);
        // Every kind counts alike.
        let network = pick(&mut random, kinds).is_some_and(Kind::is_network);
        let kinds: Vec<Kind> = kinds
            .iter()
            .copied()
            .filter(|kind| kind.is_network() == network)
            .collect();
        Plan::of(&mut random, &kinds, count, network)
    }

    /// The plan of a run whose workers are on hosts, to which all kinds may come.
    pub fn draw_on_hosts(seed: u64, run: u64, kinds: &[Kind], count: usize) -> Plan {
        Plan::of(&mut Random::from_parts(&[seed, run]), kinds, count, true)
    }

    fn of(random: &mut Random, kinds: &[Kind], count: usize, network: bool) -> Plan {
        let last = kinds.iter().copied().find(|kind| *kind == Kind::CutForGood);
        let kinds: Vec<Kind> = kinds.iter().copied().filter(|kind| Some(*kind) != last).collect();
        // Each kind comes before any comes again, so that few faults are of many kinds.
        let mut left = Vec::new();
        let mut faults = Vec::with_capacity(count);
        while faults.len() + usize::from(last.is_some()) < count && !kinds.is_empty() {
            if left.is_empty() {
                left.clone_from(&kinds);
            }
            let kind = left.swap_remove(random.below(left.len() as u64) as usize);
            faults.push(Fault::draw(random, kind));
        }
        faults.extend(last.map(|kind| Fault::draw(random, kind)));
        Plan { faults, network }
    }

    /// Steps of a run that leave room for so many faults.
    pub fn steps(count: usize) -> u64 {
        // A driver is told of steps ten times a second: some pass before it hears of one.
        (count as u64 + 2) * (MOST_STEPS + 10)
    }
}

impl Fault {
    fn draw(random: &mut Random, kind: Kind) -> Fault {
        let (least, most) = match kind {
            Kind::KillInRecovery => (0, 300),
            Kind::Pause => (50, 400),
            Kind::Partition | Kind::OneWayCut => (2_500, 4_000),
            // A sum bears 15 s of silence.
            Kind::Late => (16_500, 19_000),
            // Longer than a supervisor may be silent.
            Kind::StalledLog => (2_500, 4_000),
            Kind::Flood => (500, 1_500),
            Kind::DiskFull | Kind::Delay | Kind::PacketLoss => (500, 1_500),
            Kind::Kill
            | Kind::Stop
            | Kind::DoubleKill
            | Kind::DriverKill
            | Kind::HostKill
            | Kind::CutForGood => (0, 0),
        };
        Fault {
            kind,
            after_steps: 10 + random.below(MOST_STEPS - 10 + 1),
            delay: Duration::from_micros(random.below(STEP.as_micros() as u64)),
            length: Duration::from_millis(least + random.below(most - least + 1)),
            first: random.next_u64(),
        }
    }
}

fn pick(random: &mut Random, kinds: &[Kind]) -> Option<Kind> {
    kinds.get(random.below(kinds.len() as u64) as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_faults_of_one_machine_or_of_a_network() {
        let kinds = Kind::value_variants();
        let mut seen = [false; 2];
        for run in 0..50 {
            let plan = Plan::draw(3, run, kinds, 10);
            assert!(
                plan.faults
                    .iter()
                    .all(|fault| fault.kind.is_network() == plan.network)
            );
            seen[usize::from(plan.network)] = true;
        }
        assert_eq!(seen, [true; 2]);
    }

    #[test]
    fn every_kind_comes_before_any_comes_again() {
        let kinds = [Kind::Kill, Kind::Stop, Kind::Pause];
        for run in 0..20 {
            let mut drawn: Vec<Kind> = Plan::draw(1, run, &kinds, 3)
                .faults
                .iter()
                .map(|f| f.kind)
                .collect();
            drawn.sort();
            assert_eq!(drawn, kinds);
        }
    }

    #[test]
    fn no_kind_makes_no_plan() {
        assert!(Plan::draw(1, 1, &[], 10).faults.is_empty());
        assert!(Plan::draw_on_hosts(1, 1, &[], 10).faults.is_empty());
    }

    #[test]
    fn all_kinds_come_to_hosts_and_only_the_last_fault_is_for_good() {
        let kinds = Kind::value_variants();
        let plan = Plan::draw_on_hosts(1, 4, kinds, kinds.len());
        let mut drawn: Vec<Kind> = plan.faults.iter().map(|fault| fault.kind).collect();
        assert_eq!(drawn.last(), Some(&Kind::CutForGood));
        drawn.sort();
        assert_eq!(drawn, kinds);
        assert_eq!(plan, Plan::draw_on_hosts(1, 4, kinds, kinds.len()));
        assert_ne!(plan, Plan::draw_on_hosts(2, 4, kinds, kinds.len()));
        let alone = Plan::draw_on_hosts(1, 4, &[Kind::CutForGood], 3);
        assert_eq!(alone.faults.len(), 1);
    }

    #[test]
    fn all_faults_find_room_in_a_run() {
        for run in 0..100 {
            let plan = Plan::draw(1, run, &[Kind::Kill], 10);
            let needed: u64 = plan.faults.iter().map(|fault| fault.after_steps).sum();
            assert!(needed <= Plan::steps(10));
        }
    }
}
