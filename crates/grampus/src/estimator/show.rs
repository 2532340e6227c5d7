//! Progress, for whoever looks at a terminal.

use std::io::{self, IsTerminal, Write};

use grampus_train::native::Event;

use super::history::told;

/// A line that is written again and again while an epoch goes on, and one that stays at its end.
pub(super) struct Show {
    quiet: bool,
    terminal: bool,
    steps: Option<u64>,
    epochs: Option<u64>,
}

impl Show {
    pub fn new(quiet: bool) -> Self {
        Self {
            quiet,
            terminal: io::stderr().is_terminal(),
            steps: None,
            epochs: None,
        }
    }

    pub fn note(&self, text: &str) {
        self.line(&format!("grampus: {text}"));
    }

    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Begin {
                epochs,
                steps,
                samples,
                workers,
                at,
                losses,
            } => {
                (self.epochs, self.steps) = (*epochs, *steps);
                let workers = counted(*workers as u64, "worker");
                if *losses > 0 {
                    return self.note(&format!("training goes on from step {} on {workers}", at.step));
                }
                let rows = samples.map_or(String::new(), |rows| format!(" on {}", counted(rows, "row")));
                let from = match at.step {
                    0 => String::new(),
                    step => format!(" from step {step}"),
                };
                self.note(&format!("training{rows} with {workers}{from}"));
            }
            Event::Steps { at, losses } if self.terminal && !self.quiet => {
                let loss = losses.last().and_then(|(_, loss)| *loss).unwrap_or(f64::NAN);
                let of = |most: Option<u64>| most.map_or(String::new(), |most| format!("/{most}"));
                let speed = at.rows as f64 / at.seconds.max(1e-9);
                // A closed console is no reason to end the run.
                let _ = write!(
                    io::stderr(),
                    "\r\x1b[Kepoch {}{}  step {}{}  loss {loss:.4}  {speed:.0} rows/s",
                    at.epoch + 1,
                    of(self.epochs),
                    at.step_in_epoch,
                    of(self.steps)
                );
            }
            Event::Epoch { record } => self.line(&told(record)),
            Event::Note { text } => self.note(text),
            _ => {}
        }
    }

    fn line(&self, text: &str) {
        if self.quiet {
            return;
        }
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        let _ = writeln!(io::stderr(), "{clear}{text}");
    }
}

fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}
