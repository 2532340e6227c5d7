//! `grampus status`: the jobs of this user that run on this machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use grampus_cluster::driver::{JobStatus, MemberStatus};

use super::jobs::{Job, digits, running, short};
use super::table::{Align, Table};
use super::terminal::{Style, Terminal, closed, end_on_interrupt, one_line, pause, put, write};

/// Members of the only job that are shown without being asked for.
const FEW: usize = 16;
const EVERY: Duration = Duration::from_secs(1);

/// Exit codes: 0, also where no job runs.
#[derive(Args)]
pub(super) struct StatusArguments {
    /// Print the jobs as JSON, for programs
    #[arg(long)]
    json: bool,
    /// Draw the table anew every second, until Ctrl-C
    #[arg(short = 'w', long, conflicts_with = "json")]
    watch: bool,
    /// Show all members of every job, not only those of the one that runs alone
    #[arg(short = 'm', long)]
    members: bool,
}

/// Runs it; returns the exit code.
pub(super) fn main(arguments: &StatusArguments) -> i32 {
    if arguments.json {
        return json(&running());
    }
    let draw = || {
        let terminal = Terminal::of_output();
        (
            lines(&running(), now(), arguments.members, &terminal),
            terminal.height,
        )
    };
    if !arguments.watch {
        return put(&(draw().0.join("\n") + "\n"), 0);
    }
    end_on_interrupt();
    let mut drawn = 0;
    loop {
        let (lines, height) = draw();
        let (text, count) = frame(lines, height, drawn);
        drawn = count;
        if let Err(error) = write(text.as_bytes()) {
            return closed(&error, 0);
        }
        pause(EVERY);
    }
}

/// Draws over the lines drawn before, and says how many it drew. What stood above stays, and there is nothing to
/// restore at the end. A pipe gets one table after the other.
fn frame(mut lines: Vec<String>, height: Option<usize>, drawn: usize) -> (String, usize) {
    let Some(height) = height else {
        return (lines.join("\n") + "\n\n", 0);
    };
    // The cursor stands below the last line.
    let room = height.saturating_sub(1).max(1);
    if lines.len() > room {
        lines.truncate(room);
        lines[room - 1] = "…".to_owned();
    }
    let up = if drawn == 0 {
        String::new()
    } else {
        format!("\x1b[{drawn}A")
    };
    let body: String = lines.iter().map(|line| format!("{line}\x1b[K\n")).collect();
    (format!("{up}\r{body}\x1b[J"), lines.len())
}

fn json(jobs: &[Job]) -> i32 {
    let all: Vec<&JobStatus> = jobs.iter().map(|job| &job.status).collect();
    match serde_json::to_string_pretty(&all) {
        Ok(text) => put(&(text + "\n"), 0),
        Err(error) => super::fail(&format!("cannot write the jobs as JSON: {error}")),
    }
}

fn lines(jobs: &[Job], now: u64, all_members: bool, terminal: &Terminal) -> Vec<String> {
    if jobs.is_empty() {
        return vec!["no jobs run here".to_owned()];
    }
    let digits = digits(jobs);
    let (head, rows) = job_table(jobs, digits, now).lines(terminal.width);
    let mut lines = vec![terminal.paint(Style::Quiet, &head)];
    let indent = " ".repeat(digits + 2);
    for (job, row) in jobs.iter().zip(rows) {
        lines.push(row);
        let why = terminal.wrap(&one_line(&job.status.why), indent.len());
        lines.extend(
            why.iter()
                .map(|part| format!("{indent}{}", terminal.paint(Style::Quiet, part))),
        );
        if all_members || jobs.len() == 1 {
            lines.extend(member_lines(&job.status, all_members, &indent, terminal));
        }
    }
    lines
}

fn job_table(jobs: &[Job], digits: usize, now: u64) -> Table<7> {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("JOB", Left),
        ("PHASE", Left),
        ("WORKERS", Right),
        ("GEN", Right),
        ("SINCE", Right),
        ("PID", Right),
        ("COMMAND", Left),
    ]);
    for status in jobs.iter().map(|job| &job.status) {
        let inside = status
            .members
            .iter()
            .filter(|member| member.state == "in")
            .count();
        table.push([
            short(&status.job, digits),
            status.phase.clone(),
            format!("{inside}/{}", status.wanted),
            status.generation.to_string(),
            since(now.saturating_sub(status.started)),
            status.pid.to_string(),
            one_line(&status.title),
        ]);
    }
    table
}

/// Those that are not in come first where not all are shown.
fn member_lines(status: &JobStatus, all: bool, indent: &str, terminal: &Terminal) -> Vec<String> {
    use Align::{Left, Right};
    let mut table = Table::new([("RANK", Right), ("PID", Right), ("HOST", Left), ("STATE", Left)]);
    let mut members: Vec<_> = status.members.iter().collect();
    let hidden = if all { 0 } else { members.len().saturating_sub(FEW) };
    if hidden > 0 {
        members.sort_by_key(|member| (member.state == "in", member.slot));
        members.truncate(FEW);
    }
    for member in members {
        // A worker that has not joined has not said which process it is.
        let pid = if member.pid == 0 {
            "-".to_owned()
        } else {
            member.pid.to_string()
        };
        let host = if member.host.is_empty() {
            "-".to_owned()
        } else {
            one_line(&member.host)
        };
        table.push([ranks(member), pid, host, member.state.clone()]);
    }
    let (head, rows) = table.lines(terminal.width.map(|width| width.saturating_sub(indent.len())));
    let mut lines = vec![format!("{indent}{}", terminal.paint(Style::Quiet, &head))];
    lines.extend(rows.into_iter().map(|row| format!("{indent}{row}")));
    if hidden > 0 {
        lines.push(format!("{indent}and {hidden} more, shown by --members"));
    }
    lines
}

/// One that is not in the newest generation has none yet.
fn ranks(member: &MemberStatus) -> String {
    match (member.rank, member.ranks) {
        (None, _) => "-".to_owned(),
        (Some(first), 0 | 1) => first.to_string(),
        (Some(first), count) => format!("{first}-{}", first + count - 1),
    }
}

/// Two units are enough to tell how long ago something was.
fn since(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match () {
        () if days > 0 => format!("{days}d{:02}h", hours % 24),
        () if hours > 0 => format!("{hours}h{:02}m", minutes % 60),
        () if minutes > 0 => format!("{minutes}m{:02}s", seconds % 60),
        () => format!("{seconds}s"),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the wall clock is shown to people, no decision is taken from it"
)]
fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_secs()
}

#[cfg(test)]
mod tests {
    use super::super::jobs::tests::job;
    use super::*;

    fn shown(jobs: &[Job], all: bool) -> Vec<String> {
        lines(jobs, 1192, all, &Terminal::default())
    }

    #[test]
    fn nothing_runs() {
        assert_eq!(shown(&[], false), ["no jobs run here"]);
    }

    #[test]
    fn the_only_job_is_shown_with_its_members() {
        let seen = shown(&[job("3f2a91c000000000", "python train.py", 2)], false);
        let wanted = [
            "JOB       PHASE    WORKERS  GEN  SINCE  PID  COMMAND",
            "3f2a91c0  running      2/2    1  3m12s   99  python train.py",
            "          task 1 runs",
            "          RANK  PID  HOST   STATE",
            "             0  100  node1  in",
            "             1  101  node1  in",
        ];
        assert_eq!(seen, wanted);
    }

    #[test]
    fn members_of_several_jobs_are_shown_when_asked_for() {
        let jobs = [
            job("aa00000000000000", "one", 2),
            job("bb00000000000000", "two", 1),
        ];
        assert_eq!(shown(&jobs, false).len(), 5);
        assert_eq!(shown(&jobs, true).len(), 5 + 3 + 2);
    }

    #[test]
    fn of_many_members_those_in_trouble_are_shown() {
        let mut many = job("aa00000000000000", "big", 100);
        many.status.members[70].state = "starting".into();
        many.status.members[70].pid = 0;
        many.status.members[70].rank = None;
        let seen = shown(&[many], false);
        assert_eq!(seen.len(), 4 + FEW + 1);
        assert_eq!(seen[1].split_whitespace().nth(2), Some("99/100"));
        assert_eq!(
            seen[4].split_whitespace().collect::<Vec<_>>(),
            ["-", "-", "node1", "starting"]
        );
        assert!(seen.last().unwrap().contains("and 84 more"));
    }

    #[test]
    fn a_node_has_several_ranks_and_one_may_be_missing() {
        let mut nodes = job("aa00000000000000", "train.py", 1);
        nodes.status.wanted = 2;
        nodes.status.members[0].ranks = 4;
        let seen = shown(&[nodes], false);
        assert_eq!(seen[1].split_whitespace().nth(2), Some("1/2"));
        assert_eq!(seen[4].split_whitespace().next(), Some("0-3"));
    }

    #[test]
    fn a_title_cannot_move_the_cursor() {
        let seen = shown(&[job("aa00000000000000", "a\x1b[2J\nb", 1)], false);
        assert!(seen[1].ends_with("a [2J b"));
    }

    #[test]
    fn times_have_two_units() {
        assert_eq!(
            [0, 59, 60, 3661, 90061].map(since),
            ["0s", "59s", "1m00s", "1h01m", "1d01h"]
        );
    }

    #[test]
    fn a_frame_is_drawn_over_the_last_one() {
        let lines = |count| vec!["a".to_owned(); count];
        assert_eq!(frame(lines(1), Some(9), 0), ("\ra\x1b[K\n\x1b[J".to_owned(), 1));
        assert_eq!(
            frame(lines(1), Some(9), 3),
            ("\x1b[3A\ra\x1b[K\n\x1b[J".to_owned(), 1)
        );
        assert_eq!(
            frame(lines(9), Some(4), 0),
            ("\ra\x1b[K\na\x1b[K\n…\x1b[K\n\x1b[J".to_owned(), 3)
        );
        assert_eq!(frame(lines(1), None, 0), ("a\n\n".to_owned(), 0));
    }
}
