//! `grampus logs`: what the ranks of a running job write.
//!
//! The files are opened once and read to their ends: a job that is over removes its folder, and what was written last
//! is still shown.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use grampus_cluster::jobdir;

use super::jobs::{self, Job};
use super::terminal::{Style, Terminal, closed, end_on_interrupt, pause, write};

/// Exit codes: 0, or 1 where there is no such job or rank.
#[derive(Args)]
pub(super) struct LogsArguments {
    /// First digits of the job's id, as `grampus status` shows it; not needed where one job runs
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// Only this rank
    #[arg(short = 'r', long, value_name = "N")]
    rank: Option<u32>,
    /// Go on with what is written from now, until the job is over or Ctrl-C
    #[arg(short = 'f', long)]
    follow: bool,
    /// Last lines of each rank
    #[arg(short = 'n', long, default_value_t = 20, value_name = "LINES")]
    lines: usize,
}

const EVERY: Duration = Duration::from_millis(200);
const BLOCK: u64 = 64 * 1024;
/// A file with longer lines than this is shown from the middle of one: there is no reading through gigabytes.
const FARTHEST: u64 = 64 * 1024 * 1024;
/// A line that grows longer than this is shown in parts.
const LONGEST: usize = 64 * 1024;

/// Runs it; returns the exit code.
pub(super) fn main(arguments: &LogsArguments) -> i32 {
    end_on_interrupt();
    let found = jobs::pick(jobs::running(), arguments.job.as_deref())
        .and_then(|job| Ok((ranks(&job, arguments.rank)?, job)));
    let (mut ranks, job) = match found {
        Ok(found) => found,
        Err(why) => return super::fail(&why),
    };
    let terminal = Terminal::of_output();
    let shown = ranks
        .iter_mut()
        .try_for_each(|(rank, log)| show(*rank, &log.tail(arguments.lines, arguments.follow)?, &terminal))
        .and_then(|()| {
            if arguments.follow {
                follow(&job, arguments.rank, ranks, &terminal)
            } else {
                Ok(())
            }
        });
    match shown {
        Ok(()) => 0,
        Err(error) => closed(&error, 0),
    }
}

/// The logs to show, by rank; otherwise why there are none, and what to do.
fn ranks(job: &Job, only: Option<u32>) -> Result<BTreeMap<u32, Log>, String> {
    let folder = &job.status.logs;
    let mut found = BTreeMap::new();
    open_new(folder, None, &mut found)
        .map_err(|error| format!("cannot read the logs in {}: {error}", folder.display()))?;
    let Some(rank) = only else { return Ok(found) };
    if !found.contains_key(&rank) {
        let here: Vec<String> = found.keys().map(u32::to_string).collect();
        let here = if here.is_empty() {
            "none yet".to_owned()
        } else {
            here.join(", ")
        };
        return Err(format!(
            "there is no log of rank {rank} in {}: the ranks with a log on this host are {here}",
            folder.display()
        ));
    }
    found.retain(|key, _| *key == rank);
    Ok(found)
}

/// Opens the logs that have come since.
fn open_new(folder: &Path, only: Option<u32>, logs: &mut BTreeMap<u32, Log>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        // No rank has started, or the job is over.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let Some(rank) = rank_of(&entry.file_name().to_string_lossy()) else {
            continue;
        };
        if only.is_some_and(|only| only != rank) || logs.contains_key(&rank) {
            continue;
        }
        match File::open(entry.path()) {
            Ok(file) => drop(logs.insert(rank, Log::new(file))),
            // The job is over since the folder was read.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn rank_of(name: &str) -> Option<u32> {
    name.strip_prefix("rank-")?.strip_suffix(".log")?.parse().ok()
}

fn follow(job: &Job, only: Option<u32>, mut logs: BTreeMap<u32, Log>, terminal: &Terminal) -> io::Result<()> {
    loop {
        // Asked first, so that what was written before the end is read after it.
        let over = !jobdir::live().contains(&job.dir);
        if !over {
            open_new(&job.status.logs, only, &mut logs)?;
        }
        for (rank, log) in &mut logs {
            show(*rank, &log.more(over)?, terminal)?;
        }
        if over {
            eprintln!("grampus: the job is over");
            return Ok(());
        }
        pause(EVERY);
    }
}

fn show(rank: u32, lines: &[Vec<u8>], terminal: &Terminal) -> io::Result<()> {
    let prefix = terminal.paint(Style::Rank(rank), &format!("[rank {rank}]"));
    let mut text = Vec::new();
    for line in lines {
        text.extend_from_slice(prefix.as_bytes());
        text.push(b' ');
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    write(&text)
}

/// The file of one rank.
struct Log {
    file: File,
    /// Read up to here.
    place: u64,
    /// Bytes of a line that is not whole yet.
    partial: Vec<u8>,
}

impl Log {
    fn new(file: File) -> Self {
        Self {
            file,
            place: 0,
            partial: Vec::new(),
        }
    }

    /// The last lines. One that is not whole yet is among them, unless it is awaited.
    fn tail(&mut self, count: usize, awaited: bool) -> io::Result<Vec<Vec<u8>>> {
        let end = self.file.metadata()?.len();
        let mut start = end;
        let mut ends = 0;
        let mut blocks = Vec::new();
        // One line end more than lines: the one before the first of them.
        while start > 0 && end - start < FARTHEST && ends <= count {
            let size = BLOCK.min(start);
            start -= size;
            let mut block = vec![0; size as usize];
            let length = read_at(&self.file, &mut block, start)?;
            block.truncate(length);
            ends += block.iter().filter(|byte| **byte == b'\n').count();
            blocks.push(block);
        }
        blocks.reverse();
        let bytes = blocks.concat();
        self.place = start + bytes.len() as u64;
        let mut lines = self.cut(&bytes);
        if !awaited {
            lines.extend(self.rest());
        }
        Ok(lines.split_off(lines.len().saturating_sub(count)))
    }

    /// Lines that have become whole since; at the end of the job, what is left too.
    fn more(&mut self, last: bool) -> io::Result<Vec<Vec<u8>>> {
        if self.file.metadata()?.len() < self.place {
            // Someone emptied the file.
            self.place = 0;
            self.partial.clear();
        }
        let mut lines = Vec::new();
        let mut block = vec![0; BLOCK as usize];
        loop {
            let length = read_at(&self.file, &mut block, self.place)?;
            if length == 0 {
                break;
            }
            self.place += length as u64;
            lines.extend(self.cut(&block[..length]));
        }
        lines.extend(self.progress());
        if last || self.partial.len() > LONGEST {
            lines.extend(self.rest());
        }
        Ok(lines)
    }

    /// The lines that these bytes complete.
    fn cut(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut parts = bytes.split(|byte| *byte == b'\n');
        // After the last line end there is a part too, which may be empty.
        let rest = parts.next_back().unwrap_or_default();
        let mut lines = Vec::new();
        for part in parts {
            self.partial.extend_from_slice(part);
            lines.push(visible(&std::mem::take(&mut self.partial)).to_vec());
        }
        self.partial.extend_from_slice(rest);
        lines
    }

    /// A progress bar goes back to the start of its line and never ends it: its newest whole state is shown.
    fn progress(&mut self) -> Option<Vec<u8>> {
        let end = self.partial.iter().rposition(|byte| *byte == b'\r')?;
        let rest = self.partial.split_off(end + 1);
        let shown = visible(&std::mem::replace(&mut self.partial, rest)).to_vec();
        (!shown.is_empty()).then_some(shown)
    }

    fn rest(&mut self) -> Option<Vec<u8>> {
        let rest = std::mem::take(&mut self.partial);
        (!rest.is_empty()).then(|| visible(&rest).to_vec())
    }
}

fn read_at(file: &File, bytes: &mut [u8], place: u64) -> io::Result<usize> {
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], place + length as u64) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// What a terminal would show of a line in which the cursor went back: the last part that is not empty.
fn visible(line: &[u8]) -> &[u8] {
    line.rsplit(|byte| *byte == b'\r')
        .find(|part| !part.is_empty())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn log(text: &[u8]) -> (File, Log) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        let reader = file.try_clone().unwrap();
        (file, Log::new(reader))
    }

    fn text(lines: Vec<Vec<u8>>) -> Vec<String> {
        lines
            .into_iter()
            .map(|line| String::from_utf8(line).unwrap())
            .collect()
    }

    fn tail(written: &[u8], count: usize) -> Vec<String> {
        text(log(written).1.tail(count, false).unwrap())
    }

    #[test]
    fn the_last_lines_are_found_from_the_end() {
        assert_eq!(tail(b"a\nb\nc\n", 2), ["b", "c"]);
        assert_eq!(tail(b"a\nb\nc", 2), ["b", "c"]);
        assert_eq!(tail(b"a\n\nc\n", 9), ["a", "", "c"]);
        assert_eq!(tail(b"", 2), Vec::<String>::new());
        assert_eq!(tail(b"a\nb", 0), Vec::<String>::new());
        let long: Vec<u8> = (0..100_000)
            .flat_map(|number| format!("{number}\n").into_bytes())
            .collect();
        assert_eq!(tail(&long, 3), ["99997", "99998", "99999"]);
        assert_eq!(tail(&long, 200_000).len(), 100_000);
    }

    #[test]
    fn a_line_over_block_borders_stays_whole() {
        let wide = "x".repeat(3 * BLOCK as usize + 7);
        assert_eq!(
            tail(format!("first\n{wide}\nlast\n").as_bytes(), 2),
            [wide.as_str(), "last"]
        );
    }

    #[test]
    fn a_progress_bar_is_one_line() {
        assert_eq!(
            tail(b"start\n 1%\r 2%\r 3%\nend\r\n 7%\r 8%", 9),
            ["start", " 3%", "end", " 8%"]
        );
    }

    #[test]
    fn what_is_written_later_comes_once_and_in_whole_lines() {
        let (mut file, mut log) = log(b"a\nb\nhal");
        assert_eq!(text(log.tail(1, true).unwrap()), ["b"]);
        assert!(log.more(false).unwrap().is_empty());
        file.write_all(b"f\nnext\n").unwrap();
        assert_eq!(text(log.more(false).unwrap()), ["half", "next"]);
        file.write_all(b" 1%\r 2%\r 3").unwrap();
        assert_eq!(text(log.more(false).unwrap()), [" 2%"]);
        assert!(log.more(false).unwrap().is_empty());
        file.write_all(b"%").unwrap();
        assert_eq!(text(log.more(true).unwrap()), [" 3%"]);
    }

    #[test]
    fn an_emptied_file_starts_anew() {
        let (mut file, mut log) = log(b"a\nb\n");
        log.tail(9, true).unwrap();
        file.set_len(0).unwrap();
        assert!(log.more(false).unwrap().is_empty());
        file.write_all_at(b"c\n", 0).unwrap();
        file.flush().unwrap();
        assert_eq!(text(log.more(false).unwrap()), ["c"]);
    }

    #[test]
    fn only_log_files_of_ranks_are_read() {
        assert_eq!(rank_of("rank-12.log"), Some(12));
        assert_eq!(
            rank_of("rank-x.log")
                .or(rank_of("notes.txt"))
                .or(rank_of("rank-1.log.gz")),
            None
        );
    }
}
