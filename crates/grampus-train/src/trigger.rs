//! When something happens in a run: at the end, a checkpoint, a validation.
//!
//! ```
//! use grampus_train::trigger::{Progress, Trigger};
//!
//! let trigger: Trigger = serde_json::from_str(r#"{"kind": "every_steps", "n": 20}"#)?;
//! let progress = Progress { step: 40, ..Progress::default() };
//! assert_eq!(trigger.fires(&progress).as_deref(), Some("step 40 is a multiple of 20"));
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What a trigger decides on. Ask once after every step; the last step of an epoch counts as its end too.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Epochs that are finished.
    pub epoch: u64,
    /// Steps that are done, over all epochs.
    pub step: u64,
    /// Whether an epoch has just ended.
    pub epoch_end: bool,
    /// Loss of the last step or epoch, where there is one.
    pub loss: Option<f64>,
    /// First metric of the last validation, where there is one.
    pub score: Option<f64>,
}

/// A condition over the progress of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Trigger {
    /// At the end of every epoch.
    EveryEpoch {},
    /// After every n-th step.
    EverySteps {
        /// How many steps lie between two times.
        n: NonZeroU64,
    },
    /// When n epochs are finished.
    MaxEpoch {
        /// How many.
        n: NonZeroU64,
    },
    /// When n steps are done.
    MaxSteps {
        /// How many.
        n: NonZeroU64,
    },
    /// When the loss is below a value.
    MinLoss {
        /// The value.
        below: f64,
    },
    /// When the first metric of the validation is above a value.
    MaxScore {
        /// The value.
        above: f64,
    },
    /// When all of them fire at once; none at all never fire.
    And {
        /// The triggers.
        of: Vec<Trigger>,
    },
    /// When one of them fires.
    Or {
        /// The triggers.
        of: Vec<Trigger>,
    },
}

/// A text that describes no trigger.
#[derive(Debug, Error)]
#[error("not a trigger: {0}: write it with the classes of grampus.triggers")]
pub struct TriggerError(#[from] serde_json::Error);

impl Trigger {
    /// Reads what `grampus.triggers` writes.
    ///
    /// # Errors
    ///
    /// If the text is no JSON or describes no trigger.
    pub fn from_json(text: &str) -> Result<Self, TriggerError> {
        Ok(serde_json::from_str(text)?)
    }

    /// Why the trigger must not be used, if it waits for a score that nothing measures, or that falls as the model
    /// becomes better. `metrics` are names and directions (whether more is better), the score first.
    pub fn check_score<'a>(
        &self,
        metrics: impl IntoIterator<Item = (&'a str, Option<bool>)>,
        validates: bool,
    ) -> Result<(), String> {
        if !self.waits_for_score() {
            return Ok(());
        }
        if !validates {
            return Err("MaxScore looks at the validation, and there is none: give validation data".into());
        }
        match metrics.into_iter().next() {
            Some((name, Some(false))) => Err(format!(
                "MaxScore waits for the first metric to rise, and less of {name:?} is better: put a metric first \
                 of which more is better, or stop early by {name:?}"
            )),
            _ => Ok(()),
        }
    }

    fn waits_for_score(&self) -> bool {
        match self {
            Self::MaxScore { .. } => true,
            Self::And { of } | Self::Or { of } => of.iter().any(Self::waits_for_score),
            _ => false,
        }
    }

    /// Why the trigger fires now; `None` where it does not.
    pub fn fires(&self, now: &Progress) -> Option<String> {
        match self {
            Self::EveryEpoch {} => now.epoch_end.then(|| format!("epoch {} ended", now.epoch)),
            Self::EverySteps { n } => (now.step > 0 && now.step.is_multiple_of(n.get()))
                .then(|| format!("step {} is a multiple of {n}", now.step)),
            Self::MaxEpoch { n } => (now.epoch >= n.get()).then(|| counted(now.epoch, "epoch")),
            Self::MaxSteps { n } => (now.step >= n.get()).then(|| counted(now.step, "step")),
            Self::MinLoss { below } => now
                .loss
                .filter(|loss| loss < below)
                .map(|loss| format!("the loss {loss} is below {below}")),
            Self::MaxScore { above } => now
                .score
                .filter(|score| score > above)
                .map(|score| format!("the score {score} is above {above}")),
            Self::And { of } => {
                let reasons: Vec<_> = of.iter().map_while(|trigger| trigger.fires(now)).collect();
                (!of.is_empty() && reasons.len() == of.len()).then(|| reasons.join(" and "))
            }
            Self::Or { of } => of.iter().find_map(|trigger| trigger.fires(now)),
        }
    }
}

fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural} done")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trigger(json: &str) -> Trigger {
        Trigger::from_json(json).unwrap()
    }

    fn why(json: &str, now: Progress) -> Option<String> {
        trigger(json).fires(&now)
    }

    #[test]
    fn every_epoch_fires_at_its_end_only() {
        let end = Progress {
            epoch: 2,
            epoch_end: true,
            ..Progress::default()
        };
        assert_eq!(
            why(r#"{"kind":"every_epoch"}"#, end).as_deref(),
            Some("epoch 2 ended")
        );
        assert_eq!(
            why(
                r#"{"kind":"every_epoch"}"#,
                Progress {
                    epoch_end: false,
                    ..end
                }
            ),
            None
        );
    }

    #[test]
    fn every_steps_does_not_fire_before_the_first_step() {
        let at = |step| {
            why(
                r#"{"kind":"every_steps","n":3}"#,
                Progress {
                    step,
                    ..Progress::default()
                },
            )
            .is_some()
        };
        let fired: Vec<u64> = (0..10).filter(|&step| at(step)).collect();
        assert_eq!(fired, [3, 6, 9]);
    }

    #[test]
    fn limits_fire_from_their_value_on_and_say_so() {
        let epochs = |epoch| {
            why(
                r#"{"kind":"max_epoch","n":2}"#,
                Progress {
                    epoch,
                    ..Progress::default()
                },
            )
        };
        assert_eq!(epochs(1), None);
        assert_eq!(epochs(2).as_deref(), Some("2 epochs done"));
        assert!(epochs(3).is_some());
        let steps = |step| {
            why(
                r#"{"kind":"max_steps","n":1}"#,
                Progress {
                    step,
                    ..Progress::default()
                },
            )
        };
        assert_eq!(steps(0), None);
        assert_eq!(steps(1).as_deref(), Some("1 step done"));
    }

    #[test]
    fn values_fire_beyond_their_bound_and_never_on_nan_or_nothing() {
        let loss = |loss| {
            why(
                r#"{"kind":"min_loss","below":0.5}"#,
                Progress {
                    loss,
                    ..Progress::default()
                },
            )
        };
        assert_eq!(loss(Some(0.25)).as_deref(), Some("the loss 0.25 is below 0.5"));
        assert_eq!(loss(Some(0.5)), None);
        assert_eq!(loss(Some(f64::NAN)), None);
        assert_eq!(loss(None), None);
        let score = |score| {
            why(
                r#"{"kind":"max_score","above":0.5}"#,
                Progress {
                    score,
                    ..Progress::default()
                },
            )
        };
        assert_eq!(score(Some(0.75)).as_deref(), Some("the score 0.75 is above 0.5"));
        assert_eq!(score(Some(0.5)), None);
        assert_eq!(score(Some(f64::NAN)), None);
    }

    #[test]
    fn a_score_must_be_measured_and_rise() {
        let refused = |json: &str, metrics: &[(&'static str, Option<bool>)], validates| {
            let trigger = Trigger::from_json(json).unwrap();
            trigger.check_score(metrics.iter().copied(), validates).err()
        };
        let score = r#"{"kind":"or","of":[{"kind":"max_epoch","n":1},{"kind":"max_score","above":0.5}]}"#;
        let falls = refused(score, &[("mse", Some(false)), ("r2", Some(true))], true).unwrap();
        assert!(falls.contains("less of \"mse\" is better"), "{falls}");
        assert!(
            refused(score, &[("r2", Some(true))], false)
                .unwrap()
                .contains("validation")
        );
        assert_eq!(refused(score, &[("r2", Some(true))], true), None);
        assert_eq!(refused(score, &[("own", None)], true), None);
        assert_eq!(
            refused(r#"{"kind":"min_loss","below":1}"#, &[("mse", Some(false))], false),
            None
        );
    }

    #[test]
    fn and_gives_every_reason_and_or_the_first() {
        let both = r#"{"kind":"KIND","of":[{"kind":"max_epoch","n":1},{"kind":"max_steps","n":9}]}"#;
        let now = Progress {
            epoch: 1,
            step: 9,
            ..Progress::default()
        };
        let and = both.replace("KIND", "and");
        assert_eq!(why(&and, now).as_deref(), Some("1 epoch done and 9 steps done"));
        assert_eq!(why(&and, Progress { step: 8, ..now }), None);
        let or = both.replace("KIND", "or");
        assert_eq!(
            why(&or, Progress { epoch: 0, ..now }).as_deref(),
            Some("9 steps done")
        );
        assert_eq!(why(&or, Progress::default()), None);
        assert_eq!(why(r#"{"kind":"and","of":[]}"#, now), None);
        assert_eq!(why(r#"{"kind":"or","of":[]}"#, now), None);
    }

    #[test]
    fn what_is_no_trigger_is_an_error() {
        for json in [
            "",
            "3",
            r#"{"kind":"sometimes"}"#,
            r#"{"kind":"every_steps","n":0}"#,
            r#"{"kind":"every_steps"}"#,
            r#"{"kind":"max_epoch","n":1,"m":2}"#,
        ] {
            assert!(Trigger::from_json(json).is_err(), "{json}");
        }
    }

    fn any_trigger() -> impl Strategy<Value = Trigger> {
        let n = (1..5u64).prop_map(|n| NonZeroU64::new(n).unwrap());
        let leaf = prop_oneof![
            Just(Trigger::EveryEpoch {}),
            n.clone().prop_map(|n| Trigger::EverySteps { n }),
            n.clone().prop_map(|n| Trigger::MaxEpoch { n }),
            n.prop_map(|n| Trigger::MaxSteps { n }),
            (-1.0..1.0).prop_map(|below| Trigger::MinLoss { below }),
            (-1.0..1.0).prop_map(|above| Trigger::MaxScore { above }),
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            let of = prop::collection::vec(inner, 1..4);
            prop_oneof![
                of.clone().prop_map(|of| Trigger::And { of }),
                of.prop_map(|of| Trigger::Or { of }),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_trigger_survives_json(trigger in any_trigger()) {
            let text = serde_json::to_string(&trigger).unwrap();
            prop_assert_eq!(Trigger::from_json(&text).unwrap(), trigger);
        }
    }
}
