//! One line of the doctor's report.

use serde_json::{Value, json};

use crate::cli::terminal::{Style, Terminal, one_line};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// Good to know.
    Note,
    /// Some jobs will have trouble.
    Warn,
    /// Jobs cannot run.
    Fail,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Warn => "warn",
            Level::Fail => "fail",
        }
    }

    fn style(self) -> Style {
        match self {
            Level::Ok => Style::Good,
            Level::Note => Style::Quiet,
            Level::Warn => Style::Warning,
            Level::Fail => Style::Bad,
        }
    }
}

/// What was looked at, what was found, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Check {
    pub name: &'static str,
    pub level: Level,
    pub found: String,
    /// Empty where nothing is to be done.
    pub advice: String,
}

impl Check {
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Level::Ok, found, "")
    }

    pub(super) fn note(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Level::Note, found, "")
    }

    pub(super) fn warn(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(name, Level::Warn, found, advice)
    }

    pub(super) fn fail(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(name, Level::Fail, found, advice)
    }

    fn new(name: &'static str, level: Level, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            name,
            level,
            found: one_line(&found.into()),
            advice: advice.into(),
        }
    }

    fn json(&self) -> Value {
        let advice = (!self.advice.is_empty()).then_some(&self.advice);
        json!({"name": self.name, "level": self.level.word(), "found": self.found, "advice": advice})
    }
}

/// For people.
pub(super) fn text(checks: &[Check], terminal: &Terminal) -> String {
    let widest = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let indent = "warn".len() + 2 + widest + 2;
    let space = " ".repeat(indent);
    let mut lines = Vec::new();
    for check in checks {
        let level = format!("{:<4}", check.level.word());
        let level = terminal.paint(check.level.style(), &level);
        let mut found = terminal.wrap(&check.found, indent).into_iter();
        let first = found.next().unwrap_or_default();
        lines.push(format!("{level}  {:<widest$}  {first}", check.name));
        lines.extend(found.map(|more| format!("{space}{more}")));
        if !check.advice.is_empty() {
            // The arrow hangs before the words.
            let advice = terminal.wrap(&check.advice, indent + 2);
            let marks = std::iter::once("→ ").chain(std::iter::repeat("  "));
            lines.extend(
                advice
                    .iter()
                    .zip(marks)
                    .map(|(line, mark)| format!("{space}{mark}{line}")),
            );
        }
    }
    lines.push(String::new());
    lines.push(summary(checks));
    lines.join("\n") + "\n"
}

fn summary(checks: &[Check]) -> String {
    let count = |level| checks.iter().filter(|check| check.level == level).count();
    let words = |number: usize, what: &str| match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    };
    match (count(Level::Fail), count(Level::Warn)) {
        (0, 0) => "nothing would go wrong here".to_owned(),
        (0, warnings) => format!("jobs can run here, with {}", words(warnings, "warning")),
        (failures, 0) => format!("jobs cannot run here: {}", words(failures, "failure")),
        (failures, warnings) => {
            let (failures, warnings) = (words(failures, "failure"), words(warnings, "warning"));
            format!("jobs cannot run here: {failures}, {warnings}")
        }
    }
}

/// For programs.
pub(super) fn report(checks: &[Check]) -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "ok": passed(checks),
        "checks": checks.iter().map(Check::json).collect::<Vec<_>>(),
    })
}

/// No check fails.
pub(super) fn passed(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.level < Level::Fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Vec<Check> {
        vec![
            Check::ok("kernel", "6.1"),
            Check::warn(
                "open files",
                "the limit is 256, enough for 48 workers",
                "run `ulimit -n 4096`",
            ),
        ]
    }

    #[test]
    fn a_report_lines_up_and_ends_with_a_sentence() {
        let narrow = Terminal {
            width: Some(44),
            ..Terminal::default()
        };
        let wanted = "\
ok    kernel      6.1
warn  open files  the limit is 256, enough
                  for 48 workers
                  → run `ulimit -n 4096`

jobs can run here, with 1 warning
";
        assert_eq!(text(&some(), &narrow), wanted);
    }

    #[test]
    fn only_failures_fail() {
        assert!(passed(&some()));
        assert_eq!(summary(&some()[..1]), "nothing would go wrong here");
        let mut checks = some();
        checks.push(Check::fail("memory", "none", "buy some"));
        assert!(!passed(&checks));
        assert_eq!(summary(&checks), "jobs cannot run here: 1 failure, 1 warning");
        let report = report(&checks);
        assert_eq!(report["ok"], false);
        assert_eq!(report["checks"][0]["advice"], Value::Null);
        assert_eq!(report["checks"][2]["level"], "fail");
    }
}
