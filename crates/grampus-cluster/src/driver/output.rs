//! Output of many ranks, cut into lines so that they do not run into each other.

use std::collections::HashMap;

use crate::supervisor::Stream;

/// A line longer than this is cut: a rank that never ends a line must not fill the memory.
const LONGEST: usize = 64 * 1024;

/// One line that a rank wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Who.
    pub rank: u32,
    /// Where to.
    pub stream: Stream,
    /// What, without the end of the line.
    pub text: String,
}

/// Collects bytes until a line is whole.
#[derive(Default)]
pub(crate) struct Lines {
    partial: HashMap<(u32, Stream), Vec<u8>>,
}

impl Lines {
    /// The lines that these bytes complete. A carriage return ends a line too, so that progress bars show.
    pub(crate) fn push(&mut self, rank: u32, stream: Stream, bytes: &[u8]) -> Vec<Line> {
        let partial = self.partial.entry((rank, stream)).or_default();
        let mut lines = Vec::new();
        for byte in bytes {
            match byte {
                b'\r' if partial.is_empty() => {}
                b'\n' | b'\r' => lines.push(line(rank, stream, partial)),
                byte => partial.push(*byte),
            }
            if partial.len() >= LONGEST {
                lines.push(line(rank, stream, partial));
            }
        }
        lines
    }

    /// What was written without an end of line.
    pub(crate) fn rest(&mut self) -> Vec<Line> {
        let partial = std::mem::take(&mut self.partial)
            .into_iter()
            .filter(|(_, bytes)| !bytes.is_empty());
        let mut lines: Vec<Line> = partial
            .map(|((rank, stream), mut bytes)| line(rank, stream, &mut bytes))
            .collect();
        lines.sort_by_key(|line| line.rank);
        lines
    }
}

fn line(rank: u32, stream: Stream, bytes: &mut Vec<u8>) -> Line {
    Line {
        rank,
        stream,
        text: String::from_utf8_lossy(&std::mem::take(bytes)).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[Line]) -> Vec<(u32, &str)> {
        lines.iter().map(|line| (line.rank, line.text.as_str())).collect()
    }

    #[test]
    fn ranks_and_streams_do_not_mix() {
        let mut lines = Lines::default();
        assert!(lines.push(0, Stream::Out, b"hel").is_empty());
        assert!(lines.push(1, Stream::Out, b"wor").is_empty());
        assert_eq!(texts(&lines.push(0, Stream::Out, b"lo\nx")), [(0, "hello")]);
        assert_eq!(texts(&lines.push(1, Stream::Out, b"ld\n")), [(1, "world")]);
        assert_eq!(texts(&lines.rest()), [(0, "x")]);
        assert!(lines.rest().is_empty());
    }

    #[test]
    fn progress_bars_and_empty_lines_are_kept_and_endless_lines_are_cut() {
        let mut lines = Lines::default();
        assert_eq!(
            texts(&lines.push(0, Stream::Err, b"\r10%\r20%\r\nend\n")),
            [(0, "10%"), (0, "20%"), (0, ""), (0, "end")]
        );
        let long = vec![b'a'; LONGEST + 1];
        assert_eq!(lines.push(0, Stream::Err, &long).len(), 1);
        assert_eq!(texts(&lines.rest()), [(0, "a")]);
    }
}
