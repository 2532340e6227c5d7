//! What the ledger of a run says: which steps were begun again, and the verdict of `grampus audit`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::run::Rows;

/// A step: its epoch, and its number in that.
type StepPlace = (u64, u64);

#[derive(Deserialize)]
struct Line {
    begun: Option<Begun>,
}

#[derive(Deserialize)]
struct Begun {
    at: StepPlace,
}

/// How often the workers were called for a run.
pub(super) fn attempts(run: &Path) -> u64 {
    files(run).map(|(attempt, _)| attempt).max().unwrap_or(0)
}

/// How many of the steps that an attempt began had been begun before, attempt by attempt.
pub(super) fn repeated(run: &Path) -> BTreeMap<u64, u64> {
    let mut begun: BTreeMap<u64, BTreeSet<StepPlace>> = BTreeMap::new();
    for (attempt, text) in files(run) {
        // The last line may have been cut off.
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Line>(line).ok());
        let places = lines.filter_map(|line| line.begun.map(|begun| begun.at));
        begun.entry(attempt).or_default().extend(places);
    }
    let mut before = BTreeSet::new();
    let again = begun.into_iter().map(|(attempt, places)| {
        let count = places.intersection(&before).count() as u64;
        before.extend(places);
        (attempt, count)
    });
    again.collect()
}

fn files(run: &Path) -> impl Iterator<Item = (u64, String)> {
    let entries = fs::read_dir(run.join("audit")).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let attempt = name.strip_prefix("attempt-")?.split('-').next()?.parse().ok()?;
        Some((attempt, fs::read_to_string(entry.path()).ok()?))
    })
}

/// Rows that were lost and doubled by the verdict of `grampus audit`, or what it says where that is no proof.
pub(super) fn audit(python: &Path, run: &Path) -> (Rows, Result<(), String>) {
    let mut command = Command::new(python);
    command
        .args(["-m", "grampus", "audit"])
        .arg(run)
        .stdin(Stdio::null());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return (Rows::default(), Err(error.to_string())),
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let verdict = match output.status.success() {
        true => Ok(()),
        false => Err(format!("{said}\n{}", String::from_utf8_lossy(&output.stderr))),
    };
    (rows(&said), verdict)
}

/// The sums of the columns LOST and DOUBLED.
fn rows(table: &str) -> Rows {
    let mut rows = Rows::default();
    let mut lines = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let heads = lines.next().unwrap_or_default();
    let column = |name: &str| heads.iter().position(|head| *head == name);
    let (Some(lost), Some(doubled)) = (column("LOST"), column("DOUBLED")) else {
        return rows;
    };
    for words in lines {
        // A line of the table has a number under each head before the notes; other lines are sentences.
        let numbers: Option<Vec<u64>> = words
            .get(..=lost.max(doubled))
            .and_then(|words| words.iter().map(|word| word.parse().ok()).collect());
        if let Some(numbers) = numbers {
            rows.lost += numbers[lost];
            rows.doubled += numbers[doubled];
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_begun_in_two_attempts_is_repeated_in_the_second() {
        let run = tempfile::tempdir().unwrap();
        fs::create_dir(run.path().join("audit")).unwrap();
        let write = |attempt: u64, rank: u64, steps: &[u64]| {
            let begun = |step: &u64| format!("{{\"begun\":{{\"at\":[1,{step}],\"parts\":[]}}}}\n");
            let text: String = steps.iter().map(begun).collect();
            let name = format!("audit/attempt-{attempt:04}-rank-{rank}.jsonl");
            let head = "{\"head\":{\"format\":1}}\n";
            fs::write(run.path().join(name), format!("{head}{text}{{\"begun\":{{\"a")).unwrap();
        };
        write(1, 0, &[0, 1, 2]);
        write(1, 1, &[0, 1]);
        write(2, 0, &[]);
        write(3, 0, &[2, 3]);
        write(3, 1, &[2, 3]);
        assert_eq!(attempts(run.path()), 3);
        assert_eq!(repeated(run.path()), BTreeMap::from([(1, 0), (2, 0), (3, 1)]));
    }

    #[test]
    fn lost_and_doubled_rows_are_those_of_all_epochs() {
        let table = "EPOCH  ROWS  STEPS  LANES  BEGUN  LOST  DOUBLED  NOTE\n    1    96      8      3     10     2        0\n    \
                     2    96      8      3      8     1        3  7 left out\n2 rows 3 4 5 6 7 too few";
        assert_eq!(rows(table), Rows { lost: 3, doubled: 3 });
        assert_eq!(rows("nothing was written"), Rows::default());
    }
}
