//! The key that the nodes of `grampus run` share, in a file that only its owner can read.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use grampus_core::{JobKey, KeyError};
use grampus_net::{NetError, random_key};

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file system.
    #[error("cannot use the key file {path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Other users can read it.
    #[error(
        "other users can read the key file {0}: run `chmod 600` on it, or remove it and let a new one be made"
    )]
    Open(PathBuf),
    /// It holds something else.
    #[error("the key file {path} holds no key: {source}")]
    Content {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: KeyError,
    },
    /// No random bits.
    #[error(transparent)]
    Random(#[from] NetError),
}

/// Where the key is looked for: the user's configuration folder.
pub fn default_path() -> Option<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(folder.join("grampus").join("key"))
}

/// The key in the file; where there is no file, a new one.
pub fn read_or_make(path: &Path) -> Result<JobKey, KeyFileError> {
    let failed = |source| KeyFileError::Io {
        path: path.to_owned(),
        source,
    };
    match fs::metadata(path) {
        Ok(meta) if meta.mode() & 0o077 != 0 => return Err(KeyFileError::Open(path.to_owned())),
        Ok(_) => return read(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(failed)?;
    }
    let key = random_key()?;
    // Written under another name and linked, so that two nodes with one home cannot make two keys. A name of its own:
    // processes of two nodes may have one number.
    let fresh = path.with_extension(format!("new-{}", random_key()?.to_hex()));
    let written = write(&fresh, &key).and_then(|()| fs::hard_link(&fresh, path));
    let _ = fs::remove_file(&fresh);
    match written {
        Ok(()) => Ok(key),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read(path),
        Err(error) => Err(failed(error)),
    }
}

fn write(path: &Path, key: &JobKey) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(format!("{}\n", key.to_hex()).as_bytes())?;
    file.sync_all()
}

fn read(path: &Path) -> Result<JobKey, KeyFileError> {
    let text = fs::read_to_string(path).map_err(|source| KeyFileError::Io {
        path: path.to_owned(),
        source,
    })?;
    JobKey::from_hex(text.trim()).map_err(|source| KeyFileError::Content {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/key");
        let key = read_or_make(&path).unwrap();
        assert_eq!(read_or_make(&path).unwrap(), key);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path().join("a")).unwrap().count(), 1);
    }

    #[test]
    fn nodes_with_one_home_and_one_process_number_make_one_key() {
        for _ in 0..50 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("key");
            let at_once = Barrier::new(8);
            let make = || {
                at_once.wait();
                read_or_make(&path).unwrap()
            };
            let keys: Vec<JobKey> = thread::scope(|scope| {
                let made: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
                made.into_iter().map(|made| made.join().unwrap()).collect()
            });
            assert!(keys.iter().all(|key| *key == keys[0]));
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_file_that_others_can_read_or_that_holds_no_key_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, "hello").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(read_or_make(&path), Err(KeyFileError::Open(_))));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(read_or_make(&path), Err(KeyFileError::Content { .. })));
    }
}
