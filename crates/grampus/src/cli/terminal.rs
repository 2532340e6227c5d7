//! Where a command's output goes: how wide it is, whether it shows colours, and text cut to fit it.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use rustix::termios::tcgetwinsize;
use rustix::time::Timespec;

/// What a piece of text means to the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Good,
    Warning,
    Bad,
    Quiet,
    /// The rank that wrote a line.
    Rank(u32),
}

/// One colour a rank, in turn, the same as on the driver's console; none of them is red, which means an error.
const RANKS: [u8; 5] = [36, 33, 35, 32, 34];

/// Standard output.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Terminal {
    /// Columns; none where lines may be of any length, as in a pipe.
    pub width: Option<usize>,
    /// Rows, likewise.
    pub height: Option<usize>,
    /// Colours are shown.
    pub colours: bool,
}

impl Terminal {
    pub(super) fn of_output() -> Self {
        let output = io::stdout();
        if !output.is_terminal() {
            return Self::default();
        }
        let size = tcgetwinsize(&output).map_or((0, 0), |size| (size.ws_col, size.ws_row));
        // Some terminals do not know how large they are.
        let (columns, rows) = if size.0 == 0 || size.1 == 0 {
            (80, 24)
        } else {
            size
        };
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
        Self {
            width: Some(columns.into()),
            height: Some(rows.into()),
            colours: !set("NO_COLOR") && !dumb,
        }
    }

    pub(super) fn paint(&self, style: Style, text: &str) -> String {
        if !self.colours || text.is_empty() {
            return text.to_owned();
        }
        let code = match style {
            Style::Good => 32,
            Style::Warning => 33,
            Style::Bad => 31,
            Style::Quiet => 2,
            Style::Rank(rank) => RANKS[rank as usize % RANKS.len()],
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// Lines of at most the terminal's width, behind so many spaces.
    pub(super) fn wrap(&self, text: &str, indent: usize) -> Vec<String> {
        let room = self
            .width
            .map_or(usize::MAX, |width| width.saturating_sub(indent).max(20));
        let mut lines = vec![String::new()];
        for word in text.split_whitespace() {
            let last = lines.len() - 1;
            if lines[last].is_empty() {
                lines[last].push_str(word);
            } else if lines[last].chars().count() + 1 + word.chars().count() <= room {
                lines[last].push(' ');
                lines[last].push_str(word);
            } else {
                lines.push(word.to_owned());
            }
        }
        lines
    }
}

/// The first characters of a text, and a sign that there were more.
pub(super) fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// One line that cannot move the cursor: what others wrote stands in titles and names.
pub(super) fn one_line(text: &str) -> String {
    let visible = text
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter });
    visible
        .collect::<String>()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Writes to standard output; returns the exit code. A reader that has seen enough, such as `head`, is no error.
pub(super) fn put(text: &str, code: i32) -> i32 {
    match write(text.as_bytes()) {
        Ok(()) => code,
        Err(error) => closed(&error, code),
    }
}

pub(super) fn write(bytes: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(bytes)?;
    output.flush()
}

/// The exit code after a write that failed.
pub(super) fn closed(error: &io::Error, code: i32) -> i32 {
    match error.kind() {
        io::ErrorKind::BrokenPipe => code,
        _ => super::fail(&format!("cannot write to standard output: {error}")),
    }
}

/// Lets Ctrl-C end this process at once, also where a Python interpreter around it took the signal: a command that
/// only shows something has nothing to tidy up.
pub(super) fn end_on_interrupt() {
    // SAFETY: the default action runs no code of this process.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
}

/// Waits between two looks at something that cannot be waited on.
pub(super) fn pause(length: Duration) {
    let timeout = Timespec {
        tv_sec: length.as_secs() as i64,
        tv_nsec: i64::from(length.subsec_nanos()),
    };
    // A signal only makes the next look come early.
    let _ = rustix::event::poll(&mut [], Some(&timeout));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_and_says_so() {
        assert_eq!(shorten("train.py", 8), "train.py");
        assert_eq!(shorten("train.py --epochs", 8), "train.p…");
        assert_eq!(one_line("a\nb\x1b[2Jc  d"), "a b [2Jc d");
    }

    #[test]
    fn lines_are_wrapped_between_words() {
        let narrow = Terminal {
            width: Some(30),
            ..Terminal::default()
        };
        assert_eq!(
            narrow.wrap("one two three four five six", 8),
            ["one two three four", "five six"]
        );
        assert_eq!(Terminal::default().wrap("one two", 8), ["one two"]);
        assert_eq!(narrow.wrap("", 8), [""]);
    }

    #[test]
    fn colours_are_for_terminals() {
        let colourful = Terminal {
            colours: true,
            ..Terminal::default()
        };
        assert_eq!(colourful.paint(Style::Bad, "fail"), "\x1b[31mfail\x1b[0m");
        assert_eq!(
            colourful.paint(Style::Rank(5), "x"),
            colourful.paint(Style::Rank(0), "x")
        );
        assert_eq!(Terminal::default().paint(Style::Bad, "fail"), "fail");
    }
}
