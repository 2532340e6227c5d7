//! Checkpoints in a folder of this machine, or one that is mounted here.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

use memmap2::MmapOptions;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::{Builder, TempDir};

use super::error::CheckpointError;
use super::place::{Blob, Length, Place};
use super::tensor::Memory;

/// How the names of unfinished folders and files begin. What is called so and was not finished, a crash left behind.
const UNFINISHED: &str = ".grampus-writing-";

pub(super) struct Folder {
    root: PathBuf,
    /// Leftovers are removed before the first write: later ones could only be another writer's.
    cleaned: Once,
}

impl Folder {
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            cleaned: Once::new(),
        }
    }

    fn join(&self, folder: &str, file: &str) -> PathBuf {
        let mut path = self.root.clone();
        path.extend([folder, file].iter().filter(|part| !part.is_empty()));
        path
    }

    /// Removes what a crash left unfinished. What cannot be removed is in nobody's way.
    fn clean(&self, beginning: &str) {
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(beginning) {
                let path = entry.path();
                let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
            }
        }
    }

    fn make_root(&self) -> Result<(), CheckpointError> {
        fs::create_dir_all(&self.root).map_err(|error| CheckpointError::io(&self.root, error))
    }

    /// Gives a finished folder its name, in one step.
    fn publish(&self, finished: TempDir, name: &str) -> Result<(), CheckpointError> {
        let target = self.root.join(name);
        match fs::rename(finished.path(), &target) {
            Ok(()) => {
                let _ = finished.keep();
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists
                ) =>
            {
                self.replace(finished, name)?;
            }
            Err(error) => return Err(CheckpointError::io(&target, error)),
        }
        sync_folder(&self.root)
    }

    fn replace(&self, finished: TempDir, name: &str) -> Result<(), CheckpointError> {
        let target = self.root.join(name);
        let wrong = |error: io::Error| CheckpointError::io(&target, error);
        match renameat_with(CWD, finished.path(), CWD, &target, RenameFlags::EXCHANGE) {
            // The old one has the new one's former name now, and goes.
            Ok(()) => finished.close().map_err(wrong),
            // Some file systems, such as NFS, cannot swap names.
            Err(_) => {
                fs::remove_dir_all(&target).map_err(wrong)?;
                fs::rename(finished.path(), &target).map_err(wrong)?;
                let _ = finished.keep();
                Ok(())
            }
        }
    }
}

impl Place for Folder {
    fn path(&self, folder: &str, file: &str) -> String {
        self.join(folder, file).display().to_string()
    }

    fn folders(&self) -> Result<Vec<String>, CheckpointError> {
        names(&self.root, |kind| kind.is_dir())
    }

    fn files(&self, folder: &str) -> Result<Vec<String>, CheckpointError> {
        names(&self.join(folder, ""), |kind| kind.is_file())
    }

    fn read(&self, folder: &str, file: &str, length: Length) -> Result<Option<Memory>, CheckpointError> {
        let path = self.join(folder, file);
        let wrong = |error: io::Error| CheckpointError::io(&path, error);
        let damaged = |why: String| CheckpointError::Damaged {
            path: path.display().to_string(),
            why,
        };
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(wrong(error)),
        };
        // To open a pipe would be to wait for its other end.
        if !metadata.is_file() {
            return Err(damaged("it is no file".to_owned()));
        }
        let opened = File::open(&path).map_err(wrong)?;
        let found = opened.metadata().map_err(wrong)?.len();
        if let Some(why) = length.objection(found) {
            return Err(damaged(why));
        }
        // SAFETY: the map is private and finished files are never written to again, only replaced or removed whole,
        // which leaves the mapped one alone.
        let map = unsafe { MmapOptions::new().no_reserve_swap().map_copy(&opened) };
        map.map(|map| Some(Memory::map(map))).map_err(wrong)
    }

    fn write_folder(&self, folder: &str, files: &[Blob]) -> Result<(), CheckpointError> {
        self.make_root()?;
        self.cleaned.call_once(|| self.clean(UNFINISHED));
        // Removes itself, should anything go wrong.
        let unfinished = Builder::new()
            .prefix(&format!("{UNFINISHED}{folder}-"))
            .permissions(Permissions::from_mode(0o777))
            .tempdir_in(&self.root)
            .map_err(|error| CheckpointError::io(&self.root, error))?;
        for file in files {
            let path = unfinished.path().join(&file.name);
            let named = self.join(folder, &file.name);
            let created = OpenOptions::new().write(true).create_new(true).open(&path);
            let written = created.and_then(|opened| write_parts(&opened, file));
            written.map_err(|error| CheckpointError::io(&named, error))?;
        }
        sync_folder(unfinished.path())?;
        self.publish(unfinished, folder)
    }

    fn is_atomic(&self) -> bool {
        true
    }

    fn write_file(&self, file: &Blob) -> Result<(), CheckpointError> {
        let target = self.root.join(&file.name);
        let wrong = |error: io::Error| CheckpointError::io(&target, error);
        self.make_root()?;
        let beginning = format!("{UNFINISHED}{}-", file.name);
        self.clean(&beginning);
        let unfinished = Builder::new()
            .prefix(&beginning)
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(&self.root)
            .map_err(wrong)?;
        write_parts(unfinished.as_file(), file).map_err(wrong)?;
        unfinished.persist(&target).map_err(|error| wrong(error.error))?;
        sync_folder(&self.root)
    }

    fn remove(&self, folder: &str, first: &str) -> Result<(), CheckpointError> {
        let path = self.join(folder, "");
        let gone = |outcome: io::Result<()>| match outcome {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CheckpointError::io(&path, error)),
            _ => Ok(()),
        };
        gone(fs::remove_file(path.join(first)))?;
        gone(fs::remove_dir_all(&path))
    }
}

fn write_parts(mut opened: &File, file: &Blob) -> io::Result<()> {
    for part in &file.parts {
        opened.write_all(part)?;
    }
    opened.sync_all()
}

fn sync_folder(path: &Path) -> Result<(), CheckpointError> {
    let synced = File::open(path).and_then(|folder| folder.sync_all());
    synced.map_err(|error| CheckpointError::io(path, error))
}

/// The names in a folder of those entries that `wanted` accepts; none where there is no such folder.
fn names(folder: &Path, wanted: impl Fn(&fs::Metadata) -> bool) -> Result<Vec<String>, CheckpointError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(CheckpointError::io(folder, error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| CheckpointError::io(folder, error))?;
        // Follows links; an entry that has gone meanwhile is not there.
        if fs::metadata(entry.path()).is_ok_and(|metadata| wanted(&metadata)) {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}
