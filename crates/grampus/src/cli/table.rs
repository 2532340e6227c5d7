//! Rows under a head, in columns that are as wide as what stands in them.

use super::terminal::shorten;

/// Where the cells of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// The last column takes what is left of the width and is shortened to it.
pub(super) struct Table<const N: usize> {
    columns: [(&'static str, Align); N],
    rows: Vec<[String; N]>,
}

const GAP: &str = "  ";
/// The last column is never cut to less than this.
const LEAST: usize = 12;

impl<const N: usize> Table<N> {
    pub(super) fn new(columns: [(&'static str, Align); N]) -> Self {
        Self {
            columns,
            rows: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, row: [String; N]) {
        self.rows.push(row);
    }

    /// The head, and one line for each row.
    pub(super) fn lines(&self, width: Option<usize>) -> (String, Vec<String>) {
        let widths = self.widths();
        let head = self.columns.map(|(title, _)| title.to_owned());
        let line = |cells: &[String; N]| {
            let mut line = String::new();
            for (place, cell) in cells.iter().enumerate() {
                let room = widths[place];
                if place + 1 == N {
                    let left = width.map_or(usize::MAX, |width| width.saturating_sub(line.chars().count()));
                    line.push_str(&shorten(cell, left.max(LEAST)));
                } else if self.columns[place].1 == Align::Right {
                    line.push_str(&format!("{cell:>room$}{GAP}"));
                } else {
                    line.push_str(&format!("{cell:<room$}{GAP}"));
                }
            }
            line.trim_end().to_owned()
        };
        (line(&head), self.rows.iter().map(line).collect())
    }

    fn widths(&self) -> [usize; N] {
        let mut widths = self.columns.map(|(title, _)| title.chars().count());
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_the_last_is_cut() {
        let mut table = Table::new([
            ("JOB", Align::Left),
            ("PID", Align::Right),
            ("COMMAND", Align::Left),
        ]);
        table.push(["abcdef".into(), "7".into(), "python train.py".into()]);
        table.push(["ab".into(), "1234".into(), "x".into()]);
        let (head, rows) = table.lines(Some(26));
        assert_eq!(head, "JOB      PID  COMMAND");
        assert_eq!(rows, ["abcdef     7  python trai…", "ab      1234  x"]);
        assert_eq!(table.lines(None).1[0], "abcdef     7  python train.py");
    }
}
