//! Bugs planted on purpose. Each is one line somewhere in the coordinator that asks [`planted`]; without
//! the feature the answer is a constant and the line is gone.

use super::state::State;

/// A mistake that the simulation must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A task whose first rank failed is resolved at once, and again when its last rank ends.
    ResolveTwice,
    /// A member whose link broke is forgotten if its exit is never reported.
    ForgetUnlinked,
    /// A replacement may take a slot whose holder is still in.
    SlotTwice,
    /// The end of an older task counts for the task that runs now.
    StaleCounts,
    /// A member given up as silent is not ended.
    LostLivesOn,
    /// Waiting for a replacement has no deadline.
    FormForEver,
    /// Ranks of a patient task have no deadline to notice that another was lost.
    LeaveForEver,
    /// Ranks of a patient task are told to end as soon as another is lost.
    Impatient,
    /// An elastic task begins with fewer ranks than it needs.
    TooFew,
    /// An elastic task never hears of members that came after it began.
    NeverGrows,
}

impl Bug {
    /// All of them.
    #[cfg(feature = "planted-bugs")]
    pub const ALL: [Bug; 10] = [
        Bug::ResolveTwice,
        Bug::ForgetUnlinked,
        Bug::SlotTwice,
        Bug::StaleCounts,
        Bug::LostLivesOn,
        Bug::FormForEver,
        Bug::LeaveForEver,
        Bug::Impatient,
        Bug::TooFew,
        Bug::NeverGrows,
    ];
}

#[cfg(feature = "planted-bugs")]
pub(super) fn planted(state: &State, bug: Bug) -> bool {
    state.options.bug == Some(bug)
}

#[cfg(not(feature = "planted-bugs"))]
pub(super) fn planted(_: &State, _: Bug) -> bool {
    false
}
