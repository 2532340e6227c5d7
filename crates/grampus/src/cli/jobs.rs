//! The jobs of this user that run on this machine, and the one that is meant.

use std::path::PathBuf;

use grampus_cluster::driver::{JobStatus, read_status};
use grampus_cluster::jobdir;

use super::terminal::{one_line, shorten};

/// Digits of an id that are shown where they tell the jobs apart.
const SHORT: usize = 8;

/// A job that runs now.
pub(super) struct Job {
    pub dir: PathBuf,
    pub status: JobStatus,
}

/// All of them, oldest first. One that has not yet said what it is does not run yet.
pub(super) fn running() -> Vec<Job> {
    let read = |dir: PathBuf| read_status(&dir).map(|status| Job { dir, status });
    let mut jobs: Vec<Job> = jobdir::live().into_iter().filter_map(read).collect();
    jobs.sort_by_key(|job| (job.status.started, job.status.job.clone()));
    jobs
}

/// How many digits of the ids tell the jobs apart.
pub(super) fn digits(jobs: &[Job]) -> usize {
    let mut ids: Vec<&str> = jobs.iter().map(|job| job.status.job.as_str()).collect();
    ids.sort_unstable();
    let shared = |pair: &[&str]| {
        pair[0]
            .chars()
            .zip(pair[1].chars())
            .take_while(|(a, b)| a == b)
            .count()
    };
    ids.windows(2)
        .map(|pair| shared(pair) + 1)
        .fold(SHORT, usize::max)
}

/// The first digits of an id.
pub(super) fn short(id: &str, digits: usize) -> String {
    id.chars().take(digits).collect()
}

/// The job whose id begins like this, or the only one; otherwise why not, and what to do.
pub(super) fn pick(mut jobs: Vec<Job>, prefix: Option<&str>) -> Result<Job, String> {
    if jobs.is_empty() {
        return Err(
            "no jobs run here: logs are shown while a job runs; to keep them, start it with a log folder \
                    (--log-dir, log_dir=)"
                .to_owned(),
        );
    }
    let wanted = prefix.unwrap_or_default().to_lowercase();
    let fits: Vec<usize> = (0..jobs.len())
        .filter(|place| jobs[*place].status.job.starts_with(&wanted))
        .collect();
    match (fits.as_slice(), prefix) {
        ([one], _) => Ok(jobs.swap_remove(*one)),
        ([], _) => Err(format!(
            "no job begins with `{wanted}`, these run here:\n{}",
            list(&jobs, None)
        )),
        (several, None) => Err(format!(
            "{} jobs run here, name one of them:\n{}",
            several.len(),
            list(&jobs, None)
        )),
        (several, Some(_)) => {
            let count = several.len();
            Err(format!(
                "{count} jobs begin with `{wanted}`, give more of the id:\n{}",
                list(&jobs, Some(several))
            ))
        }
    }
}

fn list(jobs: &[Job], only: Option<&[usize]>) -> String {
    const TITLE: usize = 60;
    let digits = digits(jobs);
    let shown = (0..jobs.len()).filter(|place| only.is_none_or(|only| only.contains(place)));
    let lines: Vec<String> = shown
        .map(|place| &jobs[place].status)
        .map(|status| {
            format!(
                "  {}  {}",
                short(&status.job, digits),
                shorten(&one_line(&status.title), TITLE)
            )
        })
        .collect();
    lines.join("\n")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A job as its driver describes it.
    pub(in super::super) fn job(id: &str, title: &str, workers: u32) -> Job {
        let member = |slot: u32| serde_json::json!({"slot": slot, "rank": slot, "ranks": 1, "pid": 100 + slot, "host": "node1", "state": "in"});
        let status = serde_json::json!({
            "job": id, "title": title, "pid": 99, "started": 1000, "phase": "running", "why": "task 1 runs",
            "generation": 1, "logs": "/nowhere", "wanted": workers, "members": (0..workers).map(member).collect::<Vec<_>>(),
        });
        Job {
            dir: PathBuf::from("/nowhere"),
            status: serde_json::from_value(status).unwrap(),
        }
    }

    fn three() -> Vec<Job> {
        let ids = ["aaaa000000000001", "aaaa000000000002", "bbbb000000000001"];
        ids.map(|id| job(id, &format!("python {id}.py"), 1)).into()
    }

    #[test]
    fn a_prefix_names_one_job() {
        assert_eq!(pick(three(), Some("B")).unwrap().status.job, "bbbb000000000001");
        assert_eq!(
            pick(three(), Some("aaaa000000000002")).unwrap().status.job,
            "aaaa000000000002"
        );
        assert_eq!(pick(vec![job("cc", "x", 1)], None).unwrap().status.job, "cc");
    }

    #[test]
    fn what_names_no_job_or_several_is_told_which_there_are() {
        let error = |jobs, prefix| pick(jobs, prefix).err().unwrap();
        assert!(error(vec![], None).starts_with("no jobs run here"));
        assert!(
            error(three(), None)
                .starts_with("3 jobs run here, name one of them:\n  aaaa000000000001  python")
        );
        let two = error(three(), Some("aa"));
        assert!(two.starts_with("2 jobs begin with `aa`, give more of the id") && !two.contains("bbbb"));
        assert!(error(three(), Some("cc")).contains("no job begins with `cc`, these run here:\n  aaaa"));
    }

    #[test]
    fn ids_are_as_long_as_it_takes() {
        assert_eq!(digits(&three()), 16);
        assert_eq!(
            digits(&[job("aaaa000000000001", "x", 1), job("bbbb000000000001", "x", 1)]),
            SHORT
        );
        assert_eq!(short("aaaa000000000001", SHORT), "aaaa0000");
    }
}
