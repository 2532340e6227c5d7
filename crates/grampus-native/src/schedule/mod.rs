//! How learning rates change over a run.
//!
//! A rate is a pure function of where the run is, so that a run that goes on after a checkpoint goes on with
//! the same rates. Only a [`Plateau`] looks at how the run goes: what it saw is kept by [`PlateauState`].

mod cycle;
mod plateau;
#[cfg(test)]
mod tests;

pub use cycle::OneCycle;
pub use plateau::{Mode, Plateau, PlateauState};

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::error::NativeError;

/// The learning rate as a function of steps and epochs, both counted from zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields)]
#[non_exhaustive]
pub enum Schedule {
    /// `base / (1 + decay * step)`: always the same where there is no decay.
    Default {
        /// How fast it gets smaller.
        #[serde(default)]
        decay: f64,
    },
    /// `base * (1 - step / max_iteration) ^ power`, then zero. In a [`Schedule::Sequence`], as in Orca, it
    /// counts the steps of the whole run.
    Poly {
        /// How it is bent.
        power: f64,
        /// Where it is zero.
        max_iteration: u64,
    },
    /// `base * decay_rate ^ (step / decay_step)`.
    Exponential {
        /// After how many steps it has been multiplied once.
        decay_step: u64,
        /// What it is multiplied with.
        decay_rate: f64,
        /// Whether that happens at once, and not a little in each step.
        #[serde(default)]
        stair_case: bool,
    },
    /// Multiplied with `gamma` every `step_size` steps.
    Step {
        /// How many steps apart.
        step_size: u64,
        /// What it is multiplied with.
        gamma: f64,
    },
    /// Multiplied with `gamma` at each of some steps.
    MultiStep {
        /// Which steps, the first first.
        step_sizes: Vec<u64>,
        /// What it is multiplied with.
        gamma: f64,
    },
    /// `base + delta * step`, which is Orca's `Warmup`.
    Increase {
        /// What each step adds.
        delta: f64,
    },
    /// Smaller whenever a metric no longer gets better.
    Plateau(Plateau),
    /// One after the other. Each begins with the rate that the one before it ended with; the last goes on to
    /// the end of the run.
    Sequence {
        /// How many steps an epoch has.
        steps_per_epoch: u64,
        /// The schedules.
        stages: Vec<Stage>,
    },
    /// Half a wave of a cosine, from the base down to a floor, where it stays.
    Cosine {
        /// How many steps that takes.
        total: u64,
        /// Where it ends.
        #[serde(default)]
        floor: f64,
    },
    /// Up and down again, once in a run.
    OneCycle(OneCycle),
    /// Grows in a line to what another schedule begins with, which then counts from zero.
    WarmUp {
        /// How many steps it takes; the last of them has the full rate.
        steps: u64,
        /// What comes then.
        then: Box<Schedule>,
    },
    /// Another schedule that counts epochs where it says steps.
    PerEpoch {
        /// The other.
        of: Box<Schedule>,
    },
}

/// A schedule with an end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// What holds.
    pub schedule: Schedule,
    /// For how many steps.
    pub steps: u64,
}

/// Where a run is.
#[derive(Clone, Copy)]
struct Moment {
    base: f64,
    step: u64,
    epoch: u64,
    /// The step that the stage of a sequence began after.
    begun: u64,
    /// The epoch that it began in.
    begun_epoch: u64,
    /// How often a plateau has made the rate smaller.
    cuts: u32,
}

impl Moment {
    /// Steps since the stage began.
    fn passed(self) -> u64 {
        self.step.saturating_sub(self.begun)
    }
}

impl Schedule {
    /// The rate of a step, where a plateau has not seen anything yet.
    pub fn rate(&self, base: f64, step: u64, epoch: u64) -> f64 {
        self.rate_after_cuts(0, base, step, epoch)
    }

    /// The rate of a step, after a plateau has made it smaller so many times: see [`PlateauState::cuts`].
    pub fn rate_after_cuts(&self, cuts: u32, base: f64, step: u64, epoch: u64) -> f64 {
        self.at(Moment {
            base,
            step,
            epoch,
            begun: 0,
            begun_epoch: 0,
            cuts,
        })
    }

    /// The plateau that has to see the metric in this step, if one does.
    pub fn plateau(&self, step: u64, epoch: u64) -> Option<&Plateau> {
        self.plateau_at(Moment {
            base: 0.0,
            step,
            epoch,
            begun: 0,
            begun_epoch: 0,
            cuts: 0,
        })
    }

    fn at(&self, now: Moment) -> f64 {
        let Moment { base, .. } = now;
        let passed = now.passed() as f64;
        match self {
            Self::Default { decay } => base / (1.0 + passed * decay),
            Self::Poly { power, max_iteration } => {
                base * (1.0 - now.step as f64 / *max_iteration as f64)
                    .max(0.0)
                    .powf(*power)
            }
            Self::Exponential {
                decay_step,
                decay_rate,
                stair_case,
            } => {
                let times = passed / *decay_step as f64;
                base * decay_rate.powf(if *stair_case { times.floor() } else { times })
            }
            Self::Step { step_size, gamma } => {
                let times = now.passed().checked_div(*step_size).unwrap_or(0);
                base * gamma.powf(times as f64)
            }
            Self::MultiStep { step_sizes, gamma } => {
                let times = step_sizes.iter().filter(|step| now.passed() >= **step).count();
                base * gamma.powf(times as f64)
            }
            Self::Increase { delta } => base + delta * passed,
            Self::Plateau(plateau) => plateau.rate(base, now.cuts),
            Self::Sequence {
                steps_per_epoch,
                stages,
            } => match stage(stages, *steps_per_epoch, now) {
                Some((schedule, within)) => schedule.at(within),
                None => base,
            },
            Self::Cosine { total, floor } => {
                let share = (passed / *total as f64).min(1.0);
                floor + (base - floor) * (1.0 + (PI * share).cos()) / 2.0
            }
            Self::OneCycle(cycle) => cycle.rate(now.passed()),
            Self::WarmUp { steps, then } if now.passed() < *steps => {
                let first = Moment {
                    step: now.begun,
                    epoch: now.begun_epoch,
                    ..now
                };
                then.at(first) * (passed + 1.0) / *steps as f64
            }
            Self::WarmUp { steps, then } => then.at(Moment {
                step: now.step - steps,
                ..now
            }),
            Self::PerEpoch { of } => of.at(now.by_epoch()),
        }
    }

    fn plateau_at(&self, now: Moment) -> Option<&Plateau> {
        match self {
            Self::Plateau(plateau) => Some(plateau),
            Self::Sequence {
                steps_per_epoch,
                stages,
            } => stage(stages, *steps_per_epoch, now)
                .and_then(|(schedule, within)| schedule.plateau_at(within)),
            Self::WarmUp { steps, .. } if now.passed() < *steps => None,
            Self::WarmUp { steps, then } => then.plateau_at(Moment {
                step: now.step - steps,
                ..now
            }),
            Self::PerEpoch { of } => of.plateau_at(now.by_epoch()),
            _ => None,
        }
    }

    /// What is wrong with its settings, if anything is.
    pub fn check(&self) -> Result<(), NativeError> {
        let plateaus = self
            .check_inside()
            .map_err(|wrong| NativeError::Description(format!("schedule: {wrong}")))?;
        if plateaus > 1 {
            let reason =
                "schedule: it has more than one plateau, and they would cut each other's rate: keep one";
            return Err(NativeError::Description(reason.into()));
        }
        Ok(())
    }

    /// Lets a plateau in it take the direction of the metric that it looks at, unless it was told one.
    ///
    /// `higher_is_better` says of a value in an epoch's record whether more of it is better, where that is known.
    pub fn settle(&mut self, higher_is_better: &dyn Fn(&str) -> Option<bool>) -> Result<(), NativeError> {
        match self {
            Self::Plateau(plateau) => plateau
                .settle(higher_is_better)
                .map_err(|wrong| NativeError::Description(format!("schedule: {wrong}"))),
            Self::Sequence { stages, .. } => stages
                .iter_mut()
                .try_for_each(|stage| stage.schedule.settle(higher_is_better)),
            Self::WarmUp { then, .. } => then.settle(higher_is_better),
            Self::PerEpoch { of } => of.settle(higher_is_better),
            _ => Ok(()),
        }
    }

    /// What is wrong with it, or how many plateaus it has.
    fn check_inside(&self) -> Result<usize, String> {
        let fine = |is_fine: bool, wanted: &str| if is_fine { Ok(0) } else { Err(wanted.to_string()) };
        let positive = |number: f64| number > 0.0 && number.is_finite();
        match self {
            Self::Default { decay } => fine(*decay >= 0.0, "decay must be 0 or more"),
            Self::Poly { power, max_iteration } => fine(
                *power >= 0.0 && *max_iteration > 0,
                "power must be 0 or more, and max_iteration 1 or more",
            ),
            Self::Exponential {
                decay_step,
                decay_rate,
                ..
            } => fine(
                *decay_step > 0 && positive(*decay_rate),
                "decay_step and decay_rate must be above 0",
            ),
            Self::Step { step_size, gamma } => fine(
                *step_size > 0 && positive(*gamma),
                "step_size and gamma must be above 0",
            ),
            Self::MultiStep { step_sizes, gamma } => fine(
                step_sizes.is_sorted() && positive(*gamma),
                "step_sizes must be given with the first first, and gamma must be above 0",
            ),
            Self::Increase { delta } => fine(*delta >= 0.0 && delta.is_finite(), "delta must be 0 or more"),
            Self::Plateau(plateau) => plateau.check().map(|()| 1),
            Self::Sequence {
                steps_per_epoch,
                stages,
            } => {
                fine(*steps_per_epoch > 0, "steps_per_epoch must be 1 or more")?;
                fine(!stages.is_empty(), "a sequence needs at least one stage")?;
                stages.iter().map(|stage| stage.schedule.check_inside()).sum()
            }
            Self::Cosine { total, floor } => fine(
                *total > 0 && *floor >= 0.0,
                "total must be 1 or more, and floor 0 or more",
            ),
            Self::OneCycle(cycle) => cycle.check().map(|()| 0),
            Self::WarmUp { steps, then } => {
                fine(*steps > 0, "steps must be 1 or more")?;
                then.check_inside()
            }
            Self::PerEpoch { of } => of.check_inside(),
        }
    }
}

impl Moment {
    /// Where epochs count as steps.
    fn by_epoch(self) -> Self {
        Self {
            step: self.epoch,
            begun: self.begun_epoch,
            ..self
        }
    }
}

/// The stage of a sequence that holds, and where the run is within it. As in Orca, the step at which a stage
/// ends is still its.
fn stage(stages: &[Stage], steps_per_epoch: u64, now: Moment) -> Option<(&Schedule, Moment)> {
    let (last, before) = stages.split_last()?;
    let mut within = now;
    for stage in before {
        let end = within.begun.saturating_add(stage.steps);
        if now.step <= end {
            return Some((&stage.schedule, within));
        }
        let end_epoch = end.checked_div(steps_per_epoch).unwrap_or(0);
        let base = stage.schedule.at(Moment {
            step: end,
            epoch: end_epoch,
            ..within
        });
        within = Moment {
            base,
            begun: end,
            begun_epoch: end_epoch,
            ..now
        };
    }
    Some((&last.schedule, within))
}
