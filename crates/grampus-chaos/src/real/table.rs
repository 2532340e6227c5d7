//! The figures as a table.

use std::time::Duration;

use super::fault::Kind;
use super::measure::{Figures, Tally, percentile};

const HEAD: [&str; 9] = [
    "fault",
    "count",
    "detected p50",
    "p99",
    "max",
    "recovered p50",
    "p99",
    "max",
    "steps back",
];

/// One line for each kind of fault, under a head. Times are in seconds.
pub fn lines(tally: &Tally) -> Vec<String> {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(tally.kinds().map(|(kind, figures)| row(kind, figures)));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; HEAD.len()] = std::array::from_fn(width);
    let line = |row: &[String; HEAD.len()]| {
        let cells = row.iter().zip(widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ")
    };
    rows.iter().map(line).collect()
}

fn row(kind: Kind, figures: &[Figures]) -> [String; HEAD.len()] {
    let detection: Vec<Duration> = figures.iter().filter_map(|one| one.detection).collect();
    let recovery: Vec<Duration> = figures.iter().filter_map(|one| one.recovery).collect();
    let back = figures.iter().map(|one| one.back).max().unwrap_or(0);
    let [detected, recovered] =
        [detection, recovery].map(|times| [50, 99, 100].map(|of| seconds(&times, of)));
    let [d50, d99, d100] = detected;
    let [r50, r99, r100] = recovered;
    let count = figures.len().to_string();
    [
        kind.to_string(),
        count,
        d50,
        d99,
        d100,
        r50,
        r99,
        r100,
        back.to_string(),
    ]
}

fn seconds(times: &[Duration], of_hundred: usize) -> String {
    let time = percentile(times, of_hundred);
    time.map_or_else(|| "-".to_owned(), |time| format!("{:.3}", time.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_stand_under_their_heads() {
        let mut tally = Tally::default();
        let figures = Figures {
            detection: Some(Duration::from_millis(20)),
            recovery: Some(Duration::from_millis(1234)),
            back: 0,
            losses: 1,
        };
        tally.add(Kind::KillInRecovery, figures);
        tally.add(Kind::Pause, Figures::default());
        let lines = lines(&tally);
        assert_eq!(lines.len(), 3);
        assert!(
            lines.iter().all(|line| line.len() == lines[0].len()),
            "{lines:#?}"
        );
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(
            words,
            [
                "kill-in-recovery",
                "1",
                "0.020",
                "0.020",
                "0.020",
                "1.234",
                "1.234",
                "1.234",
                "0"
            ]
        );
        assert_eq!(lines[1].split_whitespace().nth(2), Some("-"));
        assert_eq!(tally.faults(), 2);
    }
}
