//! The figures as a table.

use std::time::Duration;

use super::fault::Kind;
use super::measure::{Figures, KindTally, Tally, percentile};

const HEAD: [&str; 13] = [
    "fault",
    "count",
    "detected p50",
    "p99",
    "max",
    "recovered p50",
    "p99",
    "max",
    "all back max",
    "steps back",
    "repeated",
    "hangs",
    "equal runs",
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

fn row(kind: Kind, tally: &KindTally) -> [String; HEAD.len()] {
    let figures = &tally.figures;
    let times = |which: fn(&Figures) -> Option<Duration>| {
        let times: Vec<Duration> = figures.iter().filter_map(which).collect();
        [50, 99, 100].map(|of| seconds(&times, of))
    };
    let [d50, d99, d100] = times(|one| one.detection);
    let [r50, r99, r100] = times(|one| one.recovery);
    let [_, _, whole] = times(|one| one.whole);
    let back = figures.iter().map(|one| one.back).max().unwrap_or(0);
    let repeated: u64 = figures.iter().map(|one| one.repeated).sum();
    let hangs = figures.iter().filter(|one| one.hung).count();
    [
        kind.to_string(),
        figures.len().to_string(),
        d50,
        d99,
        d100,
        r50,
        r99,
        r100,
        whole,
        back.to_string(),
        repeated.to_string(),
        hangs.to_string(),
        format!("{}/{}", tally.equal, tally.runs),
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
            losses: 1,
            repeated: 2,
            ..Figures::default()
        };
        let hung = Figures {
            hung: true,
            ..Figures::default()
        };
        tally.add(
            &[(Kind::KillInRecovery, figures), (Kind::Pause, Figures::default())],
            true,
        );
        tally.add(&[(Kind::Pause, hung)], false);
        let lines = lines(&tally);
        assert_eq!(lines.len(), 3);
        assert!(
            lines.iter().all(|line| line.len() == lines[0].len()),
            "{lines:#?}"
        );
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        let wanted = "kill-in-recovery 1 0.020 0.020 0.020 1.234 1.234 1.234 - 0 2 0 1/1";
        assert_eq!(words.join(" "), wanted);
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(words.join(" "), "pause 2 - - - - - - - 0 0 1 1/2");
        assert_eq!((tally.faults(), tally.hangs()), (3, 1));
    }
}
