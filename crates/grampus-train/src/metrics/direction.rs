//! Which way a value in the record of an epoch becomes better.

/// What stands before the name of a value that was measured on validation data.
pub const VALIDATED: &str = "val_";

/// Whether more of the value of this name is better; `None` where nothing says so.
///
/// `metric` gives the direction of the metric of a name, and `None` where there is no such metric. Of all other
/// values, only losses have a direction.
///
/// ```
/// use grampus_train::metrics::higher_is_better;
///
/// let metric = |name: &str| (name == "accuracy").then_some(Some(true));
/// assert_eq!(higher_is_better("val_accuracy", metric), Some(true));
/// assert_eq!(higher_is_better("val_loss", metric), Some(false));
/// assert_eq!(higher_is_better("speed", metric), None);
/// ```
pub fn higher_is_better(name: &str, metric: impl Fn(&str) -> Option<Option<bool>>) -> Option<bool> {
    let bare = name.strip_prefix(VALIDATED).unwrap_or(name);
    match metric(bare).or_else(|| metric(name)) {
        Some(direction) => direction,
        None => is_loss(bare).then_some(false),
    }
}

/// Whether "loss" is one of the words of a name, such as `train_loss` or `loss/box`.
fn is_loss(name: &str) -> bool {
    name.split(|letter: char| !letter.is_alphanumeric())
        .any(|word| word.eq_ignore_ascii_case("loss"))
}
