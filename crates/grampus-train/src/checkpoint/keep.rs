//! Which checkpoints may go.

use super::store::Entry;

/// How many checkpoints stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// So many of the newest; the one just written is always among them.
    pub last: usize,
    /// The names of others that stay too, such as the best.
    pub pinned: Vec<String>,
}

/// A checkpoint as a store holds it.
#[derive(Clone, Debug)]
pub struct Held {
    /// Which one.
    pub entry: Entry,
    /// Whether it has a manifest.
    pub finished: bool,
}

/// A checkpoint that may go, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surplus {
    /// Which one.
    pub name: String,
    /// Why it need not stay.
    pub reason: String,
}

/// What need not be kept, oldest first. The checkpoint that was just written stays, even where one of a later step
/// lies beside it: that is what somebody left behind who went back to an earlier step.
///
/// ```
/// use grampus_train::checkpoint::{Entry, Held, Keep, surplus};
///
/// let held: Vec<Held> = (1..=4).map(|step| Held { entry: Entry::at(step), finished: true }).collect();
/// let keep = Keep { last: 2, pinned: vec!["step-00000001".to_owned()] };
/// let gone = surplus(&held, "step-00000004", &keep);
/// assert_eq!(gone[0].name, "step-00000002");
/// assert_eq!(gone[0].reason, "it is neither one of the last 2 nor pinned");
/// assert_eq!(gone.len(), 1);
/// ```
pub fn surplus(held: &[Held], written: &str, keep: &Keep) -> Vec<Surplus> {
    let others = held.iter().filter(|one| one.entry.name != written);
    let (finished, unfinished): (Vec<&Held>, Vec<&Held>) = others.partition(|one| one.finished);
    let old = finished.len().saturating_sub(keep.last.saturating_sub(1));
    let old = finished[..old].iter().map(|one| {
        (
            one,
            format!("it is neither one of the last {} nor pinned", keep.last),
        )
    });
    let broken = unfinished
        .iter()
        .map(|one| (one, "it was never finished".to_owned()));
    let mut surplus: Vec<(&Entry, String)> = old
        .chain(broken)
        .filter(|(one, _)| !keep.pinned.contains(&one.entry.name))
        .map(|(one, reason)| (&one.entry, reason))
        .collect();
    surplus.sort();
    let named = surplus.into_iter();
    named
        .map(|(entry, reason)| Surplus {
            name: entry.name.clone(),
            reason,
        })
        .collect()
}
