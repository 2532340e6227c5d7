//! One cycle of learning rates.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

/// From a small rate up to the greatest, and down to almost nothing, both along a cosine. The base counts for
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneCycle {
    /// The greatest rate.
    pub max_lr: f64,
    /// How many steps the cycle has.
    pub total_steps: u64,
    /// Which share of them goes up.
    #[serde(default = "pct_start")]
    pub pct_start: f64,
    /// How much smaller than the greatest the first rate is.
    #[serde(default = "div_factor")]
    pub div_factor: f64,
    /// How much smaller than the first the last rate is.
    #[serde(default = "final_div_factor")]
    pub final_div_factor: f64,
}

fn pct_start() -> f64 {
    0.3
}

fn div_factor() -> f64 {
    25.0
}

fn final_div_factor() -> f64 {
    1e4
}

impl OneCycle {
    /// With PyTorch's defaults for the rest.
    pub fn new(max_lr: f64, total_steps: u64) -> Self {
        Self {
            max_lr,
            total_steps,
            pct_start: pct_start(),
            div_factor: div_factor(),
            final_div_factor: final_div_factor(),
        }
    }

    pub(super) fn rate(&self, step: u64) -> f64 {
        let end = self.total_steps as f64 - 1.0;
        let step = (step as f64).min(end);
        let top = self.pct_start * self.total_steps as f64 - 1.0;
        let first = self.max_lr / self.div_factor;
        if step < top {
            return between(first, self.max_lr, step / top);
        }
        between(
            self.max_lr,
            first / self.final_div_factor,
            (step - top) / (end - top),
        )
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let positive = [self.max_lr, self.div_factor, self.final_div_factor];
        if positive
            .iter()
            .any(|number| !number.is_finite() || *number <= 0.0)
            || self.total_steps == 0
        {
            return Err("max_lr, total_steps, div_factor and final_div_factor must be above 0".into());
        }
        if !(0.0..1.0).contains(&self.pct_start) {
            return Err(format!(
                "pct_start must be 0 or more and below 1, it is {}",
                self.pct_start
            ));
        }
        Ok(())
    }
}

/// Along half a wave of a cosine.
fn between(start: f64, end: f64, share: f64) -> f64 {
    end + (start - end) / 2.0 * ((PI * share).cos() + 1.0)
}
