//! Files of this machine.

use std::fs;
use std::path::{Path, PathBuf};

use glob::MatchOptions;

use super::file::File;
use super::{WILD, fixed_part, is_meant};
use crate::DataError;

/// The files that a path, a pattern or a folder names.
pub(super) fn find(written: &str, path: PathBuf, extensions: &[&str]) -> Result<Vec<File>, DataError> {
    let mut found = Vec::new();
    let mut root = String::new();
    // A name that is there is meant, even if it looks like a pattern.
    if path.is_dir() {
        root = path.to_string_lossy().into_owned();
        walk(&path, extensions, &mut found)?;
        if found.is_empty() {
            return Err(DataError::EmptyFolder {
                folder: written.to_owned(),
                extensions: extensions.iter().map(|end| format!(".{end}")).collect(),
            });
        }
    } else if path.exists() {
        found.push(path);
    } else if written.contains(WILD) {
        root = fixed_part(&path.to_string_lossy()).to_owned();
        matches(written, &path, extensions, &mut found)?;
        if found.is_empty() {
            return Err(DataError::EmptyGlob {
                pattern: written.to_owned(),
            });
        }
    } else {
        return Err(DataError::NoSuchPath {
            path: written.to_owned(),
        });
    }
    found.sort();
    Ok(found
        .into_iter()
        .map(|path| File::local(path).below(&root))
        .collect())
}

fn matches(
    written: &str,
    path: &Path,
    extensions: &[&str],
    found: &mut Vec<PathBuf>,
) -> Result<(), DataError> {
    let options = MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    let pattern = path.to_string_lossy();
    let paths = glob::glob_with(&pattern, options).map_err(|error| DataError::Url {
        url: written.to_owned(),
        why: error.to_string(),
    })?;
    for path in paths {
        let path =
            path.map_err(|error| DataError::io(error.path().to_string_lossy().into_owned(), error.into()))?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        if path.is_dir() {
            // `**` matches folders and what is in them.
            if !pattern.ends_with("**") {
                walk(&path, extensions, found)?;
            }
        } else if !name.unwrap_or_default().starts_with('_') || pattern.contains("/_") {
            found.push(path);
        }
    }
    Ok(())
}

/// All files below a folder. Links to folders are left alone: they may lead in circles.
fn walk(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) -> Result<(), DataError> {
    let wrong = |error| DataError::io(folder.to_string_lossy(), error);
    for entry in fs::read_dir(folder).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().map_err(wrong)?.is_dir() {
            if !name.starts_with(['.', '_']) {
                walk(&entry.path(), extensions, found)?;
            }
        } else if is_meant(&name, extensions) && entry.path().is_file() {
            found.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::find;

    fn names(patterns: &[&str], root: &std::path::Path) -> Result<Vec<String>, String> {
        let root = root.to_str().unwrap();
        let patterns: Vec<String> = patterns.iter().map(|name| format!("{root}/{name}")).collect();
        let files = find(&patterns, &["csv"]).map_err(|error| error.to_string().replace(root, "R"))?;
        Ok(files
            .iter()
            .map(|file| file.name()[root.len() + 1..].to_owned())
            .collect())
    }

    #[test]
    fn files_are_found_in_order() {
        let root = tempfile::tempdir().unwrap();
        for name in [
            "b.csv",
            "a.csv",
            "c.txt",
            ".h.csv",
            "_SUCCESS",
            "s/d.csv",
            "s/t/e.CSV",
            "[x].csv",
            "_t/f.csv",
        ] {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let names = |patterns: &[&str]| names(patterns, root.path());
        assert_eq!(
            names(&["b.csv", "a.csv", "b.csv"]).unwrap(),
            ["b.csv", "a.csv", "b.csv"]
        );
        assert_eq!(names(&["?.csv"]).unwrap(), ["a.csv", "b.csv"]);
        assert_eq!(names(&["[x].csv"]).unwrap(), ["[x].csv"]);
        assert_eq!(
            names(&["**/*.csv"]).unwrap(),
            ["[x].csv", "_t/f.csv", "a.csv", "b.csv", "s/d.csv"]
        );
        assert_eq!(
            names(&[""]).unwrap(),
            ["[x].csv", "a.csv", "b.csv", "s/d.csv", "s/t/e.CSV"]
        );
        assert_eq!(names(&["s*"]).unwrap(), ["s/d.csv", "s/t/e.CSV"]);
        assert_eq!(
            names(&["*.tsv"]).unwrap_err(),
            "R/*.tsv: no file matches this pattern: check it, and the folder that it starts from"
        );
        assert!(
            names(&["d.csv"])
                .unwrap_err()
                .starts_with("R/d.csv: there is no such file or folder")
        );
        std::fs::create_dir(root.path().join("empty")).unwrap();
        assert!(
            names(&["empty"])
                .unwrap_err()
                .starts_with("R/empty: no file in or below this folder ends in .csv")
        );
        assert!(
            find(&["hdfs://x/y".to_owned()], &["csv"])
                .unwrap_err()
                .to_string()
                .contains("not supported")
        );
    }
}
