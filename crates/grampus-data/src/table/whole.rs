//! Files that appear whole or not at all.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::DataError;

const BUFFER: usize = 1 << 20;

/// Writes a file under another name beside the one that is meant, and renames it when it is whole.
pub(super) fn write(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<Noted>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let wrong = |error: io::Error| DataError::io(path.to_string_lossy(), error);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let temporary = tempfile::Builder::new()
        .prefix(".writing-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .map_err(wrong)?;
    let file = temporary.as_file().try_clone().map_err(wrong)?;
    let failed = Arc::new(Mutex::new(None));
    let mut buffered = BufWriter::with_capacity(
        BUFFER,
        Noted {
            file,
            failed: Arc::clone(&failed),
        },
    );
    let filled = fill(&mut buffered).and_then(|()| buffered.flush().map_err(wrong));
    // Formats tell of a full disk in their own words, without the name of the file.
    if let Some(error) = failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // What is left in the buffer has no place to go.
        let _ = buffered.into_parts();
        return Err(wrong(error));
    }
    filled?;
    temporary.persist(path).map_err(|error| wrong(error.error))?;
    Ok(())
}

/// A file that keeps the first error of the system.
pub(super) struct Noted {
    file: fs::File,
    failed: Arc<Mutex<Option<io::Error>>>,
}

impl Noted {
    fn note<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.inspect_err(|error| {
            let copy = error.raw_os_error().map_or_else(
                || io::Error::new(error.kind(), error.to_string()),
                io::Error::from_raw_os_error,
            );
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert(copy);
        })
    }
}

impl Write for Noted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let done = self.file.write(bytes);
        self.note(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        let done = self.file.flush();
        self.note(done)
    }
}
