//! Options of metrics by name.

use std::collections::BTreeMap;
use std::fmt;

use super::error::MetricError;
use super::groups::{Groups, Recommended};
use super::ratio::Average;

/// The value of an option.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// Yes or no.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// A number.
    Number(f64),
    /// A word.
    Text(String),
}

impl fmt::Display for Setting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(formatter, "{flag}"),
            Self::Whole(whole) => write!(formatter, "{whole}"),
            Self::Number(number) => write!(formatter, "{number}"),
            Self::Text(text) => write!(formatter, "{text:?}"),
        }
    }
}

/// The options of one metric, taken one by one; what is left at the end, it does not have.
pub(super) struct Options<'a> {
    metric: &'a str,
    left: BTreeMap<String, Setting>,
}

impl<'a> Options<'a> {
    pub fn new(metric: &'a str, given: &BTreeMap<String, Setting>) -> Self {
        Self {
            metric,
            left: given.clone(),
        }
    }

    pub fn flag(&mut self, name: &str, default: bool) -> Result<bool, MetricError> {
        match self.left.remove(name) {
            None => Ok(default),
            Some(Setting::Flag(flag)) => Ok(flag),
            Some(other) => Err(self.refuse(name, &other, "true or false")),
        }
    }

    /// A whole number from `least` on.
    pub fn count(&mut self, name: &str, default: u32, least: u32) -> Result<u32, MetricError> {
        match self.left.remove(name) {
            None => Ok(default),
            Some(setting) => whole(&setting, least)
                .ok_or_else(|| self.refuse(name, &setting, &format!("a whole number {}", range(least)))),
        }
    }

    /// A whole number from `least` on, which must be given.
    pub fn needed_count(&mut self, name: &str, least: u32) -> Result<u32, MetricError> {
        if !self.left.contains_key(name) {
            return Err(MetricError::Missing {
                metric: self.metric.to_owned(),
                option: name.to_owned(),
            });
        }
        self.count(name, least, least)
    }

    /// A whole number from `least` on, or -1 for none.
    pub fn count_or_none(&mut self, name: &str, least: u32) -> Result<Option<u32>, MetricError> {
        match self.left.remove(name) {
            None | Some(Setting::Whole(-1)) => Ok(None),
            Some(setting) => match whole(&setting, least) {
                None => {
                    let needs = format!("a whole number {}, or -1", range(least));
                    Err(self.refuse(name, &setting, &needs))
                }
                count => Ok(count),
            },
        }
    }

    /// A number above 0 and up to 1.
    pub fn share(&mut self, name: &str, default: f64) -> Result<f64, MetricError> {
        let share = self.number(name, default)?;
        if share > 0.0 && share <= 1.0 {
            return Ok(share);
        }
        Err(self.refuse(name, &Setting::Number(share), "a number above 0 and up to 1"))
    }

    pub fn number(&mut self, name: &str, default: f64) -> Result<f64, MetricError> {
        match self.left.remove(name) {
            None => Ok(default),
            Some(Setting::Whole(whole)) => Ok(whole as f64),
            Some(Setting::Number(number)) if !number.is_nan() => Ok(number),
            Some(other) => Err(self.refuse(name, &other, "a number")),
        }
    }

    pub fn average(&mut self) -> Result<Average, MetricError> {
        let setting = match self.left.remove("average") {
            None => return Ok(Average::Binary),
            Some(setting) => setting,
        };
        match &setting {
            Setting::Text(text) if text == "binary" => Ok(Average::Binary),
            Setting::Text(text) if text == "micro" => Ok(Average::Micro),
            Setting::Text(text) if text == "macro" => Ok(Average::Macro),
            _ => Err(self.refuse("average", &setting, "\"binary\", \"micro\" or \"macro\"")),
        }
    }

    pub fn groups(&mut self, kind: Recommended) -> Result<Groups, MetricError> {
        Ok(Groups {
            kind,
            first: self.count("k", 10, 1)?,
            negatives: self.count("neg_num", 100, 1)?,
        })
    }

    pub fn end(self) -> Result<(), MetricError> {
        match self.left.first_key_value() {
            Some((name, setting)) => Err(self.refuse(name, setting, "other options, or none")),
            None => Ok(()),
        }
    }

    fn refuse(&self, option: &str, value: &Setting, needs: &str) -> MetricError {
        MetricError::Option {
            metric: self.metric.to_owned(),
            option: option.to_owned(),
            value: value.to_string(),
            needs: needs.to_owned(),
        }
    }
}

fn whole(setting: &Setting, least: u32) -> Option<u32> {
    match setting {
        Setting::Whole(whole) => u32::try_from(*whole).ok().filter(|count| *count >= least),
        _ => None,
    }
}

fn range(least: u32) -> String {
    format!("from {least} to {}", u32::MAX)
}
