//! A learning rate that gets smaller when a metric no longer gets better.

use serde::{Deserialize, Serialize};

/// Cuts the rate when a metric has not got better for longer than there is patience.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plateau {
    /// The name of the metric.
    pub monitor: String,
    /// What the rate is multiplied with.
    pub factor: f64,
    /// How many scores in a row may be no better.
    pub patience: u64,
    /// Which scores are better.
    pub mode: Mode,
    /// How much better a score has to be to count as better.
    pub epsilon: f64,
    /// How many scores after a cut count for nothing.
    pub cooldown: u64,
    /// The rate is never cut below this.
    pub min_lr: f64,
}

/// Which scores are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// As the metric says, which [`Schedule::settle`](super::Schedule::settle) finds out before a run begins.
    Auto,
    /// Smaller ones, as of a loss.
    Min,
    /// Greater ones, as of an accuracy.
    Max,
}

impl Default for Plateau {
    fn default() -> Self {
        Self {
            monitor: "loss".into(),
            factor: 0.1,
            patience: 10,
            mode: Mode::Auto,
            epsilon: 1e-4,
            cooldown: 0,
            min_lr: 0.0,
        }
    }
}

impl Plateau {
    /// Looks at this metric.
    pub fn new(monitor: &str) -> Self {
        Self {
            monitor: monitor.into(),
            ..Self::default()
        }
    }

    /// The rate after so many cuts.
    pub(super) fn rate(&self, base: f64, cuts: u32) -> f64 {
        // A base that is below the least rate stays as it is.
        (base * self.factor.powf(f64::from(cuts))).max(base.min(self.min_lr))
    }

    /// Takes the direction of its metric, unless it was told one.
    pub(super) fn settle(&mut self, higher_is_better: &dyn Fn(&str) -> Option<bool>) -> Result<(), String> {
        if self.mode != Mode::Auto {
            return Ok(());
        }
        self.mode = match higher_is_better(&self.monitor) {
            Some(true) => Mode::Max,
            Some(false) => Mode::Min,
            None => {
                return Err(format!(
                    "nothing says whether more or less of {:?} is better: give the plateau the mode \"min\" or \"max\"",
                    self.monitor
                ));
            }
        };
        Ok(())
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if !(self.factor > 0.0 && self.factor < 1.0) {
            return Err(format!(
                "factor must be above 0 and below 1, it is {}",
                self.factor
            ));
        }
        if !(self.epsilon >= 0.0 && self.min_lr >= 0.0) {
            return Err("epsilon and min_lr must be 0 or more".into());
        }
        Ok(())
    }
}

/// What a plateau has seen so far; a checkpoint holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlateauState {
    settings: Plateau,
    best: Option<f64>,
    waited: u64,
    cooling: u64,
    cuts: u32,
}

impl PlateauState {
    /// Before the first score.
    pub fn new(settings: Plateau) -> Self {
        Self {
            settings,
            best: None,
            waited: 0,
            cooling: 0,
            cuts: 0,
        }
    }

    /// Looks at the next score; says whether the rate is cut now.
    pub fn observe(&mut self, score: f64) -> bool {
        if self.is_better(score) {
            self.best = Some(score);
            self.waited = 0;
        } else {
            self.waited += 1;
        }
        if self.cooling > 0 {
            self.cooling -= 1;
            self.waited = 0;
        }
        if self.waited <= self.settings.patience {
            return false;
        }
        self.waited = 0;
        self.cooling = self.settings.cooldown;
        self.cuts += 1;
        true
    }

    /// How often the rate was cut.
    pub fn cuts(&self) -> u32 {
        self.cuts
    }

    /// The best score so far.
    pub fn best(&self) -> Option<f64> {
        self.best
    }

    /// A score that is no number, or endless, is never better.
    fn is_better(&self, score: f64) -> bool {
        let Some(best) = self.best else {
            return score.is_finite();
        };
        match self.settings.mode {
            // What nobody has settled is the loss of a schedule that is used on its own.
            Mode::Min | Mode::Auto => score < best - self.settings.epsilon && score.is_finite(),
            Mode::Max => score > best + self.settings.epsilon && score.is_finite(),
        }
    }
}
