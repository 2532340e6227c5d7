//! Everyone waits for everyone.

use super::{Deck, Exchange, Step};
use crate::CollectiveError;

#[derive(Default)]
pub(crate) struct Barrier {
    met: bool,
}

impl Exchange for Barrier {
    fn step(&mut self, _: &mut Deck<'_>) -> Result<Step, CollectiveError> {
        if self.met {
            return Ok(Step::Done);
        }
        self.met = true;
        Ok(Step::Meet)
    }
}
