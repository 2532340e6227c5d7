//! Log files: one per rank.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, create_dir_all};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file of one rank, opened for more.
pub(crate) fn open(dir: &Path, rank: u32) -> Result<(PathBuf, File), (PathBuf, io::Error)> {
    let path = dir.join(format!("rank-{rank}.log"));
    let opened = create_dir_all(dir).and_then(|()| OpenOptions::new().create(true).append(true).open(&path));
    match opened {
        Ok(file) => Ok((path, file)),
        Err(error) => Err((path, error)),
    }
}

/// What to tell a user whose log cannot be written.
pub(crate) fn broken_log(path: &Path, why: &str) -> String {
    format!(
        "cannot write {}: {why}: free some space, or give another folder with `log_dir`",
        path.display()
    )
}

/// The files of all ranks, opened as they begin to write.
pub(crate) struct RankFiles {
    dir: PathBuf,
    files: HashMap<u32, (PathBuf, File)>,
}

impl RankFiles {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            files: HashMap::new(),
        }
    }

    pub(crate) fn write(&mut self, rank: u32, bytes: &[u8]) -> Result<(), (PathBuf, io::Error)> {
        if !self.files.contains_key(&rank) {
            self.files.insert(rank, open(&self.dir, rank)?);
        }
        match self.files.get_mut(&rank) {
            Some((path, file)) => file.write_all(bytes).map_err(|error| (path.clone(), error)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_has_its_file_and_a_broken_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = RankFiles::new(folder.path().join("logs"));
        files.write(3, b"one\n").unwrap();
        files.write(3, b"two\n").unwrap();
        assert_eq!(
            std::fs::read(folder.path().join("logs/rank-3.log")).unwrap(),
            b"one\ntwo\n"
        );
        std::fs::write(folder.path().join("file"), "").unwrap();
        let (path, error) = RankFiles::new(folder.path().join("file"))
            .write(0, b"x")
            .unwrap_err();
        assert!(broken_log(&path, &error.to_string()).contains("file/rank-0.log"));
    }
}
