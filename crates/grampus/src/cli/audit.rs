//! `grampus audit`: what the ledger of a run proves.

use std::path::PathBuf;

use clap::Args;
use grampus_train::ledger::{self, Audit, EpochAudit};
use serde_json::json;

use super::table::{Align, Table};
use super::terminal::{Style, Terminal, put};

/// Faults that are shown; all of them are in the JSON.
const SHOWN: usize = 20;

/// Exit codes: 0 where each row was used once per epoch, 1 where not, or where there is no ledger to read.
#[derive(Args)]
pub(super) struct AuditArguments {
    /// The folder of the run: `model_dir`, or one under `grampus_runs`
    run: PathBuf,
    /// Print the audit as JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Runs it; returns the exit code.
pub(super) fn main(arguments: &AuditArguments) -> i32 {
    let audit = match ledger::read(&arguments.run) {
        Ok(pages) => ledger::audit(&pages),
        Err(error) => return super::fail(&error.to_string()),
    };
    let text = if arguments.json {
        as_json(&audit)
    } else {
        lines(&audit, &Terminal::of_output()).join("\n")
    };
    put(&(text + "\n"), i32::from(!audit.is_proof()))
}

fn as_json(audit: &Audit) -> String {
    let faults: Vec<String> = audit.faults.iter().map(ToString::to_string).collect();
    let all = json!({
        "proof": audit.is_proof(),
        "verdict": verdict(audit),
        "attempts": audit.attempts,
        "epochs": audit.epochs,
        "faults": faults,
    });
    format!("{all:#}")
}

fn lines(audit: &Audit, terminal: &Terminal) -> Vec<String> {
    let (head, rows) = table(&audit.epochs).lines(terminal.width);
    let mut lines = vec![terminal.paint(Style::Quiet, &head)];
    lines.extend(rows);
    lines.extend(audit.faults.iter().take(SHOWN).map(ToString::to_string));
    let more = audit.faults.len().saturating_sub(SHOWN);
    if more > 0 {
        lines.push(format!("and {more} more, shown by --json"));
    }
    let style = if audit.is_proof() { Style::Good } else { Style::Bad };
    lines.push(terminal.paint(style, &verdict(audit)));
    lines
}

fn table(epochs: &[EpochAudit]) -> Table<8> {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("EPOCH", Right),
        ("ROWS", Right),
        ("STEPS", Right),
        ("LANES", Right),
        ("BEGUN", Right),
        ("LOST", Right),
        ("DOUBLED", Right),
        ("NOTE", Left),
    ]);
    for epoch in epochs {
        let number = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        table.push([
            epoch.epoch.to_string(),
            epoch.rows.to_string(),
            epoch.steps.to_string(),
            epoch.lanes.to_string(),
            epoch.begun.to_string(),
            number(epoch.lost),
            number(epoch.doubled),
            note(epoch),
        ]);
    }
    table
}

/// What the numbers do not say.
fn note(epoch: &EpochAudit) -> String {
    let mut notes = Vec::new();
    if !epoch.ended {
        let of = epoch.expected.map(|rows| format!(", of {rows} rows"));
        notes.push(format!("cut off{}", of.unwrap_or_default()));
    }
    if epoch.left_out > 0 {
        notes.push(format!("{} bad rows left out", epoch.left_out));
    }
    if epoch.lost.is_none() {
        notes.push("lanes read for themselves: their rows have no numbers".into());
    }
    notes.join("; ")
}

/// One sentence over all epochs.
fn verdict(audit: &Audit) -> String {
    let sum = |of: fn(&EpochAudit) -> u64| audit.epochs.iter().map(of).fold(0, u64::saturating_add);
    let steps = sum(|epoch| epoch.steps);
    let repeated = sum(|epoch| epoch.begun).saturating_sub(steps);
    let so_much = format!(
        "{}, {}, {} in {}, {repeated} repeated",
        counted(audit.epochs.len() as u64, "epoch"),
        counted(sum(|epoch| epoch.rows), "row"),
        counted(steps, "step"),
        counted(audit.attempts as u64, "attempt"),
    );
    if audit.is_proof() && audit.epochs.iter().any(|epoch| epoch.lost.is_none()) {
        return format!("each step once, with all lanes; rows have no numbers: {so_much}");
    }
    if audit.is_proof() {
        return format!("each row once per epoch, none lost, none doubled: {so_much}");
    }
    let lost = sum(|epoch| epoch.lost.unwrap_or(0));
    let doubled = sum(|epoch| epoch.doubled.unwrap_or(0));
    format!("not proven, {lost} lost, {doubled} doubled: {so_much}")
}

fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use grampus_train::ledger::Fault;

    use super::*;

    fn epoch() -> EpochAudit {
        EpochAudit {
            epoch: 1,
            rows: 96,
            left_out: 0,
            expected: Some(96),
            steps: 8,
            begun: 9,
            lanes: 3,
            ended: true,
            lost: Some(0),
            doubled: Some(0),
        }
    }

    fn shown(audit: &Audit) -> Vec<String> {
        lines(audit, &Terminal::default())
    }

    #[test]
    fn a_proof_is_a_table_and_a_sentence() {
        let cut = EpochAudit {
            epoch: 2,
            rows: 30,
            left_out: 2,
            steps: 3,
            begun: 3,
            ended: false,
            ..epoch()
        };
        let audit = Audit {
            epochs: vec![epoch(), cut],
            attempts: 2,
            faults: Vec::new(),
        };
        assert_eq!(
            shown(&audit),
            [
                "EPOCH  ROWS  STEPS  LANES  BEGUN  LOST  DOUBLED  NOTE",
                "    1    96      8      3      9     0        0",
                "    2    30      3      3      3     0        0  cut off, of 96 rows; 2 bad rows left out",
                "each row once per epoch, none lost, none doubled: 2 epochs, 126 rows, 11 steps in 2 attempts, 1 repeated",
            ]
        );
    }

    #[test]
    fn faults_are_named_and_counted() {
        let fault = |first| Fault::Lost {
            epoch: 0,
            what: "row",
            first,
            end: first + 1,
        };
        let audit = Audit {
            epochs: vec![EpochAudit {
                lost: Some(22),
                doubled: None,
                ..epoch()
            }],
            attempts: 1,
            faults: (0..22).map(fault).collect(),
        };
        let seen = shown(&audit);
        assert_eq!(seen[2], "epoch 1: row 0 was not used");
        assert_eq!(seen[2 + SHOWN], "and 2 more, shown by --json");
        assert!(seen[3 + SHOWN].starts_with("not proven, 22 lost, 0 doubled: 1 epoch"));
        let told: serde_json::Value = serde_json::from_str(&as_json(&audit)).unwrap();
        assert_eq!(told["faults"].as_array().unwrap().len(), 22);
        assert_eq!(
            (&told["proof"], &told["epochs"][0]["begun"]),
            (&json!(false), &json!(9))
        );
    }
}
