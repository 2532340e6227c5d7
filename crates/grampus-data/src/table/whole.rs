//! Files that appear whole or not at all.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::DataError;

const BUFFER: usize = 1 << 20;

/// Writes a file under another name beside the one that is meant, and renames it when it is whole.
pub(super) fn write(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<fs::File>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let wrong = |error: io::Error| DataError::io(path.to_string_lossy(), error);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let temporary = tempfile::Builder::new()
        .prefix(".writing-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .map_err(wrong)?;
    let file = temporary.as_file().try_clone().map_err(wrong)?;
    let mut buffered = BufWriter::with_capacity(BUFFER, file);
    fill(&mut buffered)?;
    buffered.flush().map_err(wrong)?;
    temporary.persist(path).map_err(|error| wrong(error.error))?;
    Ok(())
}
