//! What will happen, drawn from a seed before the first step.

use std::time::Duration;

use grampus_cluster::coordinator::{Bug, Options};
use grampus_core::{Random, TaskId};

/// One in so many jobs is large, and has so many members.
const LARGE_EVERY: u64 = 10_000;
const LARGE: u32 = 1_000;

/// What the user calls.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Submit {
        task: TaskId,
        world: u32,
        least: u32,
        patient: bool,
    },
    Cancel {
        task: TaskId,
    },
    Yield {
        task: TaskId,
    },
    Resize {
        size: u32,
    },
    Stop,
}

/// What breaks.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// So many processes die at once.
    Kill(u32),
    /// A process ends by itself.
    Exit,
    /// A process is stopped for a while (SIGSTOP).
    Freeze(Duration),
    /// The link of a process carries nothing for a while, then everything late.
    Cut(Duration),
    /// A link breaks and its process lives on.
    Unlink,
    /// The driver itself is away for a while.
    Pause(Duration),
    /// A process that nobody asked for wants to join.
    Intruder(Intruder),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Intruder {
    /// With an id of its own, for any place.
    Stranger,
    /// With the id of a process that exists.
    Twin,
    /// For a place that is most likely taken.
    Usurper,
    /// For a place that does not exist.
    Outsider,
}

#[derive(Clone, Debug)]
pub(super) enum Planned {
    Call(Call),
    Fault(Fault),
}

/// How often, of 1,000 times, a simulated process or the launcher misbehaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Odds {
    pub launch_fails: u64,
    pub crash_before_join: u64,
    pub hang_before_join: u64,
    /// The end of a process is never reported.
    pub exit_lost: u64,
    /// A message takes long.
    pub slow: u64,
    pub raise: u64,
    /// A rank blames another one without reason.
    pub blame: u64,
    pub hang: u64,
    pub exit_in_task: u64,
    pub ignore_cancel: u64,
    pub raise_on_cancel: u64,
    pub crash_on_cancel: u64,
    /// A member says the end of a task twice.
    pub say_twice: u64,
    /// A member says that it was cancelled, and was not.
    pub end_unasked: u64,
    pub ignore_stop: u64,
    /// A peer of a rank that failed raises for its broken connection.
    pub follow: u64,
    /// Where members come by themselves, somebody starts another one for one that ended.
    pub succeed: u64,
}

impl Odds {
    const CALM: Odds = Odds {
        launch_fails: 0,
        crash_before_join: 0,
        hang_before_join: 0,
        exit_lost: 0,
        slow: 0,
        raise: 40,
        blame: 5,
        hang: 20,
        exit_in_task: 0,
        ignore_cancel: 0,
        raise_on_cancel: 100,
        crash_on_cancel: 0,
        say_twice: 20,
        end_unasked: 5,
        ignore_stop: 0,
        follow: 300,
        succeed: 1000,
    };

    const ROUGH: Odds = Odds {
        launch_fails: 3,
        crash_before_join: 40,
        hang_before_join: 3,
        exit_lost: 100,
        slow: 5,
        exit_in_task: 20,
        ignore_cancel: 150,
        crash_on_cancel: 30,
        say_twice: 50,
        ignore_stop: 100,
        succeed: 950,
        ..Odds::CALM
    };

    const STORM: Odds = Odds {
        launch_fails: 20,
        crash_before_join: 200,
        hang_before_join: 20,
        exit_lost: 300,
        slow: 30,
        raise: 60,
        hang: 60,
        exit_in_task: 60,
        ignore_cancel: 300,
        crash_on_cancel: 100,
        say_twice: 100,
        ignore_stop: 300,
        succeed: 800,
        ..Odds::ROUGH
    };
}

/// All that a seed decides beforehand. What depends on the course of events is drawn on the way.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    pub seed: u64,
    pub options: Options,
    /// Nothing breaks but tasks; then no member may be given up (CO-9).
    pub calm: bool,
    /// The driver ticks after every input, not only when a wait ends.
    pub eager: bool,
    /// Members carry 1 to this many ranks.
    pub most_ranks: u32,
    pub odds: Odds,
    /// The user cancels a task that ran for so long.
    pub patience: Duration,
    pub plan: Vec<(Duration, Planned)>,
    /// Nothing is looked at after this.
    pub end: Duration,
}

impl Schedule {
    pub fn of(seed: u64, bug: Option<Bug>) -> Self {
        let mut random = Random::from_parts(&[seed, 1]);
        let random = &mut random;
        let (calm, odds) = match random.below(10) {
            0..2 => (true, Odds::CALM),
            2..7 => (false, Odds::ROUGH),
            _ => (false, Odds::STORM),
        };
        let options = options(random, seed, bug);
        let stop_at = match random.below(10) {
            // A thousand members say in a second what a few say in a minute.
            _ if options.size == LARGE => millis(random, 500, 5_000),
            0..2 => millis(random, 0, 3_000),
            2..7 => millis(random, 3_000, 20_000),
            _ => millis(random, 20_000, 60_000),
        };
        let tail = options.stop_within * 4 + Duration::from_secs(1);
        let mut schedule = Self {
            seed,
            calm,
            eager: random.chance(30),
            most_ranks: if random.chance(25) { 3 } else { 1 },
            odds,
            patience: match random.chance(70) {
                true => millis(random, 500, 3_000),
                false => millis(random, 3_000, 12_000),
            },
            plan: Vec::new(),
            end: stop_at + tail,
            options,
        };
        schedule.plan_calls(random, stop_at);
        schedule.plan_faults(random, stop_at);
        schedule
    }

    fn plan_calls(&mut self, random: &mut Random, stop_at: Duration) {
        let size = u64::from(self.options.size);
        let most = 4 + stop_at.as_secs() / 3;
        for id in 1..=random.below(most) {
            let task = TaskId(id);
            let world = match random.below(100) {
                0..3 => 0,
                3..6 => size * 4,
                6..50 => 1 + random.below(size),
                _ => size,
            };
            let at = part(random, stop_at.mul_f64(1.05));
            let world = world as u32;
            let patient = random.chance(50);
            let least = match random.chance(40) {
                true => 1 + random.below(size) as u32,
                false => world,
            };
            let submit = Call::Submit {
                task,
                world,
                least: least.min(world),
                patient,
            };
            self.add(at, Planned::Call(submit));
            if random.chance(20) {
                let at = at + millis(random, 0, 2_000);
                self.add(at, Planned::Call(Call::Cancel { task }));
            }
            if random.chance(20) {
                let at = at + millis(random, 0, 1_000);
                self.add(at, Planned::Call(Call::Yield { task }));
            }
        }
        // Members that come by themselves may insist on places that are taken: nothing broke, and yet they never get in.
        let resizes = random.chance(30) && (self.options.launches || !self.calm);
        if resizes {
            for _ in 0..1 + random.below(4) {
                let at = part(random, stop_at);
                let size = random.below(size * 2) as u32;
                self.add(at, Planned::Call(Call::Resize { size }));
            }
        }
        self.add(stop_at, Planned::Call(Call::Stop));
        if random.chance(10) {
            let again = stop_at + millis(random, 0, 1_000);
            self.add(again, Planned::Call(Call::Stop));
        }
    }

    fn plan_faults(&mut self, random: &mut Random, stop_at: Duration) {
        let count = match self.calm {
            true => random.below(4),
            false => random.below(4 + stop_at.as_secs() / 2),
        };
        for _ in 0..count {
            let fault = self.fault(random);
            if let Fault::Pause(length) = fault {
                self.end += length;
            }
            let at = part(random, stop_at.mul_f64(1.1));
            self.add(at, Planned::Fault(fault));
        }
    }

    fn fault(&self, random: &mut Random) -> Fault {
        let kind = match self.calm {
            true => 80 + random.below(20),
            false => random.below(100),
        };
        let silent_after = self.options.silent_after;
        match kind {
            0..25 => Fault::Kill(1),
            25..32 => Fault::Kill(2 + random.below(3) as u32),
            32..40 => Fault::Exit,
            40..55 => Fault::Freeze(part(random, silent_after * 3)),
            55..68 => Fault::Cut(part(random, silent_after * 3)),
            68..80 => Fault::Unlink,
            80..90 => Fault::Pause(part(random, silent_after * 3)),
            _ => Fault::Intruder(match random.below(4) {
                0 => Intruder::Stranger,
                1 => Intruder::Twin,
                2 => Intruder::Usurper,
                _ => Intruder::Outsider,
            }),
        }
    }

    fn add(&mut self, at: Duration, planned: Planned) {
        self.plan.push((at, planned));
    }

    /// The longest that the driver takes to look at a wait that ended.
    pub fn slack(&self) -> Duration {
        Duration::from_millis(100)
    }
}

fn options(random: &mut Random, seed: u64, bug: Option<Bug>) -> Options {
    let size = match random.below(100) {
        _ if seed % LARGE_EVERY == LARGE_EVERY - 1 => u64::from(LARGE),
        0 => 1 + random.below(2),
        1..50 => 3 + random.below(3),
        _ => 6 + random.below(11),
    };
    Options {
        launches: random.chance(65),
        join_within: millis(random, 2_000, 6_000),
        silent_after: millis(random, 600, 3_000),
        exit_report_within: millis(random, 50, 1_000),
        leave_within: millis(random, 50, 2_000),
        cancel_within: millis(random, 50, 1_000),
        cancel_patient_within: millis(random, 50, 3_000),
        stop_within: millis(random, 50, 1_000),
        start_attempts: 1 + random.below(3) as u32,
        regroup_within: millis(random, 50, 1_500),
        retry_after: millis(random, 200, 4_000),
        bug,
        ..Options::launched(size as u32)
    }
}

/// A length between two numbers of milliseconds.
pub(super) fn millis(random: &mut Random, least: u64, most: u64) -> Duration {
    Duration::from_millis(least) + part(random, Duration::from_millis(most - least))
}

/// A length between nothing and the whole.
pub(super) fn part(random: &mut Random, whole: Duration) -> Duration {
    Duration::from_nanos(random.below(whole.as_nanos() as u64))
}
