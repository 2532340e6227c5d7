//! What came out of training.

use std::fmt;

use grampus_train::fit::Record;

/// One record for each epoch, and why training ended.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// What came out of each epoch.
    pub epochs: Vec<Record>,
    /// Why it ended.
    pub reason: String,
    /// Workers that were lost and replaced.
    pub losses: u32,
}

impl History {
    /// The last value of a name, such as `loss` or `val_accuracy`.
    pub fn last(&self, name: &str) -> Option<f64> {
        self.epochs.last().and_then(|record| record.get(name))
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for record in &self.epochs {
            writeln!(f, "{}", told(record))?;
        }
        write!(f, "{}", self.reason)
    }
}

/// An epoch in one line: what was measured, then how fast it went.
pub(super) fn told(record: &Record) -> String {
    let value = |name: &str| record.get(name).unwrap_or(f64::NAN);
    let mut text = format!("epoch {:>3}", value("epoch"));
    for (name, value) in &record.values {
        let aside = [
            "epoch",
            "samples",
            "steps",
            "seconds",
            "samples_per_second",
            "data_wait",
            "learning_rate",
            "val_num_samples",
        ];
        if !aside.contains(&name.as_str()) {
            text += &format!("  {name} {value:.4}");
        }
    }
    text + &format!(
        "  {:.1} s  {:.0} rows/s",
        value("seconds"),
        value("samples_per_second")
    )
}
