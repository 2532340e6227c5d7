//! Reading the files of a ledger.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use thiserror::Error;

use super::record::{FORMAT, Head, Line};

const FOLDER: &str = "audit";
const ENDING: &str = "jsonl";

/// Why a ledger cannot be read.
#[derive(Debug, Error)]
pub enum LedgerError {
    /// There is none.
    #[error("there is no ledger in {}: train with fit(audit=True), and pass the folder of the run", run.display())]
    Missing {
        /// The folder of the run.
        run: PathBuf,
    },
    /// The system does not give it.
    #[error("cannot read {}: {source}: check that you may read it", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line is not what a worker writes.
    #[error("{}, line {line}: {why}: the file was changed or damaged", path.display())]
    BadLine {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
}

/// What one worker wrote in one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its first line.
    pub head: Head,
    /// The others, in order.
    pub lines: Vec<Line>,
}

impl Page {
    /// Reads the text of a page; nothing where its worker was killed before it had written a line. A last line that was cut
    /// off is left out: what it was to say was not said before anything else was done.
    ///
    /// # Errors
    ///
    /// If a line is not what a worker writes; `path` is named then.
    pub fn parse(path: &Path, text: &str) -> Result<Option<Self>, LedgerError> {
        let bad = |line: usize, why: String| LedgerError::BadLine {
            path: path.to_path_buf(),
            line,
            why,
        };
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut lines = Vec::new();
        for (number, line) in whole.split('\n').enumerate().filter(|_| !whole.is_empty()) {
            let line: Line =
                serde_json::from_str(line).map_err(|error| bad(number + 1, error.to_string()))?;
            lines.push(line);
        }
        let mut rest = lines.into_iter();
        let head = match rest.next() {
            None => return Ok(None),
            Some(Line::Head(head)) if head.format == FORMAT => head,
            Some(Line::Head(head)) => {
                let why = format!("it has the form {} and this command reads {FORMAT}", head.format);
                return Err(bad(1, why));
            }
            Some(_) => return Err(bad(1, "the head is missing".into())),
        };
        let lines: Vec<Line> = rest.collect();
        for (number, line) in lines.iter().enumerate() {
            let checked = match line {
                Line::Head(_) => Err("there is a second head".into()),
                line => line.check(head.lanes),
            };
            checked.map_err(|why| bad(number + 2, why))?;
        }
        Ok(Some(Self { head, lines }))
    }
}

/// Reads the ledger in the folder of a run.
///
/// # Errors
///
/// If there is none, or one of its files cannot be read.
pub fn read(run: &Path) -> Result<Vec<Page>, LedgerError> {
    let folder = run.join(FOLDER);
    let unreadable = |path: &Path| {
        let path = path.to_path_buf();
        |source| LedgerError::Unreadable { path, source }
    };
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        entries => entries
            .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            .map_err(unreadable(&folder))?,
    };
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension() == Some(OsStr::new(ENDING)));
    paths.sort();
    let mut pages = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).map_err(unreadable(&path))?;
        pages.extend(Page::parse(&path, &text)?);
    }
    if pages.is_empty() {
        return Err(LedgerError::Missing {
            run: run.to_path_buf(),
        });
    }
    Ok(pages)
}
