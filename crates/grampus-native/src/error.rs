//! What can be wrong with a model, or with what it is given.

/// What can go wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NativeError {
    /// The description of a model says something that cannot be.
    #[error("{0}")]
    Description(String),
    /// What comes into a layer is not what it needs.
    #[error("layer {layer} ({kind}): {reason}")]
    Shape {
        /// Its name.
        layer: String,
        /// What it is, such as `Linear(784, 512)`.
        kind: String,
        /// What came in, and what it needs.
        reason: String,
    },
    /// What comes into the model does not fit it.
    #[error("{0}")]
    Input(String),
    /// A value that cannot be: which row it is in, counted from the first of the batch.
    #[error("row {row} of the batch: {reason}")]
    Row {
        /// Which row of the batch.
        row: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// Weights that do not fit the model.
    #[error("{0}")]
    Weights(String),
}

/// The one of some names that is most like another, if any is like it.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let found = known
        .into_iter()
        .map(|other| (distance(name, other), other))
        .min()?;
    (found.0 <= name.chars().count().max(3) / 2).then_some(found.1)
}

/// How many letters have to be changed, added or removed, whatever their case.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.to_lowercase().chars().enumerate() {
        let mut before = row[0];
        row[0] = index + 1;
        for (place, wanted) in other.iter().enumerate() {
            let changed = before + usize::from(letter != *wanted);
            before = row[place + 1];
            row[place + 1] = changed.min(before + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}
