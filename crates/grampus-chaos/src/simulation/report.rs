//! How a broken invariant is told.

use std::error::Error;
use std::fmt;

/// Steps shown before the one that broke the invariant.
const SHOWN: usize = 30;

/// Which invariant broke, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// `CO-1` to `CO-13`.
    pub id: &'static str,
    /// What was seen.
    pub what: String,
}

impl Violation {
    pub(super) fn new(id: &'static str, what: impl Into<String>) -> Self {
        Self {
            id,
            what: what.into(),
        }
    }
}

/// Fails with the sentence unless the condition holds.
pub(super) fn hold(
    condition: bool,
    id: &'static str,
    what: impl FnOnce() -> String,
) -> Result<(), Violation> {
    if condition {
        Ok(())
    } else {
        Err(Violation::new(id, what()))
    }
}

/// A seed that broke an invariant.
#[derive(Debug)]
pub struct Broken {
    /// The seed.
    pub seed: u64,
    /// What broke.
    pub violation: Violation,
    /// Every step until then.
    pub steps: Vec<String>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { id, what } = &self.violation;
        writeln!(f, "seed {} broke {id}: {what}", self.seed)?;
        let skipped = self.steps.len().saturating_sub(SHOWN);
        writeln!(f, "the last of {} steps:", self.steps.len())?;
        for step in &self.steps[skipped..] {
            writeln!(f, "  {step}")?;
        }
        write!(
            f,
            "repeat it with: GRAMPUS_SEED={} cargo test -p grampus-chaos one_seed -- --nocapture",
            self.seed
        )
    }
}

impl Error for Broken {}
