//! Folders that only this user can enter.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::NetError;

/// Longest path of a Unix socket: the kernel's field has 108 bytes, the last of which is zero.
pub(crate) const LONGEST_PATH: usize = 107;

/// Makes a folder that only this user can enter, or checks that an existing one is so. Its parent must exist.
pub fn private_dir(path: &Path) -> Result<PathBuf, NetError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => {
            let what = format!("cannot make the folder {}", path.display());
            return Err(NetError::io(what, "set TMPDIR to a folder that you can write to")(error));
        }
    }
    check_private(path)?;
    Ok(path.to_owned())
}

/// A folder that is a link, belongs to someone else or lets others in is refused: they could replace what is in it.
pub(crate) fn check_private(path: &Path) -> Result<(), NetError> {
    let refuse = |why: String| {
        Err(NetError::NotPrivate {
            path: path.to_owned(),
            why,
        })
    };
    let status = fs::symlink_metadata(path).map_err(|error| {
        NetError::io(
            format!("cannot look at the folder {}", path.display()),
            "make it with `private_dir`",
        )(error)
    })?;
    let us = rustix::process::geteuid().as_raw();
    if !status.is_dir() {
        return refuse("is not a folder".to_owned());
    }
    if status.uid() != us {
        return refuse(format!("belongs to user {} and not to {us}", status.uid()));
    }
    let mode = status.mode() & 0o7777;
    if mode & 0o777 != 0o700 {
        return refuse(format!("has mode {mode:04o}"));
    }
    Ok(())
}

pub(crate) fn check_length(path: &Path) -> Result<(), NetError> {
    let length = path.as_os_str().as_bytes().len();
    if length > LONGEST_PATH {
        return Err(NetError::PathTooLong {
            path: path.to_owned(),
            length,
            limit: LONGEST_PATH,
        });
    }
    Ok(())
}
